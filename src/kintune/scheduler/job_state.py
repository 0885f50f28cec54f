"""What the scheduler knows of a job and of its live stages."""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from kintune.core.stage import Stage, StageKey
from kintune.scheduler.decisions import Decision
from kintune.scheduler.events import Event, StageReady
from kintune.scheduler.ready_stages import Lane
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

    `lane` is where it waits while policies may choose it, `placement` what it holds while it runs.
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
    lane: Lane | None = None
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
    what is kept for its very next stage, `kept` what is kept until it comes back, by the name of the booking.  `heads`
    has the startable stages, one of a kind at most; `homes` the host of each of its processes, unless all have one
    `fixed_home`; `busy` those at work.
    """

    id: str
    priority: float
    seq: int
    story: JobHistory
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

    def line_up(self, state: StageState) -> None:
        """Let a stage wait in its place among those of its kind."""
        line = self.waiting.get(state.stage.kind)
        if line is None:
            line = self.waiting[state.stage.kind] = deque()
        if not line or line[-1].seq < state.seq:
            line.append(state)
        else:
            line.insert(bisect.bisect_left(line, state.seq, key=_seq), state)

    def step_out(self, state: StageState) -> None:
        """Let it wait no more, if it does."""
        line = self.waiting.get(state.stage.kind)
        if not line:
            return
        if line[0] is state:
            line.popleft()
        elif state in line:
            line.remove(state)


class JobHistory:
    """The last `length` events and decisions about a job; they become lines, each with its time, when asked for."""

    __slots__ = ("_told",)

    def __init__(self, length: int) -> None:
        self._told: deque[tuple[float, Event | Decision]] = deque(maxlen=length)

    def tell(self, now: float, what: Event | Decision) -> None:
        """Add one event or decision."""
        self._told.append((now, what))

    def lines(self) -> tuple[str, ...]:
        """What is remembered, oldest first."""
        return tuple(f"{now:.3f} {_line(what)}" for now, what in self._told)


def _line(what: Event | Decision) -> str:
    name = type(what).__name__
    if isinstance(what, StageReady):
        return f"{name} stage={what.stage.id} kind={what.stage.kind}"
    facts = (
        f"{field}={value}"
        for field, value in msgspec.structs.asdict(what).items()
        if field not in ("now", "job", "story")
    )
    return " ".join((name, *facts))
