"""Which subgraph deserves the next round: the one whose tuning is expected to speed the network up most.

The gradient of Ansor's task scheduler (OSDI 2020, section 6): what the last rounds brought, mixed with an optimistic
guess of what is still possible, which kin bound from what the fastest of them reaches.  Differently from there, every
full round without progress lowers the expectation, so that a slow but finished subgraph does not starve the others
(FamilySeer, arXiv 2201.00194).

Where it is known what no program can take less than (`SubgraphState.bound_us`), nobody is expected to come closer to it
than programs do at their best, and what little is left to gain is looked for in a smaller round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kintune.search.subgraph import SubgraphState

__all__ = ["expected_gain", "prospect", "rank", "sized"]

_MEMORY = 0.3  # weight of what the past brought against what is possible
_WINDOW = 3  # rounds looked back
_HEADROOM = 1.5  # kin may turn out this much faster than the fastest of them is now
_DISAPPOINTMENT = 0.4  # what is left of the expectation after a full round without progress
_PATIENCE = 3.0  # full rounds after which a subgraph counts as hopeless of which no program has run
_WORTH = 2e-4  # of the network's latency: what a round must be expected to save to be worth it
_REACHED = 0.95  # of a device's peak, by the best of programs
_FULL = 0.5  # whoever may gain this share of its time gets a full round
_LEAST = 8  # candidates of a round, of which a few are worth choosing from


def expected_gain(state: SubgraphState, family_speed: float) -> float:
    """Microseconds that one more full round is expected to save per run of the network.

    What the past says of it is the mean of the last rounds, whatever the size of each, but no more than is left: the
    first program that is no disaster may be a thousand times as fast as the one before, and no later one will be.
    `family_speed` is the highest FLOPs per microsecond reached in the subgraph's family.
    """
    if state.exhausted:
        return 0.0
    if not math.isfinite(state.best_us):
        return math.inf if state.stale < _PATIENCE else 0.0
    recent = state.history[-1 - _WINDOW :]
    finite = [value for value in recent if math.isfinite(value)]
    past = (finite[0] - state.best_us) / max(1, len(finite) - 1) if finite else 0.0
    left = prospect(state) * state.best_us
    if left <= 0:
        return 0.0
    if family_speed > 0:
        bound = state.subject.flops / (_HEADROOM * family_speed)
        left = min(left, max(0.0, state.best_us - bound))
    possible = min(state.best_us / max(1.0, state.rounds), left)
    gain = _MEMORY * min(past, left) + (1 - _MEMORY) * possible
    return float(state.subject.weight * gain * _DISAPPOINTMENT**state.stale)


def prospect(state: SubgraphState) -> float:
    """The share of the best time that may still be saved: 1 where there is no time, or nothing is known of a bound."""
    if not math.isfinite(state.best_us):
        return 1.0
    return max(0.0, 1.0 - state.bound_us / (_REACHED * state.best_us))


def sized(size: int, state: SubgraphState) -> int:
    """The size of a subgraph's round, `size` being that of a full one: as many as there is prospect for."""
    share = min(1.0, prospect(state) / _FULL)
    return min(size, max(_LEAST, round(size * share)))


def rank(states: Iterable[SubgraphState]) -> list[SubgraphState]:
    """Subgraphs that may still gain enough, by expected gain, steepest first; equal ones by workload digest.

    `states` are all of a network's.  What is enough is a share of what all of them take: a heavy subgraph is given more
    rounds without progress than a light one before it counts as done.
    """
    states = list(states)
    enough = _WORTH * sum(s.subject.weight * s.best_us for s in states if math.isfinite(s.best_us))
    speeds: dict[str, float] = {}
    for state in states:
        if math.isfinite(state.best_us):
            speed = state.subject.flops / state.best_us
            speeds[state.family] = max(speed, speeds.get(state.family, 0.0))
    gains = [(expected_gain(state, speeds.get(state.family, 0.0)), state) for state in states]
    ordered = sorted(gains, key=lambda pair: (-pair[0], pair[1].subject.workload))
    return [state for gain, state in ordered if gain > enough]
