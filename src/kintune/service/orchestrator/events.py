"""What the orchestrator tells whoever listens; it may be lost, since the database has the truth."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.core.report import ProgressReport
from kintune.scheduler.resources import Placement
from kintune.service.job_status import JobStatus

__all__ = [
    "Changed",
    "EventTally",
    "News",
    "Poke",
    "Progressed",
    "StageBegan",
    "StageEnded",
    "Standing",
    "Standings",
    "decode_news",
    "encode",
]


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """A job has come into another state."""

    job: str
    state: JobStatus
    reason: str = ""


class Progressed(msgspec.Struct, frozen=True, tag="progressed"):
    """Where a job's search stands."""

    job: str
    report: ProgressReport


class EventTally(msgspec.Struct, frozen=True):
    """How many candidates a stage has measured, and how many of them were disturbed and timed again."""

    measured: int = 0
    disturbed: int = 0

    def plus(self, other: EventTally) -> EventTally:
        """Both together."""
        return EventTally(self.measured + other.measured, self.disturbed + other.disturbed)


class StageBegan(msgspec.Struct, frozen=True, tag="stage_began"):
    """A stage has its resources; `at` are seconds since 1970."""

    job: str
    stage: str
    kind: str
    placement: Placement
    at: float


class StageEnded(msgspec.Struct, frozen=True, tag="stage_ended"):
    """It has given them back."""

    job: str
    stage: str
    at: float
    tally: EventTally = EventTally()


class Standing(msgspec.Struct, frozen=True):
    """A host or a device: its type or its cores (`what`), and why nothing runs there ("" if it can), since when."""

    id: str
    kind: str
    what: str
    lost: str
    since: float


class Standings(msgspec.Struct, frozen=True, tag="standings"):
    """All hosts and devices as they stand now; who comes to listen is told the latest first.  It is about no job."""

    resources: tuple[Standing, ...]
    job: str = ""


News: TypeAlias = Changed | Progressed | StageBegan | StageEnded | Standings


class Poke(msgspec.Struct, frozen=True):
    """The one thing that is said to the orchestrator: look into the database, something is new."""


_decoder: msgspec.msgpack.Decoder[News] = msgspec.msgpack.Decoder(News)


def encode(news: News | Poke) -> bytes:
    """As bytes."""
    return msgspec.msgpack.encode(news)


def decode_news(data: bytes) -> News:
    """From bytes; raises msgspec.MsgspecError for anything else."""
    return _decoder.decode(data)
