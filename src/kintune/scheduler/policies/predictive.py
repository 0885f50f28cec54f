"""Knows how long stages take, and so what everybody still has to do: who would end last goes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kintune.scheduler.durations import Durations
from kintune.scheduler.policies.ranked import Ranked
from kintune.scheduler.resources import Host, Resource
from kintune.scheduler.stage import Demand, Stage
from kintune.scheduler.view import JobFacts

__all__ = ["Predictive"]


@dataclass
class _Outlook:
    """A job: how many stages it will still ask for, if it has told, and the seconds of stages it has had."""

    job: JobFacts
    ahead: dict[str, int] = field(default_factory=dict)
    told: bool = False
    had_s: float = 0.0


class Predictive(Ranked):
    """Least slack first: the time at which a job should be over, less what it still has to do one after the other.

    Durations are learnt by the stages' opaque keys; what lies ahead is what jobs say they expect, or, of one that says
    nothing, as much again as it has had.  A job should be over by its deadline.  Without one, it should be over when
    the busiest resource could be done with all that is known, sooner by as much as its weight is above the average,
    and never later than a fair share of everything would have let it.

    Its slack shrinks while a job waits and not while it moves, so that nobody waits for ever.
    """

    name = "predictive"
    bounded = True

    def __init__(self) -> None:
        self._durations = Durations()
        self._jobs: dict[str, _Outlook] = {}
        self._weights = 0.0
        self._demands: dict[str, Demand] = {}  # by duration key
        self._load: dict[str, int] = {}  # stages still expected, by duration key
        self._capacity: dict[str | None, int] = {}  # cores, and devices by type
        self._busiest = 0.0
        self._changes = 1  # in what it depends on, since it was summed up

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """The latest moment at which the stage could begin."""
        outlook = self._jobs[job.id]
        ahead_s = self._durations.total(outlook.ahead) if outlook.told else outlook.had_s
        if job.deadline is not None:
            return job.deadline - ahead_s
        horizon = now + max(self._busiest_s(), ahead_s) * self._weights / len(self._jobs) / job.priority
        share = job.since + (outlook.had_s + ahead_s) * self._weights / job.priority
        return min(horizon, share) - ahead_s

    def joined(self, resource: Resource) -> None:
        """There is more of it."""
        self._count(resource, 1)

    def lost(self, resource: Resource) -> None:
        """There is less of it."""
        self._count(resource, -1)

    def back(self, resource: Resource) -> None:
        """There is more of it again."""
        self._count(resource, 1)

    def added(self, job: JobFacts) -> None:
        """One more to share with."""
        self._jobs[job.id] = _Outlook(job)
        self._weights += job.priority

    def expects(self, job: JobFacts, ahead: Mapping[str, int]) -> None:
        """What lies ahead by the job's own account."""
        outlook = self._jobs[job.id]
        self._forget(outlook)
        outlook.ahead = dict(ahead)
        outlook.told = True
        for key, count in ahead.items():
            self._load[key] = self._load.get(key, 0) + count
        self._changes += len(ahead)

    def asked(self, stage: Stage, job: JobFacts) -> None:
        """What stages of this key need."""
        self._demands[stage.duration_key] = stage.demand

    def ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        """Learn from it."""
        if not done:
            return
        key = stage.duration_key
        self._changes += 1
        self._durations.learn(key, seconds)
        outlook = self._jobs[job.id]
        outlook.had_s += seconds
        if outlook.ahead.get(key, 0) > 0:
            outlook.ahead[key] -= 1
            self._load[key] -= 1

    def left(self, job: JobFacts) -> None:
        """One less to share with."""
        outlook = self._jobs.pop(job.id)
        self._forget(outlook)
        self._weights -= job.priority

    # inside ---------------------------------------------------------------------------------------------------------

    def _busiest_s(self) -> float:
        """Seconds for which the busiest kind of resource has work that is known.

        Summed up again after as many changes as there are terms, so that a decision does not pay for their number.
        """
        if self._changes > len(self._load):
            self._changes = 0
            work: dict[str | None, float] = {}
            for key, count in self._load.items():
                demand = self._demands.get(key)
                if demand is not None:
                    each = 1 if demand.device is not None else max(1, demand.cores)
                    work[demand.device] = work.get(demand.device, 0.0) + count * each * self._durations.expected(key)
            self._busiest = max((s / max(1, self._capacity.get(of, 0)) for of, s in work.items()), default=0.0)
        return self._busiest

    def _count(self, resource: Resource, sign: int) -> None:
        of, many = (None, resource.cores) if isinstance(resource, Host) else (resource.type, 1)
        self._capacity[of] = self._capacity.get(of, 0) + sign * many
        self._changes += 1

    def _forget(self, outlook: _Outlook) -> None:
        for key, count in outlook.ahead.items():
            if left := self._load.get(key, 0) - count:
                self._load[key] = left
            else:
                self._load.pop(key, None)
