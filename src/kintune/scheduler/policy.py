"""What a policy is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from kintune.core.stage import Stage
from kintune.scheduler.ready_stages import Lane
from kintune.scheduler.resources import Placement, Resource

__all__ = ["JobFacts", "Policy", "PolicyView", "Suggestion"]


class Policy:
    """Chooses between jobs; its subclasses are the files of `policies/`.

    The same events lead to the same answers, so that a recorded run replays: no clock, no random numbers.  `choose` is
    asked again after every start until it answers None.  The other methods tell what happens; a policy that learns
    from it overrides them.
    """

    name: str
    """How people call it."""

    waives: bool = False
    """Whether it books more than there is, and devices that somebody has alone: for comparison only."""

    bounded: bool = False
    """Whether nobody waits for ever.

    What is large is kept free for once enough that is small has gone before it; and whatever its rank, a stage comes
    first once others that need the same have started often enough.
    """

    def choose(self, view: PolicyView) -> Suggestion | None:
        """The stage to start next, or None to wait for the next event."""
        raise NotImplementedError

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """Where a stage that has become startable stands in its lane; smaller goes first, equal ones as they came.

        Ranks of one policy can be compared with each other.  The default: higher priority, then the older job.
        """
        return (-job.priority, job.seq)

    def joined(self, resource: Resource) -> None:
        """A resource exists."""

    def lost(self, resource: Resource) -> None:
        """A resource cannot be used for now."""

    def back(self, resource: Resource) -> None:
        """A lost resource can be used again."""

    def added(self, job: JobFacts) -> None:
        """A job exists."""

    def reweighed(self, job: JobFacts, priority: float) -> None:
        """The job's priority is about to become this one."""

    def expects(self, job: JobFacts, ahead: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """How many stages of each duration key the job will still ask for, by its own account.

        And of some keys, how long it thinks that one takes.
        """

    def asked(self, stage: Stage, job: JobFacts) -> None:
        """A job has asked for a stage."""

    def started(self, stage: Stage, job: JobFacts, placement: Placement, now: float) -> None:
        """A stage runs."""

    def ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        """A stage has given back its resources after `seconds`; `done` if it has succeeded."""

    def keeps(self, stage: Stage, job: JobFacts, placement: Placement, kept: int) -> bool:
        """Whether the cores of this stage, which is done, shall be kept until its job's process wants some again.

        Asked after `ended`, of stages that run in that process.  `kept` is how many cores are kept already, for
        whichever jobs.
        """
        return False

    def left(self, job: JobFacts) -> None:
        """A job is over, and nothing of it runs."""


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


class PolicyView(Protocol):
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
