"""The scheduler: a pure state machine that takes in events and returns decisions.

It does no I/O, reads no clock and draws no random numbers: a recorded list of events replays to the same decisions.  An
event that the state does not allow raises `SchedulerError` and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from kintune.core.backoff import BackOff
from kintune.core.stage import Demand, Stage
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
    PriorityChanged,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryAt,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.job_state import JobHistory, Phase, ScheduledJob, StageState
from kintune.scheduler.job_table import JobTable
from kintune.scheduler.policy import Policy
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.resources import Placement, Resource

__all__ = ["RetryLimits", "Scheduler"]


class RetryLimits(msgspec.Struct, frozen=True):
    """The limits of retries, and the options of the scheduler.

    A failed stage is tried up to `retries` more times: `backoff_s` seconds after the first failure, twice as long after
    the second, and so on.  A job's history has its last `history_length` events and decisions.  Unless
    `resources_may_join`, a stage that no resource could ever run fails its job at once instead of waiting for ever.
    With `bundling`, the resources of a finished stage are held for the next stage of its job, if that will need the
    same.
    """

    retries: int = 3
    backoff_s: float = 1.0
    history_length: int = 16
    resources_may_join: bool = False
    bundling: bool = False


class Scheduler:
    """Decides which stage runs where, by a policy and under limits."""

    def __init__(self, policy: Policy, limits: RetryLimits | None = None) -> None:
        self._policy = policy
        self._limits = limits or RetryLimits()
        self._pool = ResourcePool()
        self._table = JobTable(
            self._pool, policy.rank, overbooks=policy.overbooks, starvation_free=policy.starvation_free
        )
        self._resources: dict[str, Resource] = {}
        self._decisions: list[Decision] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobAdded: self._job_added,
            PriorityChanged: self._priority_changed,
            JobCancelled: self._job_cancelled,
            JobEnded: self._job_ended,
            JobExpects: self._job_expects,
            JobMoved: self._job_moved,
            StageReady: self._stage_ready,
            StageDone: self._stage_done,
            StageFailed: self._stage_failed,
            StageDropped: self._stage_dropped,
            RetryDue: self._retry_due,
            ResourceJoined: self._resource_joined,
            ResourceLost: self._resource_lost,
            ResourceBack: self._resource_back,
        }

    def handle(self, event: Event) -> list[Decision]:
        """Take in `event` and return the decisions that follow from it, in order.

        Raises:
            SchedulerError: the state does not allow the event (nothing has changed then), or the policy chose a stage
                that cannot be started.  The message ends with the recent history of the job.
        """
        before = self._table.now
        if event.now < before:
            raise SchedulerError(f"{event} lies before the event at {before}")
        self._decisions = []
        self._table.advance(event.now)
        try:
            self._handlers[type(event)](event)
        except SchedulerError:
            self._table.advance(before)
            raise
        self._start_what_the_policy_chooses()
        if self._gives_up_what_it_keeps(event):
            self._start_what_the_policy_chooses()
        return self._decisions

    def history(self, job: str) -> tuple[str, ...]:
        """Return the recent events and decisions of `job`, a line each, oldest first; empty for an unknown job."""
        state = self._table.known(job)
        return () if state is None else state.history.lines()

    # jobs -----------------------------------------------------------------------------------------------------------

    def _job_added(self, event: JobAdded) -> None:
        if self._table.known(event.job) is not None:
            raise self._error(event, event.job, "the job has been added before")
        self._check_priority(event, event.job, event.priority)
        history = JobHistory(self._limits.history_length)
        job = self._table.add_job(event, history)
        job.history.add(event.now, event)
        self._policy.job_added(job)

    def _job_expects(self, event: JobExpects) -> None:
        job = self._job(event, event.job)
        if any(count < 0 for count in event.ahead.values()):
            raise self._error(event, event.job, "nobody can expect fewer than no stages")
        if not all(0 <= seconds < float("inf") for seconds in event.seconds.values()):
            raise self._error(event, event.job, "a stage is expected to take 0 seconds or more")
        self._policy.job_expects(job, event.ahead, event.seconds)
        self._table.rank_anew(job)

    def _job_moved(self, event: JobMoved) -> None:
        job = self._job(event, event.job)
        job.history.add(event.now, event)
        job.fixed_home = event.home
        self._table.rank_anew(job)

    def _priority_changed(self, event: PriorityChanged) -> None:
        job = self._job(event, event.job)
        self._check_priority(event, event.job, event.priority)
        job.history.add(event.now, event)
        self._policy.priority_changed(job, event.priority)
        self._table.reweigh(job, event.priority)

    def _job_cancelled(self, event: JobCancelled) -> None:
        job = self._job(event, event.job)
        job.history.add(event.now, event)
        self._close(event.now, job, event.reason)

    def _job_ended(self, event: JobEnded) -> None:
        job = self._job(event, event.job)
        if job.over:
            raise self._error(event, event.job, "the job has ended before")
        job.history.add(event.now, event)
        job.over = True
        self._close(event.now, job, "the job has ended")
        self._remove_if_over(job)

    def _close(self, now: float, job: ScheduledJob, reason: str) -> None:
        self._table.close(job, reason)
        for state in job.stages.values():
            self._cancel(now, job, state, reason)

    def _cancel(self, now: float, job: ScheduledJob, state: StageState, reason: str) -> None:
        if state.phase is Phase.RUNNING:
            state.phase = Phase.CANCELLING
            self._decide(now, job, Cancel(state.stage.id, job.id, state.attempt, reason))

    def _remove_if_over(self, job: ScheduledJob) -> None:
        if job.over and not job.running:
            self._policy.job_removed(job)
            self._table.remove_job(job)

    # stages ---------------------------------------------------------------------------------------------------------

    def _stage_ready(self, event: StageReady) -> None:
        stage = event.stage
        job = self._job(event, stage.job)
        if stage.id in job.stages or stage.id in job.done:
            raise self._error(event, stage.job, "the job has asked for this stage before")
        job.history.add(event.now, event)
        if job.closing is not None:
            return
        held = job.held
        self._table.reservations.let_go(job)
        self._table.reservations.give_back(job, stage)
        self._policy.stage_ready(stage, job)
        state = self._table.add_stage(job, stage)
        if not self._limits.resources_may_join and not self._pool.could_ever(stage.demand):
            self._give_up(event.now, job, state, f"no host or device could ever run it: it demands {stage.demand}")
        elif held is not None and self._table.may_go_on(state) and self._pool.fits(held, stage.demand):
            self._start(job, state, held)

    def _stage_done(self, event: StageDone) -> None:
        job, state = self._attempt(event)
        job.history.add(event.now, event)
        placement = self._release(job, state, done=True)
        self._table.finish(job, state)
        if job.closing is None:
            self._keep_what_it_had(job, state.stage, placement)
        self._remove_if_over(job)

    def _stage_failed(self, event: StageFailed) -> None:
        job, state = self._attempt(event)
        job.history.add(event.now, event)
        resource_lost = state.phase is Phase.CANCELLING
        self._release(job, state, done=False)
        if job.closing is not None:
            self._table.forget_stage(job, state)
            self._remove_if_over(job)
            return
        state.attempt += 1
        self._table.reservations.give_back(job)  # the retry may come much later
        if not resource_lost:
            state.failures += 1
            if not event.retryable or state.failures > self._limits.retries:
                self._give_up(event.now, job, state, event.cause)
                return
            state.phase = Phase.BACKING_OFF
            if state.backoff is None:
                state.backoff = BackOff(self._limits.backoff_s)
            state.retry_at = event.now + state.backoff.next_wait()
            self._decide(event.now, job, RetryAt(state.stage.id, job.id, state.attempt, state.retry_at, event.cause))
        self._table.enqueue(job, state)

    def _release(self, job: ScheduledJob, state: StageState, *, done: bool) -> Placement:
        placement = self._table.release(job, state)
        self._policy.stage_ended(state.stage, job, self._table.now - state.since, done=done)
        self._table.rank_anew(job)
        return placement

    def _keep_what_it_had(self, job: ScheduledJob, stage: Stage, placement: Placement) -> None:
        """Hold a finished stage's placement for the job's next stage, or else keep its cores if the policy says so."""
        reservations = self._table.reservations
        if job.heads:
            return
        if self._limits.bundling:
            self._hold(job, placement, stage.then)
        if job.held or not reservations.may_keep(job, stage, placement):
            return
        if self._policy.keeps_cores(stage, job, placement, reservations.kept):
            reservations.keep(job, stage, placement)

    def _hold(self, job: ScheduledJob, placement: Placement, then: Demand | None) -> None:
        if then is None or (placement.device is None) != (then.device is None):
            return
        if placement.device is None:
            placement = Placement(placement.host, then.cores, then.memory_mb)
        if self._pool.fits(placement, then):
            self._table.reservations.hold(job, placement)

    def _give_up(self, now: float, job: ScheduledJob, state: StageState, cause: str) -> None:
        self._decide(now, job, GiveUp(state.stage.id, job.id, cause, job.history.lines()))
        self._close(now, job, cause)

    def _stage_dropped(self, event: StageDropped) -> None:
        job = self._job(event, event.job)
        state = job.stages.get(event.stage)
        if state is None or state.holds_resources:
            raise self._error(event, event.job, "the stage is not waiting")
        job.history.add(event.now, event)
        self._table.finish(job, state)

    def _retry_due(self, event: RetryDue) -> None:
        job = self._table.known(event.job)
        state = None if job is None else job.stages.get(event.stage)
        if job is None or state is None or state.phase is not Phase.BACKING_OFF or state.attempt != event.attempt:
            return  # the stage was dropped, or its job closed, before the time came
        if event.now < state.retry_at:
            raise self._error(event, event.job, f"the retry is due at {state.retry_at}")
        job.history.add(event.now, event)
        state.phase = Phase.WAITING
        self._table.refresh(job, state.stage.kind)

    # resources ------------------------------------------------------------------------------------------------------

    def _resource_joined(self, event: ResourceJoined) -> None:
        self._pool.join(event.resource)
        self._resources[event.resource.id] = event.resource
        self._table.usable_again(event.resource.id)
        self._policy.resource_joined(event.resource)

    def _resource_lost(self, event: ResourceLost) -> None:
        for job, state in self._table.evict(event.resource):
            job.history.add(event.now, event)
            self._cancel(event.now, job, state, f"{event.resource} is lost: {event.cause}")
        self._policy.resource_lost(self._resources[event.resource])

    def _resource_back(self, event: ResourceBack) -> None:
        self._pool.back(event.resource)
        self._table.usable_again(event.resource)
        self._policy.resource_back(self._resources[event.resource])

    # deciding -------------------------------------------------------------------------------------------------------

    def _start_what_the_policy_chooses(self) -> None:
        while (suggestion := self._policy.choose(self._table)) is not None:
            stage, placement = suggestion.stage, suggestion.placement
            job, state = self._table.known(stage.job), self._table.startable_state(stage)
            if job is None or state is None or not self._may_start(stage, placement):
                raise self._error(suggestion, stage.job, f"the policy {self._policy.name!r} chose what cannot start")
            self._start(job, state, placement)

    def _gives_up_what_it_keeps(self, event: Event) -> bool:
        """Release the cores kept for the event's job if the job has a stage that waits; returns whether it had any.

        Otherwise jobs that keep cores could wait for each other in a circle.
        """
        job = self._table.known(_job_of(event))
        return job is not None and bool(job.kept and job.heads) and self._table.reservations.give_up(job)

    def _may_start(self, stage: Stage, placement: Placement) -> bool:
        if self._table.home(stage) not in (None, placement.host):
            return False
        if self._policy.overbooks:
            return self._pool.fits_anyway(placement, stage.demand)
        return self._pool.fits(placement, stage.demand)

    def _start(self, job: ScheduledJob, state: StageState, placement: Placement) -> None:
        now = self._table.now
        self._table.start(job, state, placement, now)
        self._policy.stage_started(state.stage, job, placement, now)
        self._decide(now, job, Start(state.stage.id, job.id, state.attempt, placement))

    def _decide(self, now: float, job: ScheduledJob, decision: Decision) -> None:
        job.history.add(now, decision)
        self._decisions.append(decision)

    # checking -------------------------------------------------------------------------------------------------------

    def _job(self, event: Event, id: str) -> ScheduledJob:
        job = self._table.known(id)
        if job is None:
            raise self._error(event, id, "no such job")
        return job

    def _check_priority(self, event: Event, job: str, priority: float) -> None:
        if not 0 < priority < math.inf:
            raise self._error(event, job, "a priority is a number above 0")

    def _attempt(self, event: StageDone | StageFailed) -> tuple[ScheduledJob, StageState]:
        job = self._job(event, event.job)
        state = job.stages.get(event.stage)
        if state is None or not state.holds_resources:
            raise self._error(event, event.job, "the stage is not running")
        if state.attempt != event.attempt:
            raise self._error(event, event.job, f"attempt {state.attempt} of the stage is running")
        return job, state

    def _error(self, what: object, job: str, why: str) -> SchedulerError:
        return SchedulerError("\n  ".join((f"{what}: {why}; lately in job {job!r}:", *self.history(job))))


def _job_of(event: Event) -> str:
    """Return the job that the event is about; empty for events of resources."""
    if isinstance(event, StageReady):
        return event.stage.job
    return "" if isinstance(event, ResourceJoined | ResourceLost | ResourceBack) else event.job
