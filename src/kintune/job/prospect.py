"""How many stages of each kind a tuning job will still ask for, by its own account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kintune.job.limits import Limits
from kintune.job.payloads import StageName
from kintune.job.state import JobState

__all__ = ["stages_ahead"]

_ROUND = (StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.UPDATE)
_CLOSING = (StageName.BUILD, StageName.CONFIRM, StageName.PACKAGE, StageName.PROVE)


def stages_ahead(state: JobState, offered: Collection[str], *, searching: bool) -> dict[str, int] | None:
    """Stages by kind that will follow those `offered` (their kinds); None while nobody can tell.

    Whatever goes wrong comes on top.
    """
    if state.prepared is None:
        return None
    counts: Counter[str] = Counter()
    if searching:
        rounds = Limits(state.spec.options, state.ledger, state.session, state.finalists.expected).rounds_left()
        if rounds is None:
            return None
        counts.update(dict.fromkeys(_ROUND, rounds))
        counts[StageName.SELECT] -= StageName.SELECT in offered
    for position, kind in enumerate(_ROUND[1:-1], start=2):
        if searching and kind in offered:
            counts.update(_ROUND[position:])
    counts.update(_CLOSING if searching else _after(offered))
    return {kind: count for kind, count in counts.items() if count > 0}


def _after(offered: Collection[str]) -> tuple[str, ...]:
    """What still comes of the closing."""
    reached = [position for position, kind in enumerate(_CLOSING) if kind in offered]
    return _CLOSING[reached[-1] + 1 :] if reached else _CLOSING
