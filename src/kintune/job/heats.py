"""Who of a subgraph's finalists is timed once more: heats, of which each leaves fewer.

What the search knows of its fastest programs are a few runs each, of moments that lie minutes apart, and the first of
them is often not the fastest.  In a heat all that may be it are timed one right after the other, some runs each, and
who is clearly slower is out.  Between two heats of a subgraph come those of all others: a bad moment spoils one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kintune.measure.outcome import Outcome
from kintune.space.candidate import Candidate

__all__ = ["HEATS", "next_heat"]

HEATS = 3
"""How often a finalist is timed at most."""

_CLOSE = (1.05, 1.03)
"""Who takes this many times as long as the fastest after the first heat, after the second one, is out."""


def next_heat(
    finalists: Sequence[Candidate], outcomes: Mapping[Candidate, Outcome], ran: Mapping[Candidate, int]
) -> list[Candidate]:
    """Those of one subgraph's `finalists` that are to be timed next, in their order; none when it is decided.

    `outcomes` join all times of those that were timed, and `ran` says in how many heats; what failed is out.
    """
    newcomers = [c for c in finalists if c not in outcomes]
    if newcomers:
        return newcomers
    time_us = {c: outcomes[c].median_us for c in finalists}
    best_us = min(time_us.values(), default=math.inf)
    close = [c for c in finalists if math.isfinite(time_us[c]) and time_us[c] <= _margin(ran[c]) * best_us]
    fewest = min((ran[c] for c in close), default=HEATS)
    if len(close) < 2 or fewest >= HEATS:
        return []
    return [c for c in close if ran[c] == fewest]


def _margin(heats: int) -> float:
    return _CLOSE[min(heats, len(_CLOSE)) - 1]
