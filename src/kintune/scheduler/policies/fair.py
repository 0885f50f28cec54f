"""Fair queueing for each kind of resource, in proportion to the jobs' priorities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kintune.core.stage import Stage
from kintune.scheduler.policy import JobFacts, RankedPolicy
from kintune.scheduler.resources import Placement

__all__ = ["Fair"]


@dataclass
class _FairQueue:
    """Start-time fair queueing of one kind of resource; every stage counts as one packet of length 1."""

    now: float = 0.0  # virtual time: start tag of the stage that was started last
    finish: dict[str, float] = field(default_factory=dict)  # by job, finish tag of its latest stage
    start: dict[str, dict[str, float]] = field(default_factory=dict)  # by job and stage id, start tags


class Fair(RankedPolicy):
    """Jobs take turns: the interleaved-fair strategy of Stiller's thesis (setups E and G).

    A job of twice the priority gets twice as many turns.  Turns follow start-time fair queueing (Goyal, Vin and Cheng,
    SIGCOMM 1996) with stages as packets of equal length, since their durations are not known here.
    """

    name = "fair"
    starvation_free = True

    def __init__(self) -> None:
        self._queues: dict[str | None, _FairQueue] = {}

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """Return the stage's finish tag in virtual time."""
        queue = self._queues.setdefault(stage.demand.device, _FairQueue())
        tags = queue.start.setdefault(job.id, {})
        start = tags.get(stage.id)
        if start is None:
            start = tags[stage.id] = max(queue.now, queue.finish.get(job.id, 0.0))
            queue.finish[job.id] = start + 1 / job.priority
        return start + 1 / job.priority

    def stage_started(self, stage: Stage, job: JobFacts, placement: Placement, now: float) -> None:
        """Advance the virtual time to the stage's start tag."""
        queue = self._queues[stage.demand.device]
        queue.now = max(queue.now, queue.start[job.id].pop(stage.id))

    def job_removed(self, job: JobFacts) -> None:
        """Drop the job's tags."""
        for queue in self._queues.values():
            queue.finish.pop(job.id, None)
            queue.start.pop(job.id, None)
