"""The states of a job, which may follow which, and the commands that each allows.  Pure."""

from __future__ import annotations

from enum import Enum

from kintune.errors import OrderError

__all__ = ["ENDS", "JobCommand", "JobStatus", "after", "may_command"]


class JobStatus(str, Enum):
    """Where a job is."""

    QUEUED = "queued"
    CHECKING = "checking"
    TUNING = "tuning"
    PACKAGING = "packaging"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        """Whether nothing more happens to the job."""
        return self in ENDS


ENDS = frozenset({JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED})
"""The states that a job does not leave."""

_FOLLOWS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.QUEUED: frozenset({JobStatus.CHECKING, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.CHECKING: frozenset(
        {JobStatus.TUNING, JobStatus.PACKAGING, JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED}
    ),
    JobStatus.TUNING: frozenset({JobStatus.PACKAGING, JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.PACKAGING: frozenset({JobStatus.DONE, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.DONE: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
}


class JobCommand(str, Enum):
    """A command to a job that is not over."""

    CANCEL = "cancel"
    FINISH = "finish"
    PRIORITY = "priority"


def after(before: JobStatus, now: JobStatus) -> JobStatus:
    """Returns the state `now`, if a job in the state `before` may come into it or is in it already.

    An orchestrator that was killed between a step and what follows from it takes the step again, so a job may go back
    to checking from wherever it was under way.

    Raises:
        OrderError: it may not.
    """
    again = now is JobStatus.CHECKING and not before.over
    if now is not before and now not in _FOLLOWS[before] and not again:
        raise OrderError(f"a job that is {before.value} cannot become {now.value}")
    return now


def may_command(state: JobStatus, command: JobCommand) -> bool:
    """Returns whether a command makes sense for a job in this state."""
    if command is JobCommand.FINISH:
        return state is JobStatus.TUNING
    return not state.over
