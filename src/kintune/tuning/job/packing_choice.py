"""Programs that read the same weights agree on their layout, where that costs little: then the weights are stored once.

Subgraphs of several combinations of shapes read the same weights.  Each program has weights packed in a layout of its
own choice; two layouts of one weight are two weights in the file.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kintune.core.candidate import Candidate

__all__ = ["WORTH", "PackingOption", "agree_on_packing"]

WORTH = 1.03
"""A program may take this many times as long as the fastest one of its subgraph, for the sake of a shared layout."""


class PackingOption(NamedTuple):
    """A program that may ship for a workload: its time in microseconds, and a text that names its layout of weights."""

    candidate: Candidate
    us: float
    packing: str


def agree_on_packing(options: Mapping[str, Sequence[PackingOption]]) -> dict[str, PackingOption]:
    """Choose a program for each of the workloads, at least one option each, all of which read the same weights.

    The layout that most workloads can have at a small price is theirs, of several such the one that costs least time;
    then the same for those that are left.  Where that saves no layout, the fastest programs are chosen.
    """
    fastest = {workload: min(given, key=_by_time) for workload, given in options.items()}
    cheap = {
        workload: _fastest_by_packing([o for o in given if o.us <= WORTH * fastest[workload].us])
        for workload, given in options.items()
    }
    chosen: dict[str, PackingOption] = {}
    while len(chosen) < len(options):
        left = [workload for workload in options if workload not in chosen]
        counts = Counter(packing for workload in left for packing in cheap[workload])
        lost = {p: _lost_us(p, [cheap[w] for w in left], [fastest[w] for w in left]) for p in counts}
        packing = min(counts, key=lambda p: (-counts[p], lost[p], p))
        chosen.update({workload: cheap[workload][packing] for workload in left if packing in cheap[workload]})
    fewer = len({o.packing for o in chosen.values()}) < len({o.packing for o in fastest.values()})
    return {workload: (chosen if fewer else fastest)[workload] for workload in options}


def _by_time(option: PackingOption) -> tuple[float, Candidate]:
    return option.us, option.candidate


def _fastest_by_packing(options: Sequence[PackingOption]) -> dict[str, PackingOption]:
    found: dict[str, PackingOption] = {}
    for option in sorted(options, key=_by_time):
        found.setdefault(option.packing, option)
    return found


def _lost_us(packing: str, cheap: Sequence[Mapping[str, PackingOption]], fastest: Sequence[PackingOption]) -> float:
    """Return how much longer than the fastest programs those with this layout take."""
    pairs = zip(cheap, fastest, strict=True)
    measured = [(options[packing].us, best.us) for options, best in pairs if packing in options]
    return sum(us - best_us for us, best_us in measured if math.isfinite(us))
