"""Knows how long stages take, and so what everybody still has to do: who would end last goes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kintune.core.stage import Stage
from kintune.scheduler.forecast import Forecast
from kintune.scheduler.policies.ranked import Ranked
from kintune.scheduler.policy import JobFacts
from kintune.scheduler.resources import Placement, Resource

__all__ = ["Predictive"]

_MOST_CORES = 0.25  # the share that is kept for jobs at most


class Predictive(Ranked):
    """Least slack first: the time at which a job should be over, less what it still has to do one after the other.

    Durations are learnt by the stages' opaque keys, and before that believed to be what jobs say of them; what lies
    ahead is what jobs say they expect, or, of one that says nothing, as much again as it has had.  A job should be over
    by its deadline.  Without one, it should be over when the busiest resource could be done with all that is known,
    sooner by as much as its weight is above the average, and never later than a fair share of everything would have let
    it.  Its slack shrinks while a job waits and not while it moves, so that nobody waits for ever.  A job that has
    begun is not overtaken by one that has more ahead only because it has not, or all would end together: what it had
    counts, up to what the busiest resource has.

    A job with more to do, one stage after the other, than the busiest resource has is *critical*: whenever it waits,
    everything ends later.  Its slack is below 0, by as much as it has too much ahead, and the cores where its process
    lives are kept while it is elsewhere, where there is enough for others.
    """

    name = "predictive"
    bounded = True

    def __init__(self) -> None:
        self._outlook = Forecast()
        self._weights = 0.0
        self._jobs = 0

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """The latest moment at which the stage could begin."""
        outlook = self._outlook
        ahead_s = outlook.ahead_s(job.id)
        if job.deadline is not None:
            return job.deadline - ahead_s
        busiest_s, way_s = outlook.busiest_s(), outlook.had_s(job.id) + ahead_s
        horizon = now + busiest_s * self._weights / self._jobs / job.priority
        share = job.since + way_s * self._weights / job.priority
        return min(horizon - max(ahead_s, min(way_s, busiest_s)), share - ahead_s)

    def keeps(self, stage: Stage, job: JobFacts, placement: Placement, kept: int) -> bool:
        """Whether the job is critical, and enough is left for others."""
        outlook = self._outlook
        if not outlook.told(job.id) or outlook.ahead_s(job.id) < outlook.busiest_s():
            return False
        return kept + placement.cores <= _MOST_CORES * outlook.capacity(None)

    def joined(self, resource: Resource) -> None:
        """There is more of it."""
        self._outlook.count(resource, 1)

    def lost(self, resource: Resource) -> None:
        """There is less of it."""
        self._outlook.count(resource, -1)

    def back(self, resource: Resource) -> None:
        """There is more of it again."""
        self._outlook.count(resource, 1)

    def added(self, job: JobFacts) -> None:
        """One more to share with."""
        self._outlook.add(job.id)
        self._weights += job.priority
        self._jobs += 1

    def reweighed(self, job: JobFacts, priority: float) -> None:
        """It shares with another weight."""
        self._weights += priority - job.priority

    def expects(self, job: JobFacts, ahead: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """What lies ahead by the job's own account."""
        self._outlook.expect(job.id, ahead, seconds)

    def asked(self, stage: Stage, job: JobFacts) -> None:
        """What stages of this key need."""
        self._outlook.ask(stage)

    def ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        """Learn from it."""
        if done:
            self._outlook.done(stage, seconds)

    def left(self, job: JobFacts) -> None:
        """One less to share with."""
        self._outlook.forget(job.id)
        self._weights -= job.priority
        self._jobs -= 1
