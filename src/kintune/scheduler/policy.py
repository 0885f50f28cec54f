"""The interface of scheduling policies: the base classes, and the read-only view of the scheduler's state.

`RankedPolicy` is the base of policies that start the stage with the smallest rank that fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, Protocol

import msgspec

from kintune.core.stage import Stage
from kintune.scheduler.ready_stages import ReadyQueue
from kintune.scheduler.resources import Placement, Resource

__all__ = ["JobFacts", "Policy", "PolicyView", "RankedPolicy", "Suggestion"]


class Policy:
    """Base class: chooses which stage starts next.

    A policy must be deterministic (no clock, no random numbers), so that a recorded run replays.  `choose` is called
    again after every start until it returns None.  The other methods are notifications; a policy overrides those that
    it needs.
    """

    name: str
    """The name by which users select the policy."""

    overbooks: bool = False
    """Whether stages may start where resources or an exclusive device are in use; for comparison only."""

    starvation_free: bool = False
    """Whether the scheduler bounds how long a stage waits.

    A stage that needs much of a host gets a claim on one after a number of smaller stages started before it.  A stage
    also goes first, whatever its rank, once a number of other stages with the same demand have started.
    """

    def choose(self, view: PolicyView) -> Suggestion | None:
        """Return the stage to start next, or None to wait for the next event."""
        raise NotImplementedError

    def rank(self, stage: Stage, job: JobFacts, now: float) -> Any:
        """Return the rank of a startable stage: the smallest goes first, equal ones in order of arrival.

        Ranks of one policy must be comparable with each other.  The default: higher priority, then the older job.
        """
        return (-job.priority, job.seq)

    def resource_joined(self, resource: Resource) -> None:
        """A resource has joined."""

    def resource_lost(self, resource: Resource) -> None:
        """A resource was lost."""

    def resource_back(self, resource: Resource) -> None:
        """A lost resource is available again."""

    def job_added(self, job: JobFacts) -> None:
        """A job was added."""

    def priority_changed(self, job: JobFacts, priority: float) -> None:
        """The job's priority is about to change to `priority`."""

    def job_expects(self, job: JobFacts, ahead: Mapping[str, int], seconds: Mapping[str, float]) -> None:
        """The job estimates how many stages of each duration key it will submit, and the seconds of some of them."""

    def stage_ready(self, stage: Stage, job: JobFacts) -> None:
        """A job has submitted a stage."""

    def stage_started(self, stage: Stage, job: JobFacts, placement: Placement, now: float) -> None:
        """A stage was started."""

    def stage_ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        """A stage has released its resources after `seconds`; `done` says whether it succeeded."""

    def keeps_cores(self, stage: Stage, job: JobFacts, placement: Placement, kept: int) -> bool:
        """Return whether the cores of this finished stage stay reserved until its job's process needs cores again.

        Called after `stage_ended`, for stages that run in that process.  `kept` is the number of cores that are
        reserved in this way for all jobs.
        """
        return False

    def job_removed(self, job: JobFacts) -> None:
        """A job was removed; none of its stages runs."""


class JobFacts(Protocol):
    """What a policy can read of a job."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def priority(self) -> float:
        """Its share of scarce resources, above 0."""

    @property
    def deadline(self) -> float | None:
        """The time by which it should have ended, if there is one."""

    @property
    def since(self) -> float:
        """The time at which it was added."""

    @property
    def seq(self) -> int:
        """Its position in the order of arrival."""


class PolicyView(Protocol):
    """The scheduler's state as policies see it.

    A stage is *startable* when the stages in its `after` are done, it is not waiting for a retry, and no earlier stage
    of its kind and job still waits.  `fit` and `placement` tell whether resources for it are free.
    """

    @property
    def now(self) -> float:
        """The time of the event that is being handled."""

    @property
    def running_stages(self) -> int:
        """How many stages hold resources."""

    @property
    def open_jobs(self) -> int:
        """How many jobs are neither cancelled nor over."""

    @property
    def waiting_jobs(self) -> int:
        """How many of them have a startable stage."""

    def begun_job(self) -> str | None:
        """Return the job that began first among those that have begun and are not over; amortised O(log n)."""

    def next_job(self) -> str | None:
        """Return the job of highest priority, then the oldest, that has a startable stage and has not begun.

        Amortised O(log n).
        """

    def jobs(self) -> Iterable[str]:
        """Return the jobs that are neither cancelled nor over, oldest first; O(n)."""

    def running(self, job: str) -> int:
        """Return how many stages of the job hold resources."""

    def startable(self, job: str) -> Stage | None:
        """Return the job's earliest startable stage, if there is one."""

    def queues(self) -> Iterable[ReadyQueue]:
        """Return the ready queues that are not known to lack resources, the longest known first."""

    def rank(self, queue: ReadyQueue) -> Any:
        """Return the rank of the first stage of the queue; None if the queue is empty.  Amortised O(log n)."""

    def fit(self, queue: ReadyQueue) -> Suggestion | None:
        """Return a placement for the first stage of the queue.

        None if it does not fit; `queues` then leaves the queue out until a resource that it waits for is released.
        """

    def placement(self, stage: Stage) -> Placement | None:
        """Return where the stage could run now; None if it must wait for resources."""


class Suggestion(msgspec.Struct, frozen=True):
    """A stage to start, and where."""

    stage: Stage
    placement: Placement


_BY_RANK = itemgetter(0)


class RankedPolicy(Policy):
    """Starts the stage with the smallest rank among those that fit."""

    def choose(self, view: PolicyView) -> Suggestion | None:
        """Return the first fitting stage over the heads of all ready queues, by rank; ties go to the older queue."""
        heads = [(rank, queue) for queue in view.queues() if (rank := view.rank(queue)) is not None]
        if len(heads) > 1:
            heads.sort(key=_BY_RANK)
        for _, queue in heads:
            suggestion = view.fit(queue)
            if suggestion is not None:
                return suggestion
        return None
