"""A queue for each resource: jobs take turns, as often as their weights say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kintune.core.stage import Stage
from kintune.scheduler.policies.ranked import Ranked
from kintune.scheduler.policy import JobFacts
from kintune.scheduler.resources import Placement

__all__ = ["Fair"]


@dataclass
class _Turns:
    """Start-time fair queueing of one kind of resource, every stage costing one turn."""

    now: float = 0.0  # the virtual time: when the last stage that started was to start
    due: dict[str, float] = field(default_factory=dict)  # by job, when its latest turn ends
    waiting: dict[str, dict[str, float]] = field(default_factory=dict)  # by job and stage, when its turn begins


class Fair(Ranked):
    """First come, first served for jobs of equal weight: interleaved-fair of Stiller's thesis (setups E and G).

    A job of twice the weight has its turn twice as often.  The turns are those of start-time fair queueing (Goyal, Vin
    and Cheng, SIGCOMM 1996), with a stage, whose duration nobody knows here, for a packet.
    """

    name = "fair"
    bounded = True

    def __init__(self) -> None:
        self._turns: dict[str | None, _Turns] = {}

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """When the turn of the stage begins."""
        turns = self._turns.setdefault(stage.demand.device, _Turns())
        mine = turns.waiting.setdefault(job.id, {})
        begins = mine.get(stage.id)
        if begins is None:
            begins = mine[stage.id] = max(turns.now, turns.due.get(job.id, 0.0))
            turns.due[job.id] = begins + 1 / job.priority
        return begins + 1 / job.priority

    def started(self, stage: Stage, job: JobFacts, placement: Placement, now: float) -> None:
        """Its turn has begun."""
        turns = self._turns[stage.demand.device]
        turns.now = max(turns.now, turns.waiting[job.id].pop(stage.id))

    def left(self, job: JobFacts) -> None:
        """Forget the job."""
        for turns in self._turns.values():
            turns.due.pop(job.id, None)
            turns.waiting.pop(job.id, None)
