"""The scheduler's messages: events go in, decisions come out, and a recording holds both as lines of JSON.

Every event carries `now`, the seconds of a clock that never goes back.  A stage is identified by (job, stage), so two
jobs may use the same stage id.  A recording is one header line and then a line for each event with its decisions;
replaying the events gives the same decisions.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.core.stage import Stage
from kintune.scheduler.resources import Placement, Resource

__all__ = [
    "RECORDING_VERSION",
    "Cancel",
    "Decision",
    "Event",
    "GiveUp",
    "JobAdded",
    "JobCancelled",
    "JobEnded",
    "JobExpects",
    "JobMoved",
    "PriorityChanged",
    "RecordedStep",
    "ResourceBack",
    "ResourceJoined",
    "ResourceLost",
    "RetryAt",
    "RetryDue",
    "ScheduleHeader",
    "ScheduleLine",
    "StageDone",
    "StageDropped",
    "StageFailed",
    "StageReady",
    "Start",
    "decode_line",
    "encode_line",
]


class JobAdded(msgspec.Struct, frozen=True, tag="job_added"):
    """A job was added and will submit stages.

    `priority` is its share of scarce resources, above 0: a job of priority 2 gets twice as much as one of priority 1.
    `deadline` is the time, on the clock of `now`, by which the job should have ended.  `home` is the host on which all
    its processes run; with None, each process runs on the host where its first stage was placed.
    """

    now: float
    job: str
    priority: float = 1.0
    deadline: float | None = None
    home: str | None = None


class JobExpects(msgspec.Struct, frozen=True, tag="job_expects"):
    """The job estimates how many more stages of each duration key it will submit; replaces its earlier estimate.

    `seconds` is the job's estimate of the duration of one stage, for keys whose stages were never measured.
    """

    now: float
    job: str
    ahead: dict[str, int]
    seconds: dict[str, float] = {}


class JobMoved(msgspec.Struct, frozen=True, tag="job_moved"):
    """The job's processes moved to this host; stages with an affinity to them run there from now on."""

    now: float
    job: str
    home: str


class PriorityChanged(msgspec.Struct, frozen=True, tag="priority_changed"):
    """The job's priority has changed to `priority`."""

    now: float
    job: str
    priority: float


class JobCancelled(msgspec.Struct, frozen=True, tag="job_cancelled"):
    """Cancel the running stages of the job and drop its waiting ones."""

    now: float
    job: str
    reason: str


class JobEnded(msgspec.Struct, frozen=True, tag="job_ended"):
    """The job has finished, or its failure was reported; the scheduler removes it."""

    now: float
    job: str


class StageReady(msgspec.Struct, frozen=True, gc=False, tag="stage_ready"):
    """The job submits a stage, which may start once the stages in its `after` are done."""

    now: float
    stage: Stage


class StageDone(msgspec.Struct, frozen=True, gc=False, tag="stage_done"):
    """The running attempt of the stage has succeeded."""

    now: float
    job: str
    stage: str
    attempt: int


class StageFailed(msgspec.Struct, frozen=True, gc=False, tag="stage_failed"):
    """The running attempt of the stage has failed, or has ended because it was cancelled.

    A `retryable` failure is retried within the limits; any other failure fails the job.
    """

    now: float
    job: str
    stage: str
    attempt: int
    cause: str
    retryable: bool = True


class StageDropped(msgspec.Struct, frozen=True, gc=False, tag="stage_dropped"):
    """The job withdraws a stage that is not running; stages that wait for it treat it as done."""

    now: float
    job: str
    stage: str


class RetryDue(msgspec.Struct, frozen=True, gc=False, tag="retry_due"):
    """The time given in a `RetryAt` decision has come."""

    now: float
    job: str
    stage: str
    attempt: int


class ResourceJoined(msgspec.Struct, frozen=True, tag="resource_joined"):
    """A new host or device that is usable at once, or a lost one that is back with another size or type.

    The host of a device must have joined before the device.
    """

    now: float
    resource: Resource


class ResourceLost(msgspec.Struct, frozen=True, tag="resource_lost"):
    """A host (with the devices on it) or a device is unavailable.

    Its running stages are cancelled and retried; this does not count as a failure of the stages.
    """

    now: float
    resource: str
    cause: str


class ResourceBack(msgspec.Struct, frozen=True, tag="resource_back"):
    """A lost resource is available again, as it was."""

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


class Start(msgspec.Struct, frozen=True, gc=False, tag="start"):
    """Run the stage at `placement`; the driver answers with `StageDone` or `StageFailed` for this attempt."""

    stage: str
    job: str
    attempt: int
    placement: Placement


class RetryAt(msgspec.Struct, frozen=True, gc=False, tag="retry_at"):
    """The driver sends `RetryDue` at the time `when`; `attempt` is the next one, `cause` why the last one failed."""

    stage: str
    job: str
    attempt: int
    when: float
    cause: str


class GiveUp(msgspec.Struct, frozen=True, tag="give_up"):
    """The stage has failed for good, and so has the job.  `story` lists the job's latest events, oldest first.

    The driver sends `JobEnded` once the job's process is closed.
    """

    stage: str
    job: str
    cause: str
    story: tuple[str, ...]


class Cancel(msgspec.Struct, frozen=True, gc=False, tag="cancel"):
    """Stop the running attempt; the driver sends `StageFailed` (or `StageDone`) once its resources are free."""

    stage: str
    job: str
    attempt: int
    reason: str


Decision: TypeAlias = Start | RetryAt | GiveUp | Cancel


RECORDING_VERSION = 1
"""Version of the format of recordings."""


class ScheduleHeader(msgspec.Struct, frozen=True, tag="schedule"):
    """The first line of a recording: the policy and limits that were used, and the display names of the jobs."""

    policy: str
    bundling: bool = False
    names: dict[str, str] = {}
    version: int = RECORDING_VERSION


class RecordedStep(msgspec.Struct, frozen=True, tag="step"):
    """One event and the decisions that it led to."""

    event: Event
    decisions: tuple[Decision, ...] = ()


ScheduleLine: TypeAlias = ScheduleHeader | RecordedStep

_encoder = msgspec.json.Encoder()

_decoder: msgspec.json.Decoder[ScheduleLine] = msgspec.json.Decoder(ScheduleLine)


def encode_line(line: ScheduleLine) -> bytes:
    """Return the line as JSON with a newline at the end."""
    return _encoder.encode(line) + b"\n"


def decode_line(text: bytes) -> ScheduleLine:
    """Decode one line of a recording.

    Raises:
        msgspec.MsgspecError: it is not a valid line.
    """
    return _decoder.decode(text)
