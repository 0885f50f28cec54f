"""What a policy may see: read-only, and indexed so that a look costs nothing that grows with the number of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from kintune.core.stage import Stage
from kintune.scheduler.lanes import Lane
from kintune.scheduler.resources import Placement

__all__ = ["JobFacts", "Suggestion", "View"]


class JobFacts(Protocol):
    """What a policy may know of a job."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def priority(self) -> float:
        """Its weight, above 0."""

    @property
    def deadline(self) -> float | None:
        """When it should be over."""

    @property
    def since(self) -> float:
        """When it was added."""

    @property
    def seq(self) -> int:
        """Its number in the order of arrival."""


class View(Protocol):
    """The scheduler's state as policies see it.

    A stage is *startable* when those in its `after` are done, it is not waiting for a retry, and no earlier stage of
    its kind and job still waits.  Whether resources for it are free is another question: ask `fit` or `placement`.
    """

    @property
    def now(self) -> float:
        """The time of the event that is being handled."""

    @property
    def running_stages(self) -> int:
        """How many stages hold resources."""

    @property
    def open_jobs(self) -> int:
        """How many jobs may still start something."""

    @property
    def waiting_jobs(self) -> int:
        """How many of them have something startable."""

    def begun_job(self) -> str | None:
        """The job that began first among those that have begun and are not over."""

    def next_job(self) -> str | None:
        """The job of the highest priority, then the oldest, that has something startable and has not begun."""

    def jobs(self) -> Iterable[str]:
        """The jobs that may still start something, oldest first; for policies that look at all of them."""

    def running(self, job: str) -> int:
        """How many stages of the job hold resources."""

    def startable(self, job: str) -> Stage | None:
        """The job's earliest startable stage."""

    def lanes(self) -> Iterable[Lane]:
        """The groups of startable stages that are not known to have no room, the longest known first."""

    def rank(self, lane: Lane) -> Any:
        """The rank of the stage of the lane that comes first; None if there is none."""

    def fit(self, lane: Lane) -> Suggestion | None:
        """Start the lane's first stage there; None when it must wait, and the lane is left out until it need not."""

    def placement(self, stage: Stage) -> Placement | None:
        """Where the stage could run now; None when it must wait for resources."""


class Suggestion(msgspec.Struct, frozen=True):
    """Start this stage there."""

    stage: Stage
    placement: Placement
