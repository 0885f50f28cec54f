"""What the task scheduler did with its budget, one value a round."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["How", "Turn"]


class How(Enum):
    """Why a task got a round: the first pass over all tasks, the steepest gradient, or kinship."""

    FIRST = "first"
    FULL = "full"
    FORESEE = "foresee"


class Turn(msgspec.Struct, frozen=True):
    """A finished round: the task's position, why it was chosen, candidates measured, and its best time so far.

    `best_ms` is infinite while no candidate of the task could be run.
    """

    task: int
    how: How
    trials: int
    best_ms: float
