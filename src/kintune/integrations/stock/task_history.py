"""The expected gain of a task's next round, by the rule of stock MetaSchedule's gradient scheduler.

The rule is that of Zheng et al., "Ansor", OSDI 2020, section 6, without its estimate from similar tasks.  It mixes the
gain of the last rounds with the gain of one more round if the time falls as one over the number of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import msgspec

__all__ = ["RoundReason", "RoundTaken", "TaskHistory"]


class TaskHistory:
    """The rounds of one task; a foresee round counts as the share of a full one that its size is."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.rounds = 0.0
        self.times_ms: list[float] = []
        self._bests: list[tuple[float, float]] = []

    @property
    def best_ms(self) -> float:
        """The fastest time measured; infinite when there is none."""
        return min(self.times_ms, default=math.inf)

    def close_round(self, times_ms: Sequence[float], share: float) -> None:
        """Add a round's times, infinite for failures; `share` is its size over that of a full round."""
        self.times_ms += times_ms
        self.rounds += share
        self._bests.append((self.rounds, self.best_ms))

    def gradient(self, alpha: float, window: int) -> float:
        """Return the milliseconds that one more full round is expected to save per run of the network.

        `alpha` is the share of the mean gain of the last `window` rounds in the result.  Minus infinity if no candidate
        ran.
        """
        best = self.best_ms
        if math.isinf(best):
            return -math.inf
        earlier = [value for rounds, value in self._bests if rounds <= self.rounds - window]
        past = (earlier[-1] - best) / window if earlier and math.isfinite(earlier[-1]) else 0.0
        return self.weight * (alpha * past + (1 - alpha) * best / self.rounds)


class RoundReason(Enum):
    """Why a task got a round: the first pass over all tasks, the largest gradient, or a foresee round in its family."""

    FIRST = "first"
    FULL = "full"
    FORESEE = "foresee"


class RoundTaken(msgspec.Struct, frozen=True):
    """A finished round: the task's position, why it was chosen, the candidates measured, and its best time so far.

    `best_ms` is infinite while no candidate of the task has run.
    """

    task: int
    how: RoundReason
    trials: int
    best_ms: float
