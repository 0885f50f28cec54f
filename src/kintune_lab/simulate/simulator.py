"""The simulator: drives the scheduler in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from kintune.core.stage import StageKey
from kintune.errors import SchedulerError
from kintune.scheduler.events import (
    Cancel,
    Decision,
    Event,
    GiveUp,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobExpects,
    JobMoved,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryAt,
    RetryDue,
    StageDone,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.resources import Resource
from kintune.scheduler.scheduler import Scheduler
from kintune_lab.simulate.faults import NO_FAULTS, Contention, Faults
from kintune_lab.simulate.history import Ending, ScheduleHistory, SimulatedJob, Span
from kintune_lab.simulate.host_assignment import SimulatedHosts
from kintune_lab.simulate.plan import PlannedJob, PlannedStage, check

__all__ = ["Simulator"]

_TOO_MANY = 100  # events for each stage and each outage; more of them means that it goes round in circles


@dataclass
class _Job:
    plan: PlannedJob
    waits: dict[str, int]  # by stage, how many of those in its `after` are not done
    followers: dict[str, list[PlannedStage]]
    stages: dict[str, PlannedStage]
    left: int
    ready: dict[str, float] = field(default_factory=dict)
    closing: Ending | None = None
    cause: str = ""


@dataclass
class _Run:
    planned: PlannedStage
    start: Start
    since: float
    left_s: float
    rate: float
    as_of: float
    fails: bool
    version: int = 0


class Simulator:
    """Plays jobs on resources under a machine that no events were given to.

    `observe` gets every event with the decisions it led to: an auditor, or a recorder.  `interference` has, by kind of
    stage, how many times longer it takes while its host or device is overloaded,
    which only policies that waive limits do.
    """

    def __init__(
        self,
        machine: Scheduler,
        resources: Sequence[Resource],
        jobs: Sequence[PlannedJob],
        *,
        interference: Mapping[str, float] | None = None,
        faults: Faults = NO_FAULTS,
        observe: Callable[[Event, Sequence[Decision]], None] | None = None,
    ) -> None:
        check(jobs)
        self._machine = machine
        self._plans = jobs
        self._resources = resources
        self._faults = faults
        self._observe = observe or (lambda _event, _decisions: None)
        self._contention = Contention(resources, interference or {})
        self._hosts = SimulatedHosts(resources)
        self._now = 0.0
        self._issued = 0
        self._event_queue: list[tuple[float, int, Callable[[], None]]] = []
        self._jobs: dict[str, _Job] = {}
        self._runs: dict[StageKey, _Run] = {}
        self._spans: list[Span] = []
        self._done_jobs: list[SimulatedJob] = []
        self._decisions = 0

    def run(self) -> ScheduleHistory:
        """Play until no job is left, and return the history.

        Raises:
            SchedulerError: a job is left but nothing will happen any more, since a resource that it needs does not
                come back; or far more happens than there is to do.
        """
        for resource in self._resources:
            self._tell(ResourceJoined(0.0, resource))
        for plan in self._plans:
            self._at(plan.at, lambda plan=plan: self._arrive(plan))  # type: ignore[misc]
        outages = self._faults.outages(self._resources)
        for outage in outages:
            self._at(outage.at, lambda o=outage: self._lose(o.resource, o.cause))  # type: ignore[misc]
            self._at(outage.at + outage.seconds, lambda o=outage: self._return(o.resource))  # type: ignore[misc]
        expected = len(self._plans)
        for _ in range(_TOO_MANY * (len(outages) + sum(1 + len(plan.stages) for plan in self._plans))):
            if len(self._done_jobs) == expected or not self._event_queue:
                break
            self._now, _, act = heapq.heappop(self._event_queue)
            act()
        if len(self._done_jobs) < expected:
            how = "goes round in circles" if self._event_queue else "stands still"
            raise SchedulerError(
                f"the simulation {how} at {self._now:.1f} s with unfinished jobs: {', '.join(list(self._jobs)[:5])}"
            )
        return ScheduleHistory(tuple(self._spans), tuple(self._done_jobs), self._decisions)

    # what happens ---------------------------------------------------------------------------------------------------

    def _arrive(self, plan: PlannedJob) -> None:
        followers: dict[str, list[PlannedStage]] = {}
        for planned in plan.stages:
            for other in planned.stage.after:
                followers.setdefault(other, []).append(planned)
        waits = {planned.stage.id: len(planned.stage.after) for planned in plan.stages}
        stages = {planned.stage.id: planned for planned in plan.stages}
        job = self._jobs[plan.id] = _Job(plan, waits, followers, stages, len(plan.stages))
        self._tell(JobAdded(self._now, plan.id, plan.priority, plan.deadline, self._hosts.assign(plan)))
        if plan.tells:
            ahead: dict[str, int] = {}
            for planned in plan.stages:
                ahead[planned.stage.duration_key] = ahead.get(planned.stage.duration_key, 0) + 1
            self._tell(JobExpects(self._now, plan.id, ahead, plan.foretold))
        when = self._faults.cancelled_after(plan)
        if when is not None:
            self._at(self._now + when, lambda: self._cancel(job))
        self._at(self._now, lambda: self._begin(job))  # after all others that arrive at this time

    def _begin(self, job: _Job) -> None:
        for planned in job.plan.stages:
            if not job.waits[planned.stage.id]:
                self._ask(job, planned)
        self._end_if_over(job)

    def _ask(self, job: _Job, planned: PlannedStage) -> None:
        if job.closing is None:
            job.ready[planned.stage.id] = self._now
            self._tell(StageReady(self._now, planned.stage))

    def _cancel(self, job: _Job) -> None:
        if job.plan.id in self._jobs and job.closing is None:
            job.closing, job.cause = Ending.CANCELLED, "cancelled"
            self._tell(JobCancelled(self._now, job.plan.id, job.cause))
            self._end_if_over(job)

    def _lose(self, resource: str, cause: str) -> None:
        self._tell(ResourceLost(self._now, resource, cause))
        self._resettle(self._hosts.lose(resource))

    def _return(self, resource: str) -> None:
        self._tell(ResourceBack(self._now, resource))
        self._resettle(self._hosts.back(resource))

    def _resettle(self, moved: Sequence[tuple[str, str]]) -> None:
        for job, home in moved:
            self._tell(JobMoved(self._now, job, home))

    def _complete(self, key: StageKey, ended: _Run, version: int) -> None:
        run = self._runs.get(key)
        if run is not ended or run.version != version:
            return  # it was cancelled, and may run again, or it goes at another pace now
        if run.fails:
            self._leave(key, Ending.FAILED)
            self._tell(StageFailed(self._now, *key, run.start.attempt, "a simulated failure"))
            return
        self._leave(key, Ending.DONE)
        self._tell(StageDone(self._now, *key, run.start.attempt))
        job = self._jobs.get(key[0])
        if job is None:
            return
        job.left -= 1
        for follower in job.followers.get(key[1], ()):
            job.waits[follower.stage.id] -= 1
            if not job.waits[follower.stage.id]:
                self._ask(job, follower)
        self._end_if_over(job)

    def _end_if_over(self, job: _Job) -> None:
        id = job.plan.id
        if id not in self._jobs or (job.closing is None and job.left):
            return
        del self._jobs[id]
        self._hosts.leave(id)
        self._tell(JobEnded(self._now, id))
        plan = job.plan
        self._done_jobs.append(
            SimulatedJob(id, plan.priority, plan.at, self._now, job.closing or Ending.DONE, plan.path_s(), job.cause)
        )

    # what is decided ------------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        decisions = self._machine.handle(event)
        self._observe(event, decisions)
        self._decisions += len(decisions)
        for decision in decisions:
            match decision:
                case Start():
                    self._start(decision)
                case RetryAt():
                    self._retry(decision)
                case GiveUp():
                    job = self._jobs[decision.job]
                    job.closing, job.cause = Ending.FAILED, f"{decision.stage}: {decision.cause}"
                    self._at(self._now, lambda job=job: self._end_if_over(job))  # type: ignore[misc]
                case Cancel():
                    self._at(self._now, lambda d=decision: self._stopped(d))  # type: ignore[misc]

    def _start(self, start: Start) -> None:
        key = (start.job, start.stage)
        planned = self._jobs[start.job].stages[start.stage]
        fails = self._faults.fails(planned.stage, start.attempt)
        seconds = planned.seconds * (0.5 if fails else 1.0)
        self._runs[key] = _Run(planned, start, self._now, seconds, 1.0, self._now, fails)
        self._contention.enter(key, planned.stage.kind, start.placement)
        self._keep_pace(self._contention.neighbours(key))

    def _retry(self, retry: RetryAt) -> None:
        def due() -> None:
            if retry.job in self._jobs:
                self._jobs[retry.job].ready[retry.stage] = self._now
            self._tell(RetryDue(self._now, retry.job, retry.stage, retry.attempt))

        self._at(retry.when, due)

    def _stopped(self, cancel: Cancel) -> None:
        key = (cancel.job, cancel.stage)
        run = self._runs.get(key)
        if run is None or run.start.attempt != cancel.attempt:
            return
        self._leave(key, Ending.CANCELLED)
        if cancel.job in self._jobs:
            self._jobs[cancel.job].ready[cancel.stage] = self._now
        self._tell(StageFailed(self._now, *key, cancel.attempt, cancel.reason))

    # the course of time ---------------------------------------------------------------------------------------------

    def _at(self, when: float, act: Callable[[], None]) -> None:
        self._issued += 1
        heapq.heappush(self._event_queue, (when, self._issued, act))

    def _leave(self, key: StageKey, ending: Ending) -> None:
        run = self._runs.pop(key)
        others = self._contention.neighbours(key)
        self._contention.leave(key)
        self._keep_pace([other for other in others if other != key])
        stage, start = run.planned.stage, run.start
        job = self._jobs.get(stage.job)
        ready = run.since if job is None else job.ready.get(stage.id, run.since)
        self._spans.append(
            Span(
                stage.job,
                stage.id,
                stage.kind,
                start.placement,
                ready,
                run.since,
                self._now,
                run.planned.seconds,
                start.attempt,
                ending,
            )
        )

    def _keep_pace(self, keys: Sequence[StageKey]) -> None:
        """Schedule the ends of those stages anew that run faster or slower from now on, or have just begun."""
        for key in keys:
            run = self._runs[key]
            rate = 1.0 / self._contention.slowdown(key)
            if run.version and rate == run.rate:
                continue
            run.left_s -= (self._now - run.as_of) * run.rate
            run.rate, run.as_of = rate, self._now
            run.version += 1
            done = partial(self._complete, key, run, run.version)
            self._at(self._now + max(0.0, run.left_s) / rate, done)
