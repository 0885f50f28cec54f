"""The scheduler's state of a job and of its live stages."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from kintune.core.backoff import BackOff
from kintune.core.stage import Stage, StageKey
from kintune.scheduler.events import Decision, Event, StageReady
from kintune.scheduler.ready_stages import ReadyQueue
from kintune.scheduler.resources import Placement

__all__ = ["JobHistory", "Phase", "ScheduledJob", "StageState"]


class Phase(Enum):
    """The phase of a live stage."""

    WAITING = "waiting"
    BACKING_OFF = "backing off"
    RUNNING = "running"
    CANCELLING = "cancelling"


@dataclass(slots=True, eq=False)
class StageState:
    """A live stage.

    `unmet` counts the stages in its `after` that are not done yet.  `since` is the time at which it was started.
    `queue` is its ready queue while policies may choose it.  `placement` is what it holds while it runs.  `backoff`
    gives the waits before its retries, from its first failure on.
    """

    stage: Stage
    key: StageKey
    seq: int
    attempt: int
    unmet: int
    phase: Phase = Phase.WAITING
    failures: int = 0
    backoff: BackOff | None = None
    retry_at: float = 0.0
    since: float = 0.0
    queue: ReadyQueue | None = None
    ticket: int = 0
    due_ticket: int = 0
    placement: Placement | None = None

    @property
    def holds_resources(self) -> bool:
        """Whether resources are booked for it."""
        return self.phase is Phase.RUNNING or self.phase is Phase.CANCELLING


def _seq(state: StageState) -> int:
    return state.seq


@dataclass(slots=True, eq=False)
class ScheduledJob:
    """A job.

    `since` is the time at which it was added.  `begun` says that a stage of it was started.  `closing` is the reason
    why no more of its stages start, None while they may.  With `over`, the job is removed once none of its stages runs.
    `held` is the placement that is reserved for its next stage.  `kept` has the reservations that last until the job
    needs them again, by the name of the booking.

    `running` counts the stages that hold resources.  `waiting` has the other live stages by kind, in order of arrival,
    and `heads` the startable ones, at most one of each kind.  `waiters` has, by stage id, the stages that wait for that
    stage to be done.  `homes` has the host of each process by affinity, unless `fixed_home` is the host of all; `busy`
    has the affinities whose process runs a stage.
    """

    id: str
    priority: float
    seq: int
    history: JobHistory
    since: float = 0.0
    deadline: float | None = None
    fixed_home: str | None = None
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
    waiters: dict[str, list[StageState]] = field(default_factory=dict)
    waiting: dict[str, deque[StageState]] = field(default_factory=dict)
    heads: dict[str, StageState] = field(default_factory=dict)

    def first_startable(self) -> StageState | None:
        """Return the earliest of the stages that policies may choose, if there is one."""
        return min(self.heads.values(), key=_seq, default=None)

    def home(self, stage: Stage) -> str | None:
        """Return the host of the process that must run the stage; None if the stage is bound to no host."""
        return None if stage.affinity is None else self.fixed_home or self.homes.get(stage.affinity)

    def enqueue(self, state: StageState) -> None:
        """Insert the stage among the waiting ones of its kind, in order of arrival."""
        pending = self.waiting.get(state.stage.kind)
        if pending is None:
            pending = self.waiting[state.stage.kind] = deque()
        if not pending or pending[-1].seq < state.seq:
            pending.append(state)
        else:
            pending.insert(bisect.bisect_left(pending, state.seq, key=_seq), state)

    def dequeue(self, state: StageState) -> None:
        """Remove the stage from the waiting ones, if it is among them."""
        pending = self.waiting.get(state.stage.kind)
        if not pending:
            return
        if pending[0] is state:
            pending.popleft()
        elif state in pending:
            pending.remove(state)


class JobHistory:
    """The last `length` events and decisions about a job; they are formatted when `lines` is called."""

    __slots__ = ("_entries",)

    def __init__(self, length: int) -> None:
        self._entries: deque[tuple[float, Event | Decision]] = deque(maxlen=length)

    def add(self, now: float, entry: Event | Decision) -> None:
        """Add one event or decision."""
        self._entries.append((now, entry))

    def lines(self) -> tuple[str, ...]:
        """Return a line for each entry with its time, oldest first."""
        return tuple(f"{now:.3f} {_line(entry)}" for now, entry in self._entries)


def _line(entry: Event | Decision) -> str:
    name = type(entry).__name__
    if isinstance(entry, StageReady):
        return f"{name} stage={entry.stage.id} kind={entry.stage.kind}"
    facts = (
        f"{field}={value}"
        for field, value in msgspec.structs.asdict(entry).items()
        if field not in ("now", "job", "story")
    )
    return " ".join((name, *facts))
