"""The scheduler: a pure state machine, events in, decisions out.

It does no I/O, reads no clock and draws no random numbers: a recorded list of events replays to the same decisions.  An
event that the state does not allow raises `SchedulerError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kintune.errors import SchedulerError
from kintune.scheduler.decisions import Cancel, Decision, GiveUp, RetryAt, Start
from kintune.scheduler.events import (
    Event,
    JobAdded,
    JobCancelled,
    JobEnded,
    PriorityChanged,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
)
from kintune.scheduler.ledger import JobState, Ledger, Phase, StageState
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.story import Story
from kintune.scheduler.view import Policy

__all__ = ["Limits", "Machine"]


class Limits(msgspec.Struct, frozen=True):
    """What the scheduler puts up with.

    A failed stage is tried `retries` times more, `backoff_s`, twice that, four times that ... seconds later.  A job's
    story keeps its last `story_length` events.  Unless `resources_may_join`, a stage that no resource could ever run
    fails its job at once instead of waiting for ever.
    """

    retries: int = 3
    backoff_s: float = 1.0
    story_length: int = 40
    resources_may_join: bool = False


class Machine:
    """Decides which stage runs where, by a policy, under limits."""

    def __init__(self, policy: Policy, limits: Limits | None = None) -> None:
        self._policy = policy
        self._limits = limits or Limits()
        self._pool = ResourcePool()
        self._ledger = Ledger(self._pool)
        self._decisions: list[Decision] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            JobAdded: self._job_added,
            PriorityChanged: self._priority_changed,
            JobCancelled: self._job_cancelled,
            JobEnded: self._job_ended,
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
        """Take `event` in; what is to be done about it, in order.

        Raises:
            SchedulerError: the state does not allow the event (nothing has changed then), or the policy chose what
                cannot be started.  The message ends with the recent story of the job concerned.
        """
        if event.now < self._ledger.now:
            raise SchedulerError(f"{event} lies before the event at {self._ledger.now}")
        self._decisions = []
        self._handlers[type(event)](event)
        self._ledger.advance(event.now)
        self._start_what_the_policy_chooses()
        return self._decisions

    def story(self, job: str) -> tuple[str, ...]:
        """What happened to `job` lately, oldest first; empty for a job that is not known (any more)."""
        state = self._ledger.jobs.get(job)
        return () if state is None else state.story.lines()

    # jobs -----------------------------------------------------------------------------------------------------------

    def _job_added(self, event: JobAdded) -> None:
        if event.job in self._ledger.jobs:
            raise self._error(event, event.job, "the job has been added before")
        job = self._ledger.add_job(event.job, event.priority, Story(self._limits.story_length))
        job.story.tell(event.now, event)

    def _priority_changed(self, event: PriorityChanged) -> None:
        job = self._job(event, event.job)
        job.story.tell(event.now, event)
        self._ledger.set_priority(job, event.priority)

    def _job_cancelled(self, event: JobCancelled) -> None:
        job = self._job(event, event.job)
        job.story.tell(event.now, event)
        self._close(event.now, job, event.reason)

    def _job_ended(self, event: JobEnded) -> None:
        job = self._job(event, event.job)
        if job.over:
            raise self._error(event, event.job, "the job has ended before")
        job.story.tell(event.now, event)
        job.over = True
        self._close(event.now, job, "the job has ended")
        self._remove_if_over(job)

    def _close(self, now: float, job: JobState, reason: str) -> None:
        self._ledger.close(job, reason)
        for state in job.stages.values():
            self._cancel(now, job, state, reason)

    def _cancel(self, now: float, job: JobState, state: StageState, reason: str) -> None:
        if state.phase is Phase.RUNNING:
            state.phase = Phase.CANCELLING
            self._decide(now, job, Cancel(state.stage.id, job.id, state.attempt, reason))

    def _remove_if_over(self, job: JobState) -> None:
        if job.over and not job.running:
            self._ledger.remove_job(job)

    # stages ---------------------------------------------------------------------------------------------------------

    def _stage_ready(self, event: StageReady) -> None:
        stage = event.stage
        job = self._job(event, stage.job)
        if stage.id in job.stages or stage.id in job.done:
            raise self._error(event, stage.job, "the job has asked for this stage before")
        job.story.tell(event.now, event)
        if job.closing is not None:
            return
        state = self._ledger.add_stage(job, stage)
        if not self._limits.resources_may_join and not self._pool.could_ever(stage.demand):
            self._give_up(event.now, job, state, f"no host or device could ever run it: it demands {stage.demand}")

    def _stage_done(self, event: StageDone) -> None:
        job, state = self._attempt(event)
        job.story.tell(event.now, event)
        self._ledger.release(job, state)
        self._ledger.finish(job, state)
        self._remove_if_over(job)

    def _stage_failed(self, event: StageFailed) -> None:
        job, state = self._attempt(event)
        job.story.tell(event.now, event)
        resource_lost = state.phase is Phase.CANCELLING
        self._ledger.release(job, state)
        if job.closing is not None:
            self._ledger.forget_stage(job, state)
            self._remove_if_over(job)
            return
        state.attempt += 1
        if not resource_lost:
            state.failures += 1
            if not event.retryable or state.failures > self._limits.retries:
                self._give_up(event.now, job, state, event.cause)
                return
            state.phase = Phase.BACKING_OFF
            state.retry_at = event.now + self._limits.backoff_s * 2.0 ** (state.failures - 1)
            self._decide(event.now, job, RetryAt(state.stage.id, job.id, state.attempt, state.retry_at, event.cause))
        self._ledger.queue(job, state)

    def _give_up(self, now: float, job: JobState, state: StageState, cause: str) -> None:
        self._decide(now, job, GiveUp(state.stage.id, job.id, cause, job.story.lines()))
        self._close(now, job, cause)

    def _stage_dropped(self, event: StageDropped) -> None:
        job = self._job(event, event.job)
        state = job.stages.get(event.stage)
        if state is None or state.holds_resources:
            raise self._error(event, event.job, "the stage is not waiting")
        job.story.tell(event.now, event)
        self._ledger.finish(job, state)

    def _retry_due(self, event: RetryDue) -> None:
        job = self._ledger.jobs.get(event.job)
        state = None if job is None else job.stages.get(event.stage)
        if job is None or state is None or state.phase is not Phase.BACKING_OFF or state.attempt != event.attempt:
            return  # the stage was dropped, or its job closed, before the time came
        if event.now < state.retry_at:
            raise self._error(event, event.job, f"the retry is due at {state.retry_at}")
        job.story.tell(event.now, event)
        state.phase = Phase.WAITING
        self._ledger.refresh(job, state.stage.kind)

    # resources ------------------------------------------------------------------------------------------------------

    def _resource_joined(self, event: ResourceJoined) -> None:
        self._pool.join(event.resource)

    def _resource_lost(self, event: ResourceLost) -> None:
        for job_id, stage_id in sorted(self._pool.lose(event.resource)):
            job = self._ledger.jobs[job_id]
            job.story.tell(event.now, event)
            self._cancel(event.now, job, job.stages[stage_id], f"{event.resource} is lost: {event.cause}")

    def _resource_back(self, event: ResourceBack) -> None:
        self._pool.back(event.resource)

    # deciding -------------------------------------------------------------------------------------------------------

    def _start_what_the_policy_chooses(self) -> None:
        while (suggestion := self._policy.choose(self._ledger)) is not None:
            stage, placement = suggestion.stage, suggestion.placement
            home = self._ledger.home(stage) if stage.job in self._ledger.jobs else None
            if (
                not self._ledger.is_startable(stage)
                or not self._pool.fits(placement, stage.demand)
                or home not in (None, placement.host)
            ):
                raise self._error(suggestion, stage.job, f"the policy {self._policy.name!r} chose what cannot start")
            job = self._ledger.jobs[stage.job]
            state = job.stages[stage.id]
            self._ledger.start(job, state, placement)
            self._decide(self._ledger.now, job, Start(stage.id, job.id, state.attempt, placement))

    def _decide(self, now: float, job: JobState, decision: Decision) -> None:
        job.story.tell(now, decision)
        self._decisions.append(decision)

    # checking -------------------------------------------------------------------------------------------------------

    def _job(self, event: Event, id: str) -> JobState:
        job = self._ledger.jobs.get(id)
        if job is None:
            raise self._error(event, id, "no such job")
        return job

    def _attempt(self, event: StageDone | StageFailed) -> tuple[JobState, StageState]:
        job = self._job(event, event.job)
        state = job.stages.get(event.stage)
        if state is None or not state.holds_resources:
            raise self._error(event, event.job, "the stage is not running")
        if state.attempt != event.attempt:
            raise self._error(event, event.job, f"attempt {state.attempt} of the stage is running")
        return job, state

    def _error(self, what: object, job: str, why: str) -> SchedulerError:
        return SchedulerError("\n  ".join((f"{what}: {why}; lately in job {job!r}:", *self.story(job))))
