"""The table of jobs and their stages, with the indices that policies read.

A stage is *live* from the time its job submits it until it is done or dropped.  The live stages of a job that hold no
resources wait in one queue for each kind, in order of arrival.  Only the first stage of such a queue can be startable,
so the stages of one kind of a job start in order, even when they are retried.  A process runs one stage at a time, so
at most one stage of each affinity runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from kintune.core.stage import Stage
from kintune.scheduler.events import JobAdded
from kintune.scheduler.job_state import JobHistory, Phase, ScheduledJob, StageState
from kintune.scheduler.policy import JobFacts, Suggestion
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.queue import IndexedQueue
from kintune.scheduler.ready_stages import ReadyQueue, ReadyQueues
from kintune.scheduler.reservations import Reservations
from kintune.scheduler.resources import Placement

__all__ = ["JobTable", "Rank"]

Rank = Callable[[Stage, JobFacts, float], Any]
"""The type of `Policy.rank`."""

_PATIENCE = 8  # a queue claims a host when so many other stages have taken cores that it waits for
_TURNS = 4  # at equal priorities, so many more stages of each job may start before a waiting stage goes first


class JobTable:
    """All jobs; implements `PolicyView`.  Only the scheduler calls the methods that change it, after its checks."""

    def __init__(
        self, pool: ResourcePool, rank: Rank, *, overbooks: bool = False, starvation_free: bool = False
    ) -> None:
        self._known: dict[str, ScheduledJob] = {}
        self._now = float("-inf")
        self._pool = pool
        self._rank = rank
        self._overbooks = overbooks
        self._starvation_free = starvation_free
        self._issued = 0
        self._running = 0
        self._open: dict[str, None] = {}
        self._waiting: set[str] = set()
        self._begun: IndexedQueue[str] = IndexedQueue()
        self._next: IndexedQueue[str] = IndexedQueue()
        self._queues = ReadyQueues()
        self._priorities = 0.0  # of the jobs that may still start something
        self.reservations = Reservations(pool, self._queues)

    # what policies read ---------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the event that is being handled."""
        return self._now

    @property
    def running_stages(self) -> int:
        """Number of stages that hold resources."""
        return self._running

    @property
    def open_jobs(self) -> int:
        """Number of jobs that may still start stages."""
        return len(self._open)

    @property
    def waiting_jobs(self) -> int:
        """Number of jobs with a startable stage."""
        return len(self._waiting)

    def begun_job(self) -> str | None:
        """Return the job that began first among those that have begun and are not over."""
        return self._begun.first()

    def next_job(self) -> str | None:
        """Return the job of highest priority, then the oldest, that has a startable stage and has not begun."""
        return self._next.first()

    def jobs(self) -> Iterable[str]:
        """Return the jobs that may still start stages, oldest first."""
        return list(self._open)

    def running(self, job: str) -> int:
        """Return how many stages of the job hold resources."""
        return self._known[job].running

    def startable(self, job: str) -> Stage | None:
        """Return the job's earliest startable stage."""
        first = self._known[job].first_startable()
        return None if first is None else first.stage

    def queues(self) -> Iterable[ReadyQueue]:
        """Return the ready queues that are not blocked."""
        return self._queues.ready()

    def rank(self, queue: ReadyQueue) -> Any:
        """Return the rank of the first stage of the queue; None if the queue is empty."""
        found = self._queues.first(queue)
        return None if found is None else found[0]

    def fit(self, queue: ReadyQueue) -> Suggestion | None:
        """Return a placement for the first stage of the queue; if it does not fit, block the queue and return None."""
        if not self._queues.is_open(queue):
            return None
        placement = self._place(queue)
        if placement is None:
            self._queues.block(queue, self._pool.waits_for(queue.demand, queue.home))
            return None
        found = self._queues.first(queue)
        assert found is not None  # an open queue is not empty
        return Suggestion(cast(StageState, found[1]).stage, placement)

    def placement(self, stage: Stage) -> Placement | None:
        """Return where the stage could run now; None if it must wait for resources."""
        return self._place(self._queue_of(self._known[stage.job], stage))

    # what the scheduler reads ---------------------------------------------------------------------------------------

    def known(self, job: str) -> ScheduledJob | None:
        """Return the job; None if it was never added or was removed."""
        return self._known.get(job)

    def startable_state(self, stage: Stage) -> StageState | None:
        """Return the state of a startable stage; None if the stage is not startable."""
        job = self._known.get(stage.job)
        state = None if job is None else job.heads.get(stage.kind)
        return state if state is not None and state.stage.id == stage.id else None

    def home(self, stage: Stage) -> str | None:
        """Return the host of the process of the stage's affinity, if it has one."""
        return self._known[stage.job].home(stage)

    def may_go_on(self, state: StageState) -> bool:
        """Return whether the stage is startable and no other stage must go before it."""
        return state.queue is not None and not self._queues.must_wait(state)

    # what the scheduler changes -------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Set the time of the event that is being handled."""
        self._now = now

    def add_job(self, event: JobAdded, history: JobHistory) -> ScheduledJob:
        """Add a job and return it."""
        job = ScheduledJob(
            event.job, event.priority, self._number(), history, event.now, event.deadline, fixed_home=event.home
        )
        self._known[job.id] = job
        self._open[job.id] = None
        self._priorities += job.priority
        return job

    def reweigh(self, job: ScheduledJob, priority: float) -> None:
        """Change the job's priority, and rank its startable stages again."""
        if job.id in self._open:
            self._priorities += priority - job.priority
        job.priority = priority
        self.rank_anew(job)
        self._index_job(job)

    def rank_anew(self, job: ScheduledJob) -> None:
        """Rank the job's startable stages again, after a change that their ranks or queues depend on."""
        for state in job.heads.values():
            self._put_startable(job, state)

    def add_stage(self, job: ScheduledJob, stage: Stage) -> StageState:
        """Add a stage that the job submits."""
        unmet = [id for id in stage.after if id not in job.done]
        state = StageState(stage, stage.key, self._number(), stage.attempt, len(unmet))
        job.stages[stage.id] = state
        for other in unmet:
            job.waiters.setdefault(other, []).append(state)
        self.enqueue(job, state)
        return state

    def enqueue(self, job: ScheduledJob, state: StageState) -> None:
        """Put a live stage among the waiting ones of its kind, in order of arrival."""
        job.enqueue(state)
        self.refresh(job, state.stage.kind)

    def refresh(self, job: ScheduledJob, kind: str) -> None:
        """Update which stage of this kind is startable."""
        pending = job.waiting.get(kind)
        able = pending[0] if pending else None
        if able is not None and (
            able.unmet
            or able.phase is not Phase.WAITING
            or job.closing is not None
            or (able.stage.affinity is not None and able.stage.affinity in job.busy)
        ):
            able = None
        before = job.heads.get(kind)
        if before is able:
            return
        had_any = bool(job.heads)
        if before is not None:
            del job.heads[kind]
            self._dequeue(before)
        if able is not None:
            job.heads[kind] = able
            self._put_startable(job, able)
        if bool(job.heads) is not had_any:
            self._index_job(job)

    def start(self, job: ScheduledJob, state: StageState, placement: Placement, now: float) -> None:
        """Book `placement` for the stage and mark it as running."""
        stage = state.stage
        self._pool.book(state.key, placement)
        state.placement = placement
        if self._starvation_free:
            self._count_passes(state, placement)
        if stage.affinity is not None:
            self._settle(job, stage.affinity, placement, state)
        job.dequeue(state)
        self.refresh(job, stage.kind)
        state.phase = Phase.RUNNING
        state.since = now
        job.running += 1
        self._running += 1
        if not job.begun:
            job.begun = True
            self._begun.put(job.id, self._number())
            self._next.discard(job.id)

    def release(self, job: ScheduledJob, state: StageState) -> Placement:
        """Release what the stage holds and return it; the stage is still live."""
        placement, state.placement = state.placement, None
        assert placement is not None
        self.reservations.release(state.key, placement)
        if state.stage.affinity is not None:
            job.busy.discard(state.stage.affinity)
            self._refresh_bound(job, state)
        state.phase = Phase.WAITING
        job.running -= 1
        self._running -= 1
        return placement

    def finish(self, job: ScheduledJob, state: StageState) -> None:
        """Mark a stage that holds no resources as done, and make the stages that wait for it startable."""
        job.done.add(state.stage.id)
        self.forget_stage(job, state)
        for waiter in job.waiters.pop(state.stage.id, ()):
            waiter.unmet -= 1
            if not waiter.unmet:
                self.refresh(job, waiter.stage.kind)

    def close(self, job: ScheduledJob, reason: str) -> None:
        """Let no more stages of the job start, and remove its stages that hold no resources."""
        job.closing = reason
        self.reservations.let_go(job)
        self.reservations.give_back(job)
        if job.id in self._open:
            del self._open[job.id]
            self._priorities -= job.priority
        for state in [state for state in job.stages.values() if not state.holds_resources]:
            self.forget_stage(job, state)
        self._index_job(job)

    def forget_stage(self, job: ScheduledJob, state: StageState) -> None:
        """Remove a stage that holds no resources."""
        job.dequeue(state)
        self.refresh(job, state.stage.kind)
        del job.stages[state.stage.id]

    def remove_job(self, job: ScheduledJob) -> None:
        """Remove a job of which no stage runs."""
        del self._known[job.id]
        self._begun.discard(job.id)
        self._next.discard(job.id)

    # resources ------------------------------------------------------------------------------------------------------

    def usable_again(self, resource: str) -> None:
        """Unblock the queues that wait for a resource that has joined or is back."""
        self._queues.freed(self._pool.tokens(resource))

    def evict(self, resource: str) -> list[tuple[ScheduledJob, StageState]]:
        """Mark a resource as lost; returns the stages that hold it.

        Processes on a lost host must be started on another one, so their stages are no longer bound to it.

        Raises:
            SchedulerError: the resource is unknown or lost already.
        """
        hit: list[tuple[ScheduledJob, StageState]] = []
        users = self._pool.lose(resource)
        self._queues.freed(self._pool.drop_claim(resource))
        for id, name in sorted(users):
            job = self._known[id]
            if not self.reservations.lost(job, name):
                hit.append((job, job.stages[name]))
        for job in self._known.values():
            if resource in job.homes.values():
                job.homes = {name: host for name, host in job.homes.items() if host != resource}
                self.rank_anew(job)
        return hit

    # internals ------------------------------------------------------------------------------------------------------

    def _settle(self, job: ScheduledJob, affinity: str, placement: Placement, state: StageState) -> None:
        """Note that the process of this affinity is busy, and that its host is the one of `placement`."""
        job.busy.add(affinity)
        self._refresh_bound(job, state)
        if placement.host not in (None, job.fixed_home, job.homes.get(affinity)):
            job.homes[affinity] = placement.host
            self.rank_anew(job)

    def _count_passes(self, state: StageState, placement: Placement) -> None:
        """Count the start for the queues that wait for its cores; each claims a host after `_PATIENCE` of them."""
        own = state.queue
        if own is not None:
            self._queues.started(own)
            self._queues.freed(self._pool.unclaim(own))
        if placement.host is None or placement.device is not None:
            return
        for queue, times in self._queues.passed_by(self._pool.tokens(placement.host)):
            if queue is not own and times % _PATIENCE == 0:
                self._pool.claim(queue, queue.demand, queue.home)

    def _refresh_bound(self, job: ScheduledJob, state: StageState) -> None:
        """Update the other kinds whose first stage runs in the same process, which is now busy or free."""
        for kind, pending in job.waiting.items():
            if pending and pending[0] is not state and pending[0].stage.affinity == state.stage.affinity:
                self.refresh(job, kind)

    def _dequeue(self, state: StageState) -> None:
        emptied = self._queues.discard(state)
        if emptied is not None and self._starvation_free:
            self._queues.freed(self._pool.unclaim(emptied))

    def _number(self) -> int:
        self._issued += 1
        return self._issued

    def _queue_of(self, job: ScheduledJob, stage: Stage) -> ReadyQueue:
        return self._queues.queue_for(stage.demand, job.home(stage))

    def _place(self, queue: ReadyQueue) -> Placement | None:
        if self._overbooks:
            return self._pool.place_anyway(queue.demand, queue.home)
        return self._pool.place(queue.demand, queue.home, queue)

    def _put_startable(self, job: ScheduledJob, state: StageState) -> None:
        queue = self._queue_of(job, state.stage)
        if state.queue is not None and state.queue is not queue:
            self._dequeue(state)
        patience = _PATIENCE + int(_TURNS * self._priorities / job.priority) if self._starvation_free else None
        self._queues.put(state, queue, self._rank(state.stage, job, self._now), patience)

    def _index_job(self, job: ScheduledJob) -> None:
        able = bool(job.heads) and job.closing is None
        if able:
            self._waiting.add(job.id)
        else:
            self._waiting.discard(job.id)
        if job.begun:
            return
        if able:
            self._next.put(job.id, (-job.priority, job.seq))
        else:
            self._next.discard(job.id)
