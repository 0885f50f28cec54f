"""Every stage at once, whatever runs beside it: what happens when nobody schedules."""

from __future__ import annotations

from kintune.scheduler.policy import Policy, PolicyView, Suggestion

__all__ = ["Uncontrolled"]


class Uncontrolled(Policy):
    """Starts whatever is startable, room or not: natural interference (setup B of Stiller's thesis)."""

    name = "uncontrolled"
    waives = True

    def choose(self, view: PolicyView) -> Suggestion | None:
        """Any stage."""
        return next((found for lane in view.lanes() if (found := view.fit(lane)) is not None), None)
