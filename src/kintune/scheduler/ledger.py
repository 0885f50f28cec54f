"""The jobs and their stages, with the indices that policies look through.

A stage is *live* from the moment its job asks for it until it is done or dropped.  The live stages that hold no
resources wait in one queue for each kind of their job, in the order in which they were asked for; only the first of a
queue can be startable, which is what keeps one job's stages of a kind in order, over retries too.  A process does one
thing at a time, so of the stages of one affinity only one runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kintune.scheduler.lanes import Lane, Lanes
from kintune.scheduler.pool import ResourcePool
from kintune.scheduler.queue import IndexedQueue
from kintune.scheduler.resources import Placement
from kintune.scheduler.stage import Stage, StageKey
from kintune.scheduler.story import Story
from kintune.scheduler.view import JobFacts, Suggestion

__all__ = ["JobState", "Ledger", "Phase", "Rank", "StageState"]

Rank = Callable[[Stage, JobFacts, float], Any]
"""Where a policy puts a stage: `Policy.rank`."""


class Phase(Enum):
    """Where a live stage is."""

    WAITING = "waiting"
    BACKING_OFF = "backing off"
    RUNNING = "running"
    CANCELLING = "cancelling"


@dataclass(slots=True)
class StageState:
    """A live stage; `unmet` are the stages in its `after` that are not done yet, `since` is when it was started."""

    stage: Stage
    seq: int
    attempt: int
    unmet: set[str]
    phase: Phase = Phase.WAITING
    failures: int = 0
    retry_at: float = 0.0
    since: float = 0.0

    @property
    def holds_resources(self) -> bool:
        """Whether something is booked for it."""
        return self.phase in (Phase.RUNNING, Phase.CANCELLING)


@dataclass(slots=True)
class JobState:
    """A job.

    `closing` says why nothing more of it shall start, `over` that it is forgotten once nothing of it runs.  `held` is
    what is kept for its very next stage, `kept` what is kept until it comes back, by the names that `keeper` gives.
    """

    id: str
    priority: float
    seq: int
    story: Story
    since: float = 0.0
    deadline: float | None = None
    begun: bool = False
    closing: str | None = None
    over: bool = False
    held: Placement | None = None
    kept: dict[str, Placement] = field(default_factory=dict)
    running: int = 0
    stages: dict[str, StageState] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    homes: dict[str, str] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    waiters: dict[str, list[str]] = field(default_factory=dict)
    queues: dict[str, IndexedQueue[str]] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    startable: IndexedQueue[str] = field(default_factory=IndexedQueue)


_HELD = "(held)"  # the booking that keeps a resource for a job's next stage
_KEPT = "(kept) "  # the beginning of those that keep one until a job comes back to it
_PATIENCE = 8  # stages that may take cores that a lane waits for before it claims a host
_TURNS = 4  # how often everybody may go before somebody who waits, in equal shares, on top of that


def keeper(stage: Stage) -> str | None:
    """The name under which a job is kept what such stages run on; None for those that run anywhere."""
    if stage.demand.device is not None:
        return f"{_KEPT}{stage.demand.device}"
    return None if stage.affinity is None else f"{_KEPT}{stage.affinity}"


class Ledger:
    """All jobs; it is the `View` that policies get.  Only the machine calls what changes it, after checking."""

    def __init__(self, pool: ResourcePool, rank: Rank, *, waives: bool = False, bounded: bool = False) -> None:
        self._known: dict[str, JobState] = {}
        self._now = float("-inf")
        self._pool = pool
        self._rank = rank
        self._waives = waives
        self._bounded = bounded
        self._issued = 0
        self._running = 0
        self._open: dict[str, None] = {}
        self._waiting: set[str] = set()
        self._begun: IndexedQueue[str] = IndexedQueue()
        self._next: IndexedQueue[str] = IndexedQueue()
        self._lanes = Lanes()
        self._kept: dict[str | None, int] = {}
        self._weights = 0.0  # of the jobs that may still start something

    # what policies see ----------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the event that is being handled."""
        return self._now

    @property
    def running_stages(self) -> int:
        """How many stages hold resources."""
        return self._running

    @property
    def open_jobs(self) -> int:
        """How many jobs may still start something."""
        return len(self._open)

    @property
    def waiting_jobs(self) -> int:
        """How many of them have something startable."""
        return len(self._waiting)

    def begun_job(self) -> str | None:
        """The job that began first among those that have begun and are not over."""
        return self._begun.first()

    def next_job(self) -> str | None:
        """The job of the highest priority, then the oldest, that has something startable and has not begun."""
        return self._next.first()

    def jobs(self) -> Iterable[str]:
        """The jobs that may still start something, oldest first."""
        return list(self._open)

    def running(self, job: str) -> int:
        """How many stages of the job hold resources."""
        return self._known[job].running

    def startable(self, job: str) -> Stage | None:
        """The job's earliest startable stage."""
        state = self._known[job]
        first = state.startable.first()
        return None if first is None else state.stages[first].stage

    def lanes(self) -> Iterable[Lane]:
        """The groups of startable stages that are not known to have no room."""
        return self._lanes.open()

    def rank(self, lane: Lane) -> Any:
        """The rank of the stage of the lane that comes first; None if there is none."""
        found = self._lanes.first(lane)
        return None if found is None else found[0]

    def fit(self, lane: Lane) -> Suggestion | None:
        """Start the lane's first stage there; None when it must wait."""
        found = self._lanes.first(lane)
        if found is None or not self._lanes.is_open(lane):
            return None
        placement = self._place(lane)
        if placement is None:
            self._lanes.block(lane, self._pool.waits_for(lane.demand, lane.home), self._pool.has_claim)
            return None
        job, stage = found[1]
        return Suggestion(self._known[job].stages[stage].stage, placement)

    def placement(self, stage: Stage) -> Placement | None:
        """Where the stage could run now; None when it must wait for resources."""
        return self._place(self._lane(stage))

    # what the machine asks ------------------------------------------------------------------------------------------

    def known(self, job: str) -> JobState | None:
        """The job, unless it was never added or is forgotten."""
        return self._known.get(job)

    def home(self, stage: Stage) -> str | None:
        """The host on which the process of the stage's affinity lives, if one is known."""
        return None if stage.affinity is None else self._known[stage.job].homes.get(stage.affinity)

    def may_go_on(self, stage: Stage) -> bool:
        """Whether policies may choose it, and nobody must come before it."""
        return self.is_startable(stage) and not self._lanes.somebody_is_overdue(stage.key)

    def is_startable(self, stage: Stage) -> bool:
        """Whether policies may choose it."""
        job = self._known.get(stage.job)
        return job is not None and job.heads.get(stage.kind) == stage.id

    # what changes it ------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """The time is `now`."""
        self._now = now

    def add_job(self, id: str, priority: float, deadline: float | None, story: Story, now: float) -> JobState:
        """A new job without stages."""
        job = self._known[id] = JobState(id, priority, self._number(), story, now, deadline)
        self._open[id] = None
        self._weights += priority
        return job

    def reweigh(self, job: JobState, priority: float) -> None:
        """Move the job and its startable stages to where another priority puts them."""
        if job.id in self._open:
            self._weights += priority - job.priority
        job.priority = priority
        self.rank_anew(job)
        self._index_job(job)

    def rank_anew(self, job: JobState) -> None:
        """Something is known of the job that may change where its stages stand."""
        for stage in job.heads.values():
            self._put_startable(job, job.stages[stage])

    def add_stage(self, job: JobState, stage: Stage) -> StageState:
        """The job asks for a stage."""
        unmet = {id for id in stage.after if id not in job.done}
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
            occupied = state.stage.affinity in job.busy
            if job.closing is not None or state.phase is not Phase.WAITING or state.unmet or occupied:
                able = None
        before = job.heads.get(kind)
        if before == able:
            return
        had_any = bool(job.startable)
        if before is not None:
            del job.heads[kind]
            job.startable.discard(before)
            self._leave_lane((job.id, before))
        if able is not None:
            job.heads[kind] = able
            job.startable.put(able, job.stages[able].seq)
            self._put_startable(job, job.stages[able])
        if bool(job.startable) != had_any:
            self._index_job(job)

    def start(self, job: JobState, state: StageState, placement: Placement, now: float) -> None:
        """The stage runs at `placement`."""
        stage = state.stage
        self._pool.book(stage.key, placement)
        self._count_passes(stage, placement)
        if stage.affinity is not None:
            job.busy.add(stage.affinity)
            self._refresh_bound(job, stage)
        if stage.affinity is not None and placement.host is not None:
            settled = job.homes.get(stage.affinity) == placement.host
            job.homes[stage.affinity] = placement.host
            if not settled:
                self.rank_anew(job)
        job.queues[stage.kind].discard(stage.id)
        self.refresh(job, stage.kind)
        state.phase = Phase.RUNNING
        state.since = now
        job.running += 1
        self._running += 1
        if not job.begun:
            job.begun = True
            self._begun.put(job.id, self._number())
            self._index_job(job)

    def release(self, job: JobState, state: StageState) -> None:
        """The stage runs no more; it is live still."""
        self._freed(state.stage.key)
        if state.stage.affinity is not None:
            job.busy.discard(state.stage.affinity)
            self._refresh_bound(job, state.stage)
        state.phase = Phase.WAITING
        job.running -= 1
        self._running -= 1

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
        self.let_go(job)
        self.give_back(job)
        if job.id in self._open:
            del self._open[job.id]
            self._weights -= job.priority
        for state in [state for state in job.stages.values() if not state.holds_resources]:
            self._forget(job, state.stage)
        self._index_job(job)

    def forget_stage(self, job: JobState, state: StageState) -> None:
        """A stage of a closing job, which holds no resources any more."""
        self._forget(job, state.stage)

    def remove_job(self, job: JobState) -> None:
        """Forget a job of which nothing runs."""
        del self._known[job.id]
        self._begun.discard(job.id)
        self._next.discard(job.id)

    # resources kept for a job ---------------------------------------------------------------------------------------

    def hold(self, job: JobState, placement: Placement) -> None:
        """Keep what a stage of the job had for the one that follows."""
        job.held = placement
        self._pool.book((job.id, _HELD), placement)

    def let_go(self, job: JobState) -> None:
        """Keep nothing for the job any more."""
        if job.held is not None:
            job.held = None
            self._freed((job.id, _HELD))

    def may_keep(self, job: JobState, stage: Stage, placement: Placement) -> bool:
        """Whether what the stage had may be kept for the job: nobody is bound to the host, or has claimed it."""
        name = keeper(stage)
        if name is None or name in job.kept:
            return False
        host = placement.host
        return placement.device is not None or not (self._lanes.bound_to(host) or self._pool.is_claimed(host))

    def kept(self, device: str | None) -> int:
        """How many devices of this type, or (None) how many cores, are kept for jobs."""
        return self._kept.get(device, 0)

    def keep(self, job: JobState, stage: Stage, placement: Placement) -> None:
        """Keep what a stage of the job had until the job asks for another such stage."""
        name = keeper(stage)
        assert name is not None
        job.kept[name] = placement
        self._pool.book((job.id, name), placement)
        self._count_kept(placement, 1)

    def give_back(self, job: JobState, stage: Stage | None = None) -> None:
        """Keep nothing for such stages of the job any more, or (None) nothing at all."""
        for name in list(job.kept) if stage is None else [keeper(stage)]:
            if name in job.kept:
                self._give_back(job, name)

    def give_up(self, job: JobState) -> bool:
        """The job waits for something: keep no cores for it, and no device if it waits for one; whether any were."""
        stages = (job.stages[id].stage for id in job.heads.values())
        wants_device = any(stage.demand.device is not None for stage in stages)
        given = [name for name, placement in job.kept.items() if wants_device or placement.cores]
        for name in given:
            self._give_back(job, name)
        return bool(given)

    # resources ------------------------------------------------------------------------------------------------------

    def usable_again(self, resource: str) -> None:
        """A resource has joined or is back."""
        self._lanes.freed(self._pool.tokens(resource))

    def evict(self, resource: str) -> list[tuple[JobState, StageState]]:
        """Take a resource out of use; returns the stages that hold it.

        What lives on a lost host has to begin elsewhere, so nothing is bound to it any more.
        """
        hit: list[tuple[JobState, StageState]] = []
        for id, stage in sorted(self._pool.lose(resource)):
            job = self._known[id]
            if stage == _HELD:
                self.let_go(job)
            elif stage in job.kept:
                self._give_back(job, stage)
            else:
                hit.append((job, job.stages[stage]))
        for job in self._known.values():
            if resource in job.homes.values():
                job.homes = {name: host for name, host in job.homes.items() if host != resource}
                self.rank_anew(job)
        return hit

    # inside ---------------------------------------------------------------------------------------------------------

    def _count_passes(self, stage: Stage, placement: Placement) -> None:
        """Who waits for cores that go to others too often claims a host."""
        if not self._bounded:
            return
        own = self._lanes.of(stage.key)
        if own is not None:
            self._lanes.served(own)
            self._lanes.freed(self._pool.unclaim(own))
        if placement.host is None or placement.device is not None:
            return
        for lane, times in self._lanes.pass_by(self._pool.tokens(placement.host)):
            if lane != own and times % _PATIENCE == 0:
                self._pool.claim(lane, lane.demand, lane.home)

    def _give_back(self, job: JobState, name: str) -> None:
        self._count_kept(job.kept.pop(name), -1)
        self._freed((job.id, name))

    def _freed(self, key: StageKey) -> None:
        """Give back what is booked under this name."""
        placement = self._pool.booked(key)
        names = self._pool.release(key)
        alone = placement is not None and placement.device is None and placement.host is not None
        self._lanes.freed(names, self._pool.room(placement.host) if placement is not None and alone else None)

    def _count_kept(self, placement: Placement, sign: int) -> None:
        of, many = (None, placement.cores) if placement.device is None else (self._pool.type_of(placement.device), 1)
        self._kept[of] = self._kept.get(of, 0) + sign * many

    def _refresh_bound(self, job: JobState, stage: Stage) -> None:
        """The process of a stage is busy now, or free again: see to what else is bound to it."""
        for kind in list(job.queues):
            first = job.queues[kind].first()
            if first is not None and first != stage.id and job.stages[first].stage.affinity == stage.affinity:
                self.refresh(job, kind)

    def _leave_lane(self, stage: StageKey) -> None:
        emptied = self._lanes.discard(stage)
        if emptied is not None and self._bounded:
            self._lanes.freed(self._pool.unclaim(emptied))

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

    def _lane(self, stage: Stage) -> Lane:
        then = None if stage.then is None else stage.then.device
        return self._lanes.lane(stage.demand, self.home(stage), then)

    def _place(self, lane: Lane) -> Placement | None:
        if self._waives:
            return self._pool.place_anyway(lane.demand, lane.home)
        return self._pool.place(lane.demand, lane.home, lane)

    def _put_startable(self, job: JobState, state: StageState) -> None:
        stage = state.stage
        lane = self._lane(stage)
        if self._lanes.of(stage.key) not in (None, lane):
            self._leave_lane(stage.key)
        patience = _PATIENCE + int(_TURNS * self._weights / job.priority) if self._bounded else None
        self._lanes.put(stage.key, lane, self._rank(stage, job, self._now), patience)

    def _index_job(self, job: JobState) -> None:
        able = bool(job.startable) and job.closing is None
        if able:
            self._waiting.add(job.id)
        else:
            self._waiting.discard(job.id)
        if able and not job.begun:
            self._next.put(job.id, (-job.priority, job.seq))
        else:
            self._next.discard(job.id)
