"""The loop of all policies that keep resources busy and differ in who goes first."""

from __future__ import annotations

from kintune.scheduler.policy import Policy
from kintune.scheduler.view import Suggestion, View

__all__ = ["Ranked"]


class Ranked(Policy):
    """Starts the stage with the smallest rank among those that there is room for."""

    def choose(self, view: View) -> Suggestion | None:
        """The first of all lanes' first stages that fits."""
        heads = [(found[0], number, lane) for number, lane in enumerate(view.lanes()) if (found := view.first(lane))]
        for _, _, lane in sorted(heads, key=lambda head: head[:2]):
            suggestion = view.fit(lane)
            if suggestion is not None:
                return suggestion
        return None
