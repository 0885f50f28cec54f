"""A job keeps going while what it needs next is free; others fill the gaps."""

from __future__ import annotations

from typing import Any

from kintune.core.stage import Stage
from kintune.scheduler.policies.ranked import Ranked
from kintune.scheduler.policy import JobFacts

__all__ = ["Greedy"]


class Greedy(Ranked):
    """The job that has moved last goes first: the interleaved-greedy strategy of Stiller's thesis (setups D and F).

    Those that have not moved yet go by priority, then by age.  Nothing bounds how long the others wait.
    """

    name = "greedy"

    def __init__(self) -> None:
        self._moves = 0
        self._last: dict[str, int] = {}

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """The latest move first."""
        return (-self._last.get(job.id, 0), -job.priority, job.seq)

    def ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        """The job has moved."""
        self._moves += 1
        self._last[job.id] = self._moves

    def left(self, job: JobFacts) -> None:
        """Forget the job."""
        self._last.pop(job.id, None)
