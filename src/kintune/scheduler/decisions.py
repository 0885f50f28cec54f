"""What the scheduler wants done; a driver carries it out and answers with events."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kintune.scheduler.resources import Placement

__all__ = ["Cancel", "Decision", "GiveUp", "RetryAt", "Start"]


class Start(msgspec.Struct, frozen=True, gc=False, tag="start"):
    """Run the stage there; answer with `StageDone` or `StageFailed` of this attempt."""

    stage: str
    job: str
    attempt: int
    placement: Placement


class RetryAt(msgspec.Struct, frozen=True, gc=False, tag="retry_at"):
    """Answer with `RetryDue` at the time `when`; `attempt` is the one to come, `cause` why the last one failed."""

    stage: str
    job: str
    attempt: int
    when: float
    cause: str


class GiveUp(msgspec.Struct, frozen=True, tag="give_up"):
    """The stage cannot be done, so the job has failed.  `story` tells what happened to it lately, oldest first.

    Answer with `JobEnded` when the job's process is closed.
    """

    stage: str
    job: str
    cause: str
    story: tuple[str, ...]


class Cancel(msgspec.Struct, frozen=True, gc=False, tag="cancel"):
    """Stop the running attempt; answer with `StageFailed` (or `StageDone`) when it has let go of its resources."""

    stage: str
    job: str
    attempt: int
    reason: str


Decision: TypeAlias = Start | RetryAt | GiveUp | Cancel
