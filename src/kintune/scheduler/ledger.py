"""The jobs and their stages, with the indices that policies look through.

A stage is *live* from the moment its job asks for it until it is done or dropped.  The live stages that hold no
resources wait in one queue for each kind of their job, in the order in which they were asked for; only the first of a
queue can be startable, which is what keeps one job's stages of a kind in order, over retries too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.queue import IndexedQueue
from kintune.scheduler.resources import Placement
from kintune.scheduler.stage import Demand, Stage, StageKey
from kintune.scheduler.story import Story

__all__ = ["JobState", "Ledger", "Phase", "StageState"]


class Phase(Enum):
    """Where a live stage is."""

    WAITING = "waiting"
    BACKING_OFF = "backing off"
    RUNNING = "running"
    CANCELLING = "cancelling"


@dataclass
class StageState:
    """A live stage; `unmet` are the stages in its `after` that are not done yet."""

    stage: Stage
    seq: int
    attempt: int
    unmet: set[str]
    phase: Phase = Phase.WAITING
    failures: int = 0
    retry_at: float = 0.0

    @property
    def holds_resources(self) -> bool:
        """Whether something is booked for it."""
        return self.phase in (Phase.RUNNING, Phase.CANCELLING)


@dataclass
class JobState:
    """A job; `closing` says why nothing more of it shall start, `over` that it is forgotten once nothing of it runs."""

    id: str
    priority: int
    seq: int
    story: Story
    begun: bool = False
    closing: str | None = None
    over: bool = False
    running: int = 0
    stages: dict[str, StageState] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    homes: dict[str, str] = field(default_factory=dict)
    waiters: dict[str, list[str]] = field(default_factory=dict)
    queues: dict[str, IndexedQueue[str]] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    startable: IndexedQueue[str] = field(default_factory=IndexedQueue)


class Ledger:
    """All jobs; it is the `View` that policies get.  Only the machine calls what changes it, after checking."""

    def __init__(self, pool: ResourcePool) -> None:
        self.jobs: dict[str, JobState] = {}
        self._now = float("-inf")
        self._pool = pool
        self._issued = 0
        self._begun: IndexedQueue[str] = IndexedQueue()
        self._next: IndexedQueue[str] = IndexedQueue()
        self._by_demand: dict[Demand, IndexedQueue[StageKey]] = {}

    # what policies see ----------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the event that is being handled."""
        return self._now

    def begun_job(self) -> str | None:
        """The job that began first among those that have begun and are not over."""
        return self._begun.first()

    def next_job(self) -> str | None:
        """The job of the highest priority, then the oldest, that has something startable and has not begun."""
        return self._next.first()

    def running(self, job: str) -> int:
        """How many stages of the job hold resources."""
        return self.jobs[job].running

    def startable(self, job: str) -> Stage | None:
        """The job's earliest startable stage."""
        state = self.jobs[job]
        first = state.startable.first()
        return None if first is None else state.stages[first].stage

    def demands(self) -> Iterable[Demand]:
        """The distinct demands for which some job has a startable stage."""
        return self._by_demand.keys()

    def first(self, demand: Demand) -> Stage | None:
        """Of the startable stages with this demand, the one of the highest priority, then of the oldest job."""
        queue = self._by_demand.get(demand)
        key = None if queue is None else queue.first()
        return None if key is None else self.jobs[key[0]].stages[key[1]].stage

    def placement(self, stage: Stage) -> Placement | None:
        """Where the stage could run now; None when it must wait for resources."""
        return self._pool.place(stage.demand, self.home(stage))

    # what the machine asks ------------------------------------------------------------------------------------------

    def home(self, stage: Stage) -> str | None:
        """The host on which the process of the stage's affinity lives, if one is known and usable."""
        if stage.affinity is None:
            return None
        home = self.jobs[stage.job].homes.get(stage.affinity)
        return home if home is not None and self._pool.usable(home) else None

    def is_startable(self, stage: Stage) -> bool:
        """Whether policies may choose it."""
        job = self.jobs.get(stage.job)
        return job is not None and job.heads.get(stage.kind) == stage.id

    # what changes it ------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """The time is `now`."""
        self._now = now

    def add_job(self, id: str, priority: int, story: Story) -> JobState:
        """A new job without stages."""
        job = self.jobs[id] = JobState(id, priority, self._number(), story)
        return job

    def set_priority(self, job: JobState, priority: int) -> None:
        """Move the job and its startable stages to where the priority puts them."""
        job.priority = priority
        for stage in job.heads.values():
            self._put_startable(job, job.stages[stage])
        self._index_job(job)

    def add_stage(self, job: JobState, stage: Stage) -> StageState:
        """The job asks for a stage."""
        unmet = set(stage.after) - job.done
        state = job.stages[stage.id] = StageState(stage, self._number(), stage.attempt, unmet)
        for other in unmet:
            job.waiters.setdefault(other, []).append(stage.id)
        self.queue(job, state)
        return state

    def queue(self, job: JobState, state: StageState) -> None:
        """Let a live stage wait (again) in its place among those of its kind."""
        job.queues.setdefault(state.stage.kind, IndexedQueue()).put(state.stage.id, state.seq)
        self.refresh(job, state.stage.kind)

    def refresh(self, job: JobState, kind: str) -> None:
        """Find out anew which stage of this kind is startable."""
        first = job.queues[kind].first()
        able = first
        if first is not None:
            state = job.stages[first]
            if job.closing is not None or state.phase is not Phase.WAITING or state.unmet:
                able = None
        before = job.heads.get(kind)
        if before == able:
            return
        if before is not None:
            del job.heads[kind]
            job.startable.discard(before)
            self._discard_startable(job.stages[before].stage)
        if able is not None:
            job.heads[kind] = able
            job.startable.put(able, job.stages[able].seq)
            self._put_startable(job, job.stages[able])
        self._index_job(job)

    def start(self, job: JobState, state: StageState, placement: Placement) -> None:
        """The stage runs at `placement`."""
        stage = state.stage
        self._pool.book(stage.key, placement)
        if stage.affinity is not None and placement.host is not None:
            job.homes[stage.affinity] = placement.host
        job.queues[stage.kind].discard(stage.id)
        self.refresh(job, stage.kind)
        state.phase = Phase.RUNNING
        job.running += 1
        if not job.begun:
            job.begun = True
            self._begun.put(job.id, self._number())
            self._index_job(job)

    def release(self, job: JobState, state: StageState) -> None:
        """The stage runs no more; it is live still."""
        self._pool.release(state.stage.key)
        state.phase = Phase.WAITING
        job.running -= 1

    def finish(self, job: JobState, state: StageState) -> None:
        """The stage, which holds no resources, is live no more, and those after it may go on."""
        stage = state.stage
        job.done.add(stage.id)
        self._forget(job, stage)
        for id in job.waiters.pop(stage.id, ()):
            waiter = job.stages.get(id)
            if waiter is not None:
                waiter.unmet.discard(stage.id)
                self.refresh(job, waiter.stage.kind)

    def close(self, job: JobState, reason: str) -> None:
        """Nothing more of the job shall start: forget its stages that hold no resources."""
        job.closing = reason
        for state in [state for state in job.stages.values() if not state.holds_resources]:
            self._forget(job, state.stage)

    def forget_stage(self, job: JobState, state: StageState) -> None:
        """A stage of a closing job, which holds no resources any more."""
        self._forget(job, state.stage)

    def remove_job(self, job: JobState) -> None:
        """Forget a job of which nothing runs."""
        del self.jobs[job.id]
        self._begun.discard(job.id)
        self._next.discard(job.id)

    def _forget(self, job: JobState, stage: Stage) -> None:
        queue = job.queues.get(stage.kind)
        if queue is not None:
            queue.discard(stage.id)
            self.refresh(job, stage.kind)
            if not queue:
                del job.queues[stage.kind]
        del job.stages[stage.id]

    def _number(self) -> int:
        self._issued += 1
        return self._issued

    def _put_startable(self, job: JobState, state: StageState) -> None:
        queue = self._by_demand.setdefault(state.stage.demand, IndexedQueue())
        queue.put(state.stage.key, (-job.priority, job.seq, state.seq))

    def _discard_startable(self, stage: Stage) -> None:
        queue = self._by_demand[stage.demand]
        queue.discard(stage.key)
        if not queue:
            del self._by_demand[stage.demand]

    def _index_job(self, job: JobState) -> None:
        if not job.begun and job.startable:
            self._next.put(job.id, (-job.priority, job.seq))
        else:
            self._next.discard(job.id)
