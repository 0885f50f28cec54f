"""What a policy is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kintune.core.stage import Stage
from kintune.scheduler.resources import Placement, Resource
from kintune.scheduler.view import JobFacts, Suggestion, View

__all__ = ["Policy"]


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

    def choose(self, view: View) -> Suggestion | None:
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
