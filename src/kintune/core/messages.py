"""The messages between the front process and the processes it starts.

One format everywhere: tagged structs, encoded with msgpack, framed by `kintune.wire.channel`.  Payloads are bytes whose
meaning only the two ends of a stage know, so the engine can run any kind of job.

A *worker* answers `Hello`, then is given a `Begin` (the context that all items of a stage share) followed by `Item`s,
one at a time; it answers each with `ItemDone` or `ItemFailed`.  A *job process* is a worker for its own stages.
Besides, it is told what was committed (`Accept`, `StageClosed`) and offers the next stages (`OfferStages`) until it is
over (`Finished`).
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec

from kintune.core.stage import Stage

__all__ = [
    "Accept",
    "Begin",
    "Committed",
    "Finished",
    "FromJob",
    "FromWorker",
    "Hello",
    "Item",
    "ItemDone",
    "ItemFailed",
    "ItemStatus",
    "OfferStages",
    "Open",
    "Progress",
    "Shutdown",
    "StageClosed",
    "Stop",
    "ToWorker",
    "Work",
]


class ItemStatus(str, Enum):
    """How one item of a stage ended, as seen by the engine."""

    OK = "ok"
    FAILED = "failed"  # the worker answered with an error
    CRASHED = "crashed"  # the worker's process died; `payload` is empty, `cause` names the signal or exit code
    TIMED_OUT = "timed_out"  # the worker was killed for exceeding the item's time


class Work(msgspec.Struct, frozen=True):
    """A stage with the data that is needed to run it.

    `worker` is the kind of process that runs it: "job" (the job's own process), "build", "device", or any other kind
    the engine was given.  `context` is shared by all `items`.  Items of one work are independent of each other: the
    engine may spread them over as many workers as the stage was granted cores, and runs those on a device one by one.
    `item_timeout_s` bounds the running time of one item; waiting never counts.  Once the run was asked to stop, the
    items of a `droppable` work that have not begun are left out and its stage is closed early.  `files` are paths of
    the front's machine that items name; a remote process gets copies (`kintune.wire.staging`).
    """

    stage: Stage
    worker: str
    context: bytes
    items: tuple[bytes, ...]
    item_timeout_s: float
    droppable: bool = False
    files: tuple[str, ...] = ()


class Committed(msgspec.Struct, frozen=True):
    """One event of a job, committed: the `seq`-th of its run, from 0 on, at `at` seconds of active run time.

    Most events are the end of item number `index` of a stage, which ran for `seconds`.
    """

    seq: int
    at: float
    stage: str
    attempt: int
    kind: str
    index: int
    status: ItemStatus
    payload: bytes
    cause: str = ""
    seconds: float = 0.0


# front -> worker -----------------------------------------------------------------------------------------------


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Start (or rebuild) the job `job` from its specification and the events committed so far."""

    job: str
    spec: bytes
    history: tuple[Committed, ...] = ()


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The items that follow belong to this stage and share this context."""

    stage: str
    attempt: int
    kind: str
    context: bytes


class Item(msgspec.Struct, frozen=True, tag="item"):
    """Do this; answer with `ItemDone` or `ItemFailed`."""

    stage: str
    attempt: int
    index: int
    payload: bytes


class Accept(msgspec.Struct, frozen=True, tag="accept"):
    """An event of this job has been committed."""

    event: Committed


class StageClosed(msgspec.Struct, frozen=True, tag="closed"):
    """All items of a stage have been accepted, or dropped after `Stop`, `at` seconds into the run.

    `elapsed` are the seconds for which the stage held its resources.
    """

    stage: str
    attempt: int
    at: float
    elapsed: float


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Finish with the results so far; `reason` says in words why."""

    reason: str


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Exit."""


ToWorker: TypeAlias = Open | Begin | Item | Accept | StageClosed | Stop | Shutdown


# worker -> front -----------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First message of every worker: its kind, process id, and a description of itself (kind-specific bytes)."""

    worker: str
    pid: int
    version: str
    about: bytes = b""


class ItemDone(msgspec.Struct, frozen=True, tag="done"):
    """The item's result."""

    stage: str
    attempt: int
    index: int
    payload: bytes


class ItemFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The item could not be done; `cause` is one line.  `refused` means that no retry can help (wrong input).

    `unwell` means that nothing the worker does can be trusted for now: the item is to be done elsewhere, or later.
    `unwritten` means that a file could not be written, as on a full disk: the item can be done once there is room.

    With an empty `stage` it stands in the place of `Hello` or of a first `OfferStages`: the process itself was refused.
    """

    stage: str
    attempt: int
    index: int
    cause: str
    refused: bool = False
    unwell: bool = False
    unwritten: bool = False


class OfferStages(msgspec.Struct, frozen=True, tag="offer"):
    """The stages that the job requests next, in this order.

    `ahead` is the number of stages of each duration key that the job expects to request after these, None if it cannot
    tell.  `seconds` is its estimate of the duration of one stage, for some of these keys.
    """

    works: tuple[Work, ...]
    ahead: dict[str, int] | None = None
    seconds: dict[str, float] = {}


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """A progress report for display; not part of the job's committed state."""

    payload: bytes


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The job is over: `failed` or not, why (`reason`), and its summary (job-specific bytes).

    `refused` says that a failed job had a wrong input.
    """

    failed: bool
    reason: str
    summary: bytes
    refused: bool = False


FromWorker: TypeAlias = Hello | ItemDone | ItemFailed
FromJob: TypeAlias = Hello | ItemDone | ItemFailed | OfferStages | Progress | Finished
