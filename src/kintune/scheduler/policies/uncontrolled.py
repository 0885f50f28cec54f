"""No scheduling: every stage starts at once."""

from __future__ import annotations

from kintune.scheduler.policy import Policy, PolicyView, Suggestion

__all__ = ["Uncontrolled"]


class Uncontrolled(Policy):
    """Starts every startable stage, overbooking resources: natural interference (setup B of Stiller's thesis)."""

    name = "uncontrolled"
    overbooks = True

    def choose(self, view: PolicyView) -> Suggestion | None:
        """Return any startable stage."""
        return next((found for queue in view.queues() if (found := view.fit(queue)) is not None), None)
