"""The loop of all policies that keep resources busy and differ in who goes first."""

from __future__ import annotations

from operator import itemgetter

from kintune.scheduler.policy import Policy, PolicyView, Suggestion

__all__ = ["Ranked"]

_BY_RANK = itemgetter(0)


class Ranked(Policy):
    """Starts the stage with the smallest rank among those that there is room for."""

    def choose(self, view: PolicyView) -> Suggestion | None:
        """The first of all lanes' first stages that fits; of equals, that of the lane known longest."""
        heads = [(rank, lane) for lane in view.lanes() if (rank := view.rank(lane)) is not None]
        if len(heads) > 1:
            heads.sort(key=_BY_RANK)
        for _, lane in heads:
            suggestion = view.fit(lane)
            if suggestion is not None:
                return suggestion
        return None
