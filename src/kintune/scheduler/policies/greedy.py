"""Prefer the job whose stage ended last; other jobs fill the gaps."""

from __future__ import annotations

from typing import Any

from kintune.core.stage import Stage
from kintune.scheduler.policy import JobFacts, RankedPolicy

__all__ = ["Greedy"]


class Greedy(RankedPolicy):
    """The job whose stage ended last goes first: the interleaved-greedy strategy of Stiller's thesis (setups D and F).

    Jobs without an ended stage follow by priority, then by age.  The waiting time of the others is not bounded.
    """

    name = "greedy"

    def __init__(self) -> None:
        self._ended = 0
        self._last: dict[str, int] = {}

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """Return a rank that puts the job with the latest ended stage first."""
        return (-self._last.get(job.id, 0), -job.priority, job.seq)

    def stage_ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        """Note that a stage of the job has ended."""
        self._ended += 1
        self._last[job.id] = self._ended

    def job_removed(self, job: JobFacts) -> None:
        """Remove the job."""
        self._last.pop(job.id, None)
