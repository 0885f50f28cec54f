"""Least slack first, from predicted stage durations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kintune.core.stage import Stage
from kintune.scheduler.forecast import DurationForecast
from kintune.scheduler.policy import JobFacts, RankedPolicy
from kintune.scheduler.resources import Placement, Resource

__all__ = ["Predictive"]

_MAX_KEPT = 0.25  # largest share of all cores that is kept for absent jobs


class Predictive(RankedPolicy):
    """Least slack first: a job's target end minus the sequential work that it has left.

    Durations and remaining work come from `DurationForecast`.  The target end of a job with a deadline is the deadline.
    Otherwise it is the earlier of two times: the time at which the busiest resource could finish all known work, scaled
    by the mean priority over the job's own; and the time at which the job would end with its fair share of all
    resources.  For the first of these, the remaining work counts as at least the smaller of the job's total work and
    the busiest resource's work; otherwise a job that has begun would be overtaken by every job with more left, and all
    jobs would end together.  Slack shrinks while a job waits and not while it runs, so no job starves.

    A job with more sequential work than the busiest resource has is *critical*: each delay of it delays the end of
    everything.  Its slack is negative.  Its process's cores stay reserved while it uses a device, up to a share of all.
    """

    name = "predictive"
    starvation_free = True

    def __init__(self) -> None:
        self._forecast = DurationForecast()
        self._priorities = 0.0
        self._jobs = 0

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """Return the latest time at which the stage should start."""
        forecast = self._forecast
        ahead_s = forecast.ahead_s(job.id)
        if job.deadline is not None:
            return job.deadline - ahead_s
        busiest_s, total_s = forecast.busiest_s(), forecast.had_s(job.id) + ahead_s
        horizon = now + busiest_s * self._priorities / self._jobs / job.priority
        share = job.since + total_s * self._priorities / job.priority
        return min(horizon - max(ahead_s, min(total_s, busiest_s)), share - ahead_s)

    def keeps_cores(self, stage: Stage, job: JobFacts, placement: Placement, kept: int) -> bool:
        """Return whether the job is critical and the reserved cores stay within the limit."""
        forecast = self._forecast
        if not forecast.told(job.id) or forecast.ahead_s(job.id) < forecast.busiest_s():
            return False
        return kept + placement.cores <= _MAX_KEPT * forecast.capacity(None)

    def resource_joined(self, resource: Resource) -> None:
        """Add the resource's capacity."""
        self._forecast.count(resource, 1)

    def resource_lost(self, resource: Resource) -> None:
        """Subtract the resource's capacity."""
        self._forecast.count(resource, -1)

    def resource_back(self, resource: Resource) -> None:
        """Add the resource's capacity again."""
        self._forecast.count(resource, 1)

    def job_added(self, job: JobFacts) -> None:
        """Register the job."""
        self._forecast.add(job.id)
        self._priorities += job.priority
        self._jobs += 1

    def priority_changed(self, job: JobFacts, priority: float) -> None:
        """Update the sum of priorities."""
        self._priorities += priority - job.priority

    def job_expects(self, job: JobFacts, ahead: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """Replace the job's estimate of its remaining stages."""
        self._forecast.expect(job.id, ahead, seconds)

    def stage_ready(self, stage: Stage, job: JobFacts) -> None:
        """Note the demand of stages with this duration key."""
        self._forecast.ask(stage)

    def stage_ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        """Learn the duration of a successful stage."""
        if done:
            self._forecast.done(stage, seconds)

    def job_removed(self, job: JobFacts) -> None:
        """Remove the job."""
        self._forecast.forget(job.id)
        self._priorities -= job.priority
        self._jobs -= 1
