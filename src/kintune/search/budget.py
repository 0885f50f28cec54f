"""Which subgraph deserves the next round: the one whose tuning is expected to speed the network up most.

The gradient of Ansor's task scheduler (OSDI 2020, section 6): what the last rounds brought, mixed with an optimistic
guess of what is still possible, which kin bound from what the fastest of them reaches.  Differently from there, every
full round without progress lowers the expectation, so that a slow but finished subgraph does not starve the others
(FamilySeer, arXiv 2201.00194).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kintune.search.subgraph import SubgraphState

__all__ = ["expected_gain", "rank"]

_MEMORY = 0.3  # weight of what the past brought against what is possible
_WINDOW = 3  # rounds looked back
_HEADROOM = 1.5  # kin may turn out this much faster than the fastest of them is now
_DISAPPOINTMENT = 0.4  # what is left of the expectation after a full round without progress
_PATIENCE = 3.0  # full rounds without progress after which a subgraph counts as done


def expected_gain(state: SubgraphState, family_speed: float) -> float:
    """Microseconds that one more full round is expected to save per run of the network.

    `family_speed` is the highest FLOPs per microsecond reached in the subgraph's family.
    """
    if state.exhausted:
        return 0.0
    if not math.isfinite(state.best_us):
        return math.inf if state.stale < _PATIENCE else 0.0
    recent = state.history[-1 - _WINDOW :]
    finite = [value for value in recent if math.isfinite(value)]
    past = (finite[0] - state.best_us) / max(1, len(finite) - 1) if finite else 0.0
    possible = state.best_us / max(1.0, state.rounds)
    if family_speed > 0:
        bound = state.subject.flops / (_HEADROOM * family_speed)
        possible = min(possible, max(0.0, state.best_us - bound))
    gain = _MEMORY * past + (1 - _MEMORY) * possible
    return float(state.subject.weight * gain * _DISAPPOINTMENT**state.stale)


def rank(states: Iterable[SubgraphState]) -> list[SubgraphState]:
    """Subgraphs that may still gain, by expected gain, steepest first; equal ones by workload digest."""
    states = list(states)
    speeds: dict[str, float] = {}
    for state in states:
        if math.isfinite(state.best_us):
            speed = state.subject.flops / state.best_us
            speeds[state.family] = max(speed, speeds.get(state.family, 0.0))
    gains = [(expected_gain(state, speeds.get(state.family, 0.0)), state) for state in states]
    ordered = sorted(gains, key=lambda pair: (-pair[0], pair[1].subject.workload))
    return [state for gain, state in ordered if gain > 0 and state.stale < _PATIENCE]
