"""Carries out what the scheduler decides about one job, and tells it what the job's processes say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial

import msgspec

from kintune.core.messages import Accept, Finished, ItemStatus, OfferStages, Open, StageClosed, Stop, Work
from kintune.errors import DamagedRecord, WireError
from kintune.scheduler.events import (
    Cancel,
    GiveUp,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobExpects,
    JobMoved,
    RetryAt,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.wire.channel import UNREADABLE
from kintune.wire.child import last_words
from kintune.wire.job_loop import JOB_WORKER
from kintune.wire.worker_loop import one_line
from kintune.workers.engine.engine_context import EngineContext
from kintune.workers.engine.job_process import JobProcess
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch, JobRun, StageRun
from kintune.workers.engine.process import Anywhere, Command
from kintune.workers.engine.recorder import Recorder
from kintune.workers.engine.remote_nodes import JobPlacement
from kintune.workers.engine.work_limits import CheckClock, memory_refusal
from kintune.workers.engine.worker_connection import ItemEnd, WorkItem
from kintune.workers.engine.worker_pool import Slot

__all__ = ["JobDriver"]

_NO_HISTORY = (DamagedRecord, WireError, KeyError, ValueError, *UNREADABLE)
"""Errors of a journal that concern one job: an event is damaged, or of a version that cannot be read here."""


class JobDriver:
    """Drives one job from its launch to its end."""

    def __init__(self, launch: JobLaunch, context: EngineContext) -> None:
        self.job = JobRun(launch)
        self._context = context
        self._process: JobProcess | None = None
        self._node: str | None = None
        self._called_off = False
        self.repeated_s = 0.0
        self._recorder = Recorder(self.job, context)
        self._check_clock = CheckClock(launch.limits)

    def begin(self) -> None:
        """Make the job known to the scheduler and start its process; a job whose past cannot be read has failed."""
        now, launch = self._context.clock(), self.job.launch
        if launch.confinement is not None:
            self._context.pool.confine(launch.job, launch.confinement)
        deadline = None if launch.deadline_s is None else now + launch.deadline_s
        self._context.tell(JobAdded(now, launch.job, launch.priority, deadline, launch.home))
        try:
            self.job.offset = self._context.journal.active_seconds(launch.job)
            history = tuple(self._context.journal.history(launch.job))
            self.job.remember(history)
        except _NO_HISTORY as error:
            self._has_no_past(error)
        else:
            self._check_clock = CheckClock(launch.limits, self.job.check_seconds(history))
            self._spawn()
            self._watch_the_check()

    def stop(self, reason: str) -> None:
        """Have the job finish with what there is: its droppable stages do not begin another item."""
        job = self.job
        if job.end is not None or job.stop_reason is not None:
            return
        job.stop_reason = reason
        self._tell_process(Stop(reason))
        for work in [work for work in job.works.values() if work.droppable]:
            stage = work.stage
            run = job.runs.get(stage.id)
            if run is not None:
                run.pending.clear()
                self._feed(run)
            elif stage.id in job.works:
                del job.works[stage.id]
                self._say_closed(stage.id, stage.attempt, elapsed=0.0)
                self._context.tell(StageDropped(self._context.clock(), job.id, stage.id))
        self._watch_for_silence()

    def call_off(self, reason: str) -> None:
        """End the job at once, without a result; what is committed stays."""
        if self.job.end is None and not self._called_off:
            self._called_off = True
            self._context.tell(JobCancelled(self._context.clock(), self.job.id, reason))
            self._conclude(JobEnding.CANCELLED, cause=reason)

    def settle(self) -> None:
        """Commit what has ended by now, and tell the job's process."""
        for event in self._recorder.commit():
            self._tell_process(Accept(event))

    # what the scheduler decides -------------------------------------------------------------------------------------

    def start(self, decision: Start) -> None:
        """Run a stage where the scheduler says."""
        work = self.job.works[decision.stage]
        now = self._context.clock()
        run = StageRun(work, decision.attempt, decision.placement, now, self.job.missing(work))
        self.job.runs[decision.stage] = run
        self.job.stopwatch.begin(now)
        self._check_clock.began(work.stage.kind)
        self._watch_the_check()
        self._context.stage_began(self.job.id, work)
        self._feed(run)

    def retry_at(self, decision: RetryAt) -> None:
        """Tell the scheduler at the time of the decision that the failed stage is due again."""

        def due() -> None:
            self._context.tell(RetryDue(self._context.clock(), decision.job, decision.stage, decision.attempt))

        self._context.log.write(f"job {self.job.id}", f"{decision.stage} failed and is tried again: {decision.cause}")
        self._context.reactor.set_alarm((decision.job, decision.stage, "retry"), decision.when, due)

    def give_up(self, decision: GiveUp) -> None:
        """End the job as failed."""
        cause = f"{decision.stage} cannot be done: {decision.cause}"
        work = self.job.works.get(decision.stage)
        if work is not None and work.worker == JOB_WORKER:
            cause = self._with_tail(cause)
        for line in decision.story:
            self._context.log.write(f"job {self.job.id}", line)
        self._conclude(JobEnding.FAILED, cause=cause, story=decision.story)

    def cancel(self, decision: Cancel) -> None:
        """Stop a stage at once, and report it as failed, so that the scheduler frees its resources."""
        run = self.job.runs.get(decision.stage)
        if run is None:
            return
        del self.job.runs[decision.stage]
        if run.work.worker == JOB_WORKER and self._process is not None and run.under_way:
            self._process.abort(decision.reason)
        self._context.pool.kill_items(run.owns)
        self._release_failed(run, decision.reason)
        self._context.feed_stalled()

    # what the job's process says ------------------------------------------------------------------------------------

    def opening(self) -> Iterable[Open | Stop]:
        """Everything committed so far, and that the job was asked to stop if it was."""
        try:
            history = tuple(self._context.journal.history(self.job.id))
        except _NO_HISTORY as error:
            self._has_no_past(error)
            return
        self.repeated_s = self.job.repeated_seconds(history)
        yield Open(self.job.id, self.job.launch.spec, history)
        if self.job.stop_reason is not None:
            yield Stop(self.job.stop_reason)

    def offered(self, offer: OfferStages) -> None:
        """Hand new stages to the scheduler, but not those that a restarted process offers again."""
        job = self.job
        offered = {work.stage.id for work in offer.works}
        if offer.ahead is not None and job.end is None:
            self._expect(offer, offer.ahead)
        for work in offer.works:
            stage = work.stage
            if job.end is not None:
                return
            if stage.id in job.closed:
                self._say_closed(stage.id, stage.attempt, elapsed=0.0)
            elif stage.id not in job.works:
                if (why := self._why_not(work)) is not None:
                    self._conclude(JobEnding.FAILED, cause=f"it offered {stage.id}, {why}")
                    return
                job.works[stage.id] = work
                self._context.tell(StageReady(self._context.clock(), job.without_the_past(stage, offered)))
        self._watch_for_silence()

    def _expect(self, offer: OfferStages, ahead: Mapping[str, int]) -> None:
        """Tell the scheduler how many stages lie ahead, by duration key: offered and not closed, and to come."""
        news = {work.stage.id: work for work in offer.works if work.stage.id not in self.job.closed}
        coming = {**self.job.works, **news}
        counts = Counter(ahead)
        counts.update(work.stage.duration_key for work in coming.values())
        self._context.tell(JobExpects(self._context.clock(), self.job.id, dict(counts), offer.seconds))

    def progressed(self, payload: bytes) -> None:
        """Pass on what is to be shown."""
        self._context.progressed(self.job.id, payload)

    def finished(self, finished: Finished) -> None:
        """The job is over by its own account."""
        self._conclude(JobEnding.FINISHED, finished=finished)

    def refused(self, cause: str) -> None:
        """The job was given something wrong; no retry can help."""
        self._conclude(JobEnding.REFUSED, cause=cause)

    def limited(self, cause: str) -> None:
        """The job took longer than it may; on a machine with less other work, the same job may succeed."""
        self._conclude(JobEnding.FAILED, cause=cause)

    def unwritten(self, cause: str) -> None:
        """A file of the job cannot be written: halt it or, on a remote host, kill and replace its process."""
        if self._node is not None and self._process is not None:
            self._process.abort(cause)
        else:
            self._conclude(JobEnding.HALTED, cause=cause)

    def not_begun(self, work_item: WorkItem) -> None:
        """Keep the item for the next process."""
        run = work_item.owner
        assert isinstance(run, StageRun)
        run.under_way -= 1
        run.pending.appendleft(work_item.item.index)
        self._context.stalled.append(partial(self._feed, run))

    def died(self, how: str) -> None:
        """Replace the process, unless it has died too often in a row."""
        job = self.job
        if job.end is not None or self._called_off:
            return
        if self._node is None or self._context.nodes.can_place(self._node):  # else its host is gone
            job.deaths += 1
        if job.deaths >= self._context.settings.job_deaths:
            cause = f"its process died {job.deaths} times in a row without getting any further: {how}"
            self._conclude(JobEnding.FAILED, cause=self._with_tail(cause))
            return
        self._spawn_again()

    def left(self) -> None:
        """The job is over and its process gone."""
        self.settle()
        self._context.nodes.leave(self.job.id)
        self._process = None  # breaks a cycle of references, so that the job's memory is freed at once
        self._context.left(self.job.id)

    def _has_no_past(self, error: Exception) -> None:
        cause = f"what was done so far cannot be read: {one_line(error)}"
        self._conclude(JobEnding.FAILED, cause=cause)  # other jobs go on

    def _why_not(self, work: Work) -> str | None:
        if work.stage.job != self.job.id:
            return f"a stage of another job, {work.stage.job!r}"
        if work.worker != JOB_WORKER and not self._context.pool.knows(work.worker):
            return f"for a {work.worker!r} worker, which this engine cannot start"
        return None

    # items ----------------------------------------------------------------------------------------------------------

    def _feed(self, run: StageRun) -> None:
        """Hand out as many items as may run at once; close the stage when none is left."""
        if self.job.runs.get(run.work.stage.id) is run and self._hand_out(run) and run.complete:
            self._close(run)

    def _hand_out(self, run: StageRun) -> bool:
        """Hand out as many items as may run at once; returns whether none had to wait for a busy process."""
        while run.wants_more:
            index = run.pending.popleft()
            run.under_way += 1
            limit_s = self.job.launch.limits.item_s
            if not self._submit(run, run.work_item(index, limit_s, partial(self._item_ended, run, index))):
                run.under_way -= 1
                run.pending.appendleft(index)
                self._context.stalled.append(partial(self._feed, run))
                return False
        return True

    def _submit(self, run: StageRun, work_item: WorkItem) -> bool:
        if run.work.worker != JOB_WORKER:
            return self._context.pool.submit(self._slot(run), work_item)
        if self._process is None or not self._process.free:
            return False
        self._process.do(work_item)
        return True

    def _slot(self, run: StageRun) -> Slot:
        """The device's worker, or any worker of the host that the stage was placed on."""
        kind, placement = run.work.worker, run.placement
        pool = self._context.pool
        if placement.device is not None:
            slot = Slot.on_device(kind, placement.device)
        else:
            slot = Slot(kind, placement.host if pool.has_own(kind, placement.host) else None)
        return pool.owned(slot, self.job.id)

    def _item_ended(self, run: StageRun, index: int, end: ItemEnd) -> None:
        run.under_way -= 1
        if self.job.runs.get(run.work.stage.id) is run:
            if end.refused:
                self.refused(end.cause)
            elif end.unwritten and run.work.worker == JOB_WORKER and self._node is not None:
                del self.job.runs[run.work.stage.id]
                self._release_failed(run, end.cause)
            elif end.unwritten:  # it is not committed, so that it is done again
                self.unwritten(end.cause)
            elif run.work.worker == JOB_WORKER and self._took_too_long(run, end):
                self.limited(self.job.launch.limits.item_refusal(run.work.stage.kind))
            elif run.work.worker == JOB_WORKER and (limit := self._memory_limit_met(end)):
                self.refused(limit)
            elif end.lost and run.work.worker == JOB_WORKER:
                del self.job.runs[run.work.stage.id]
                self._release_failed(run, f"the job's process {end.cause}")
            else:
                self._recorder.hold(run, index, end, self.settle)
                if not run.measures:  # a commit beside a measurement would disturb it
                    self._hand_out(run)
                if self._recorder.due:
                    self.settle()
                self._feed(run)
        self._context.feed_stalled()

    def _took_too_long(self, run: StageRun, end: ItemEnd) -> bool:
        """Whether an item has met its job's limit of time."""
        return end.status is ItemStatus.TIMED_OUT and self.job.launch.limits.item_s < run.work.item_timeout_s

    def _memory_limit_met(self, end: ItemEnd) -> str | None:
        """The words if an item has met its job's limit of memory, which it would meet again; else None."""
        if end.status is ItemStatus.OK:
            return None
        tail = "" if self._process is None or not end.lost else self._process.tail
        return memory_refusal(f"{end.cause} {tail}", self.job.launch.command.limits.address_space_mb)

    # stages ---------------------------------------------------------------------------------------------------------

    def _close(self, run: StageRun) -> None:
        self.settle()
        stage = run.work.stage
        del self.job.runs[stage.id], self.job.works[stage.id]
        self.job.committed.pop(stage.id, None)
        now = self._context.clock()
        self.job.stopwatch.end(now, stage.kind, run.since)
        self._say_closed(stage.id, run.attempt, elapsed=now - run.since)
        self._context.tell(StageDone(now, self.job.id, stage.id, run.attempt))
        self._watch_for_silence()

    def _say_closed(self, stage: str, attempt: int, elapsed: float) -> None:
        self.job.closed.add(stage)
        self._tell_process(StageClosed(stage, attempt, self.job.at(self._context.clock()), elapsed))

    def _release_failed(self, run: StageRun, cause: str) -> None:
        self.settle()
        now = self._context.clock()
        self.job.stopwatch.end(now, run.work.stage.kind, run.since)
        self._watch_the_check()
        self._context.tell(StageFailed(now, self.job.id, run.work.stage.id, run.attempt, cause))

    # the job's process ----------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        context, launch = self._context, self.job.launch
        command, self._process, self._node = launch.command, None, None
        placement: JobPlacement | None = None
        if isinstance(command, Anywhere):
            placement = context.nodes.place(launch.job, command, self._spawn_again, self._move)
            if placement is None:
                return
            command, self._node = placement.command, placement.command.node
            command = msgspec.structs.replace(command, collect=launch.output)
        elif isinstance(command, Command) and launch.confinement is not None:
            command = command.confined_to(launch.confinement)
        self._process = JobProcess(
            launch.job, command, self, context.reactor, context.launcher, context.settings, context.clock, launch.files
        )
        if placement is not None:
            context.tell(JobMoved(context.clock(), launch.job, placement.host))

    def _spawn_again(self) -> None:
        self._spawn()
        self._context.feed_stalled()

    def _move(self, cause: str) -> None:
        """Kill the process, which cannot stay where it runs; its successor is placed anew."""
        if self._process is not None:
            self._process.abort(cause)

    def _tell_process(self, message: Accept | StageClosed | Stop) -> None:
        if self._process is not None:
            self._process.tell(message)

    def _watch_the_check(self) -> None:
        """Have an alarm ring when the job's check will have taken too long; while it waits for resources, none does."""
        now, key = self._context.clock(), (self.job.id, "check")
        at_work = self._process is not None and self.job.end is None and bool(self.job.runs or not self.job.works)
        when = self._check_clock.alarm_at(now, at_work=at_work)
        if when is None:
            self._context.reactor.clear_alarm(key)
        else:
            self._context.reactor.set_deadline(key, when, lambda: self.limited(self.job.launch.limits.check_refusal))

    def _watch_for_silence(self) -> None:
        self._watch_the_check()
        if self._process is not None and self.job.end is None:
            self._process.expect_a_reply(not self.job.works)

    def _with_tail(self, cause: str) -> str:
        words, place = last_words("" if self._process is None else self._process.tail)
        return f"{cause}{place}; its last words:\n{words}" if words else f"{cause}{place}"

    def _conclude(
        self, ending: JobEnding, finished: Finished | None = None, cause: str = "", story: tuple[str, ...] = ()
    ) -> None:
        job, process = self.job, self._process
        if job.end is not None:
            return
        self.settle()
        now = self._context.clock()
        stale = 0 if process is None else process.stale_answers
        job.end = JobEnd(ending, finished, cause, story, job.stopwatch.read(now), stale)
        self._watch_the_check()
        self._context.tell(JobEnded(now, job.id))
        self._context.pool.release(job.id)
        if process is None:
            self.left()
        else:
            process.leave()
