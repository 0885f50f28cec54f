"""What the scheduler knows of a job and of its live stages."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from kintune.core.stage import Stage, StageKey
from kintune.scheduler.events import Decision, Event, StageReady
from kintune.scheduler.ready_stages import ReadyQueue
from kintune.scheduler.resources import Placement

__all__ = ["JobHistory", "Phase", "ScheduledJob", "StageState"]


class Phase(Enum):
    """Where a live stage is."""

    WAITING = "waiting"
    BACKING_OFF = "backing off"
    RUNNING = "running"
    CANCELLING = "cancelling"


@dataclass(slots=True, eq=False)
class StageState:
    """A live stage; `unmet` counts the stages in its `after` that are not done yet, `since` is when it was started.

    `queue` is where it waits while policies may choose it, `placement` entry it holds while it runs.
    """

    stage: Stage
    key: StageKey
    seq: int
    attempt: int
    unmet: int
    phase: Phase = Phase.WAITING
    failures: int = 0
    retry_at: float = 0.0
    since: float = 0.0
    queue: ReadyQueue | None = None
    ticket: int = 0
    due_ticket: int = 0
    placement: Placement | None = None

    @property
    def holds_resources(self) -> bool:
        """Whether something is booked for it."""
        return self.phase is Phase.RUNNING or self.phase is Phase.CANCELLING


def _seq(state: StageState) -> int:
    return state.seq


@dataclass(slots=True, eq=False)
class ScheduledJob:
    """A job.

    `closing` says why nothing more of it shall start, `over` that it is forgotten once nothing of it runs.  `held` is
    entry is kept for its very next stage, `kept` entry is kept until it comes back, by the name of the booking.
    `heads` has the startable stages, one of a kind at most; `homes` the host of each of its processes, unless all
    have one `fixed_home`; `busy` those at work.
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
        """The earliest of the stages that policies may choose."""
        return min(self.heads.values(), key=_seq, default=None)

    def home(self, stage: Stage) -> str | None:
        """The host on which the process that must run the stage lives, if it is bound to one."""
        return None if stage.affinity is None else self.fixed_home or self.homes.get(stage.affinity)

    def enqueue(self, state: StageState) -> None:
        """Let a stage wait in its place among those of its kind."""
        pending = self.waiting.get(state.stage.kind)
        if pending is None:
            pending = self.waiting[state.stage.kind] = deque()
        if not pending or pending[-1].seq < state.seq:
            pending.append(state)
        else:
            pending.insert(bisect.bisect_left(pending, state.seq, key=_seq), state)

    def dequeue(self, state: StageState) -> None:
        """Let it wait no more, if it does."""
        pending = self.waiting.get(state.stage.kind)
        if not pending:
            return
        if pending[0] is state:
            pending.popleft()
        elif state in pending:
            pending.remove(state)


class JobHistory:
    """The last `length` events and decisions about a job; they become lines, each with its time, when asked for."""

    __slots__ = ("_entries",)

    def __init__(self, length: int) -> None:
        self._entries: deque[tuple[float, Event | Decision]] = deque(maxlen=length)

    def add(self, now: float, entry: Event | Decision) -> None:
        """Add one event or decision."""
        self._entries.append((now, entry))

    def lines(self) -> tuple[str, ...]:
        """What is remembered, oldest first."""
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
