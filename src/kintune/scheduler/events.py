"""What happens to the scheduler.

Every event carries `now`, in seconds of any clock that never goes back.  Stages are named by (job, stage): two jobs may
use the same id.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.core.stage import Stage
from kintune.scheduler.resources import Resource

__all__ = [
    "Event",
    "JobAdded",
    "JobCancelled",
    "JobEnded",
    "JobExpects",
    "JobMoved",
    "PriorityChanged",
    "ResourceBack",
    "ResourceJoined",
    "ResourceLost",
    "RetryDue",
    "StageDone",
    "StageDropped",
    "StageFailed",
    "StageReady",
]


class JobAdded(msgspec.Struct, frozen=True, tag="job_added"):
    """A job exists and will bring stages.

    `priority` is its weight, above 0: of what is scarce, a job of priority 2 gets twice as much as one of priority 1.
    `deadline` is the time, on the clock of `now`, at which it should be over.  `home` is the host on which its
    processes live, for good; None: each lives where its first stage is placed.
    """

    now: float
    job: str
    priority: float = 1.0
    deadline: float | None = None
    home: str | None = None


class JobExpects(msgspec.Struct, frozen=True, tag="job_expects"):
    """How many stages of each duration key the job thinks it will still ask for; replaces what it said before.

    `seconds` says of some keys how long one stage takes, as far as the job can tell: for keys that nobody has seen.
    """

    now: float
    job: str
    ahead: dict[str, int]
    seconds: dict[str, float] = {}


class JobMoved(msgspec.Struct, frozen=True, tag="job_moved"):
    """The job's processes live on this host from now on; those of its stages that are bound to them run there."""

    now: float
    job: str
    home: str


class PriorityChanged(msgspec.Struct, frozen=True, tag="priority_changed"):
    """The job's priority is another one from now on."""

    now: float
    job: str
    priority: float


class JobCancelled(msgspec.Struct, frozen=True, tag="job_cancelled"):
    """Nothing more of this job shall run: what runs is cancelled, what waits is dropped."""

    now: float
    job: str
    reason: str


class JobEnded(msgspec.Struct, frozen=True, tag="job_ended"):
    """The job is over by its own account, or its failure has been reported; it is forgotten."""

    now: float
    job: str


class StageReady(msgspec.Struct, frozen=True, gc=False, tag="stage_ready"):
    """The job wants this stage to run, once those in its `after` are done."""

    now: float
    stage: Stage


class StageDone(msgspec.Struct, frozen=True, gc=False, tag="stage_done"):
    """The running attempt of the stage has succeeded."""

    now: float
    job: str
    stage: str
    attempt: int


class StageFailed(msgspec.Struct, frozen=True, gc=False, tag="stage_failed"):
    """The running attempt of the stage has ended without success, or has ended because it was cancelled.

    A `retryable` failure is tried again within the limits; another one fails the job.
    """

    now: float
    job: str
    stage: str
    attempt: int
    cause: str
    retryable: bool = True


class StageDropped(msgspec.Struct, frozen=True, gc=False, tag="stage_dropped"):
    """The job does without this stage, which is not running; those `after` it may go on."""

    now: float
    job: str
    stage: str


class RetryDue(msgspec.Struct, frozen=True, gc=False, tag="retry_due"):
    """The time that a `RetryAt` asked for has come."""

    now: float
    job: str
    stage: str
    attempt: int


class ResourceJoined(msgspec.Struct, frozen=True, tag="resource_joined"):
    """A new host or device, usable at once.  A device's host joins before it."""

    now: float
    resource: Resource


class ResourceLost(msgspec.Struct, frozen=True, tag="resource_lost"):
    """A host (with the devices on it) or a device cannot be used for now.

    What ran on it is cancelled and tried again; that does not count as a failure of the stage.
    """

    now: float
    resource: str
    cause: str


class ResourceBack(msgspec.Struct, frozen=True, tag="resource_back"):
    """A resource that was lost can be used again."""

    now: float
    resource: str


Event: TypeAlias = (
    JobAdded
    | PriorityChanged
    | JobCancelled
    | JobEnded
    | JobExpects
    | JobMoved
    | StageReady
    | StageDone
    | StageFailed
    | StageDropped
    | RetryDue
    | ResourceJoined
    | ResourceLost
    | ResourceBack
)
