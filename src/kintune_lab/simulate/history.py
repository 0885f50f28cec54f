"""The history of a simulated or a recorded schedule."""

from __future__ import annotations

from enum import Enum

import msgspec

from kintune.scheduler.resources import Placement

__all__ = ["Ending", "ScheduleHistory", "SimulatedJob", "Span"]


class Ending(str, Enum):
    """How an attempt, or a job, ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Span(msgspec.Struct, frozen=True, gc=False):
    """One attempt of a stage.

    It was asked for at `ready` (or, for another attempt, could be tried again then), and had its resources from
    `start` to `end`, in seconds.  `alone_s` is what it would have taken undisturbed.
    """

    job: str
    stage: str
    kind: str
    placement: Placement
    ready: float
    start: float
    end: float
    alone_s: float
    attempt: int = 0
    ending: Ending = Ending.DONE


class SimulatedJob(msgspec.Struct, frozen=True):
    """A job: when it arrived and ended, and how; `path_s` are the seconds that it takes alone, at least."""

    job: str
    priority: float
    since: float
    end: float
    ending: Ending
    path_s: float
    cause: str = ""


class ScheduleHistory(msgspec.Struct, frozen=True):
    """A whole schedule, in the order in which things ended."""

    spans: tuple[Span, ...]
    jobs: tuple[SimulatedJob, ...]
    decisions: int = 0
