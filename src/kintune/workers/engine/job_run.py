"""What the engine knows of one job, and how a job ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from kintune.core.messages import Begin, Committed, Finished, Item, ItemStatus, Work
from kintune.core.stage import Stage
from kintune.scheduler.resources import Placement
from kintune.wire.confinement import Confinement
from kintune.wire.job_loop import JOB_WORKER
from kintune.workers.engine.process import AnyCommand, Anywhere
from kintune.workers.engine.timings import StageClock, Timings
from kintune.workers.engine.work_limits import WorkLimits
from kintune.workers.engine.worker_connection import ItemEnd, WorkItem

__all__ = ["JobEnd", "JobEnding", "JobLaunch", "JobRun", "StageRun"]


class JobLaunch(msgspec.Struct, frozen=True):
    """A job to run: how its process is started, and the specification that it is opened with.

    With a `command` of type `Anywhere`, the job's process runs on a remote host, and moves when that is lost.  The
    `files` of the front that its specification names are copied there, and files that it makes are copied back if their
    paths begin with `output`.  `deadline_s` is when it should be over, in seconds from its launch; policies may take it
    into account.  `home` is the host on which its process lives, where there are others.  `repeats` lists the kinds of
    its own stages that a process does again when it is opened with their results.  `limits` bound its work.  With a
    `confinement`, its process on this machine can do no more than that says, and the workers here that do its items are
    its own, and write nothing but temporary files.
    """

    job: str
    command: AnyCommand | Anywhere
    spec: bytes
    priority: float = 1.0
    deadline_s: float | None = None
    home: str | None = None
    files: tuple[str, ...] = ()
    output: str = ""
    repeats: tuple[str, ...] = ()
    limits: WorkLimits = WorkLimits()
    confinement: Confinement | None = None


class JobEnding(str, Enum):
    """How a job ended, as the engine saw it."""

    FINISHED = "finished"  # by its own account, which may say that it failed
    REFUSED = "refused"  # something handed in is wrong; `cause` is the line for the user
    FAILED = "failed"  # a stage could not be done, or its process could not be kept alive
    HALTED = "halted"  # a file could not be written, as `cause` says; the same job can be resumed
    CANCELLED = "cancelled"  # it was called off


class JobEnd(msgspec.Struct, frozen=True):
    """How a job ended: with its `finished` message, or else with a `cause` and the lines of its recent events."""

    ending: JobEnding
    finished: Finished | None = None
    cause: str = ""
    story: tuple[str, ...] = ()
    timings: Timings = Timings()
    stale_answers: int = 0


@dataclass
class StageRun:
    """A stage that holds resources: the items not yet begun, and how many are under way."""

    work: Work
    attempt: int
    placement: Placement
    since: float
    pending: deque[int]
    under_way: int = 0

    @property
    def measures(self) -> bool:
        """Whether its items run on a device."""
        return self.placement.device is not None

    @property
    def width(self) -> int:
        """How many items may be under way at once."""
        alone = self.work.worker == JOB_WORKER or self.measures
        return 1 if alone else max(1, self.placement.cores)

    @property
    def wants_more(self) -> bool:
        """Whether another item may be begun."""
        return bool(self.pending) and self.under_way < self.width

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return not self.pending and not self.under_way

    def owns(self, work_item: WorkItem) -> bool:
        """Whether the item is one of its items."""
        return work_item.owner is self

    def work_item(self, index: int, limit_s: float, done: Callable[[ItemEnd], None]) -> WorkItem:
        """Returns the item of this index as it is given to a process, which may take its own time or `limit_s`.

        `done` is called with how it ended.
        """
        stage, timeout_s = self.work.stage, min(self.work.item_timeout_s, limit_s)
        name = f"{stage.job}/{stage.id}"  # a worker serves many jobs, whose stages may be called alike
        begin = Begin(name, self.attempt, stage.kind, self.work.context)
        item = Item(name, self.attempt, index, self.work.items[index])
        return WorkItem(self, begin, item, timeout_s, done, self.work.files)


@dataclass
class JobRun:
    """A job while it runs.

    `works` are those it has offered that are not closed, `runs` those of them that hold resources, `closed` the ids of
    the rest.  `stop_reason` says why it was asked to stop, if it was.
    """

    launch: JobLaunch
    offset: float = 0.0
    stopwatch: StageClock = field(default_factory=StageClock)
    works: dict[str, Work] = field(default_factory=dict)
    runs: dict[str, StageRun] = field(default_factory=dict)
    committed: dict[str, set[int]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    stop_reason: str | None = None
    deaths: int = 0
    end: JobEnd | None = None

    @property
    def id(self) -> str:
        """The job's name."""
        return self.launch.job

    def at(self, now: float) -> float:
        """The seconds of active run time by now, earlier sessions included."""
        return self.offset + self.stopwatch.active(now)

    def remember(self, events: Iterable[Committed]) -> None:
        """Note that the items of these events are committed, so that they do not run again."""
        for event in events:
            self.committed.setdefault(event.stage, set()).add(event.index)

    def check_seconds(self, history: Iterable[Committed]) -> float:
        """How long the stages of its check took that are in this history."""
        kinds = self.launch.limits.check_kinds
        return sum(event.seconds for event in history if event.kind in kinds)

    def repeated_seconds(self, history: Iterable[Committed]) -> float:
        """How long the stages took that a process does again when it is opened with this history."""
        kinds = self.launch.repeats
        return sum(event.seconds for event in history if event.kind in kinds and event.status is ItemStatus.OK)

    def without_the_past(self, stage: Stage, offered: Container[str]) -> Stage:
        """The stage without those in its `after` that were done in an earlier session, of which no scheduler knows."""
        after = tuple(id for id in stage.after if id in offered or id in self.works or id not in self.committed)
        return msgspec.structs.replace(stage, after=after)

    def missing(self, work: Work) -> deque[int]:
        """The items of the work for which nothing is committed; none if the job can do without them and is to stop."""
        if self.stop_reason is not None and work.droppable:
            return deque()
        have = self.committed.get(work.stage.id, ())
        return deque(index for index in range(len(work.items)) if index not in have)
