"""What lies ahead of a tuning job by its own account: how many stages of each kind, and how long a run takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from kintune.core.payloads import StageName
from kintune.tuning.job.limits import Limits
from kintune.tuning.job.state import JobState

__all__ = ["seconds_of_a_run", "stages_ahead"]

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
        rounds = Limits(state.spec.options, state.ledger, state.session, state.finalists.expected_trials).rounds_left()
        if rounds is None:
            return None
        counts.update(dict.fromkeys(_ROUND, rounds))
        counts[StageName.SELECT] -= StageName.SELECT in offered
    for position, kind in enumerate(_ROUND[1:-1], start=2):
        if searching and kind in offered:
            counts.update(_ROUND[position:])
    counts.update(_CLOSING if searching else _after(offered))
    return {kind: count for kind, count in counts.items() if count > 0}


def seconds_of_a_run(state: JobState) -> tuple[float, float] | None:
    """Seconds of one run of the network by its subgraphs, tuned so far and untuned; None while nobody can tell."""
    if state.prepared is None:
        return None
    tuned_us, untuned_us = state.session.latency_us(), state.session.untuned_us()
    return (tuned_us / 1e6, untuned_us / 1e6) if math.isfinite(tuned_us + untuned_us) else None


def _after(offered: Collection[str]) -> tuple[str, ...]:
    """What still comes of the closing."""
    reached = [position for position, kind in enumerate(_CLOSING) if kind in offered]
    return _CLOSING[reached[-1] + 1 :] if reached else _CLOSING
