"""What a policy may see: read-only, and indexed so that a look costs nothing that grows with the number of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from kintune.scheduler.resources import Placement
from kintune.scheduler.stage import Demand, Stage

__all__ = ["Policy", "Suggestion", "View"]


class View(Protocol):
    """The scheduler's state as policies see it.

    A stage is *startable* when those in its `after` are done, it is not waiting for a retry, and no earlier stage of
    its kind and job still waits.  Whether resources for it are free is another question: ask `placement`.
    """

    @property
    def now(self) -> float:
        """The time of the event that is being handled."""

    def begun_job(self) -> str | None:
        """The job that began first among those that have begun and are not over."""

    def next_job(self) -> str | None:
        """The job of the highest priority, then the oldest, that has something startable and has not begun."""

    def running(self, job: str) -> int:
        """How many stages of the job hold resources."""

    def startable(self, job: str) -> Stage | None:
        """The job's earliest startable stage."""

    def demands(self) -> Iterable[Demand]:
        """The distinct demands for which some job has a startable stage."""

    def first(self, demand: Demand) -> Stage | None:
        """Of the startable stages with this demand, the one of the highest priority, then of the oldest job."""

    def placement(self, stage: Stage) -> Placement | None:
        """Where the stage could run now; None when it must wait for resources."""


class Suggestion(msgspec.Struct, frozen=True):
    """Start this stage there."""

    stage: Stage
    placement: Placement


class Policy(Protocol):
    """Chooses between jobs.  The same view gives the same answer, so that a recorded run replays."""

    @property
    def name(self) -> str:
        """How people call it."""

    def choose(self, view: View) -> Suggestion | None:
        """The stage to start next, or None to wait for the next event; asked again after each start."""
