"""The budget: which subgraph gets the next round, namely the one that is expected to speed up the network most.

The expected gain is the gradient of Ansor's task scheduler (OSDI 2020, section 6): the gain of the last rounds, mixed
with an optimistic estimate of the possible gain, which is bounded by the speed of the fastest subgraph of the family.
Unlike there, every full round without progress lowers the expectation, so that a slow but finished subgraph does not
starve the others (FamilySeer, arXiv 2201.00194).

Where a lower bound of the time is known (`SubgraphState.bound_us`), the gain is limited by it, and the round is smaller
the less there is to gain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from kintune.search.subgraph import SubgraphState

__all__ = ["expected_gain", "prospect", "rank", "sized"]

_MEMORY = 0.3  # weight of the past gain; the rest is that of the possible gain
_WINDOW = 3  # past rounds that count
_HEADROOM = 1.5  # a subgraph may become this much faster than the fastest one of its family
_DISAPPOINTMENT = 0.4  # factor of the expected gain for each full round without progress
_PATIENCE = 3.0  # full rounds after which a subgraph of which no program has run is given up
_WORTH = 2e-4  # share of the network's latency that a round must be expected to save
_REACHED = 0.95  # share of a device's peak that the best programs reach
_FULL = 0.5  # a subgraph that may save this share of its time gets a full round
_LEAST = 8  # candidates of a round, at least


def expected_gain(state: SubgraphState, family_speed: float) -> float:
    """Return the microseconds that one more full round is expected to save per run of the network.

    The past gain is the mean over the last rounds, whatever their sizes, but at most what can still be saved: an early
    program may be a thousand times as fast as the one before, and no later one will.  `family_speed` is the highest
    speed reached in the subgraph's family, in FLOPs per microsecond.
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
    """Return the share of the best time that may still be saved; 1 without a time or a bound."""
    if not math.isfinite(state.best_us):
        return 1.0
    return max(0.0, 1.0 - state.bound_us / (_REACHED * state.best_us))


def sized(size: int, state: SubgraphState) -> int:
    """Return the size of a subgraph's round, at most `size`, in proportion to its prospect."""
    share = min(1.0, prospect(state) / _FULL)
    return min(size, max(_LEAST, round(size * share)))


def rank(states: Iterable[SubgraphState]) -> list[SubgraphState]:
    """Return the subgraphs that may still gain enough, largest expected gain first, equal ones by workload digest.

    `states` are all subgraphs of a network.  The least gain is a share of their total time, so that a subgraph with
    much of the time gets more rounds without progress than one with little before it counts as finished.
    """
    states = list(states)
    enough = _WORTH * sum(s.subject.weight * s.best_us for s in states if math.isfinite(s.best_us))
    speeds: defaultdict[str, float] = defaultdict(float)
    for state in states:
        if math.isfinite(state.best_us):
            speed = state.subject.flops / state.best_us
            speeds[state.family] = max(speed, speeds[state.family])
    gains = [(expected_gain(state, speeds[state.family]), state) for state in states]
    ordered = sorted(gains, key=lambda pair: (-pair[0], pair[1].subject.workload))
    return [state for gain, state in ordered if gain > enough]
