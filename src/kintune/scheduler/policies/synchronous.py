"""All jobs in lockstep: the worst case of interference."""

from __future__ import annotations

from collections import deque

from kintune.scheduler.policy import Policy, PolicyView, Suggestion

__all__ = ["Synchronous"]


class Synchronous(Policy):
    """Waits until nothing runs and every job has a startable stage, then starts one of each, overbooking resources.

    The synchronous strategy of Stiller's thesis (setup C).
    """

    name = "synchronous"
    overbooks = True

    def __init__(self) -> None:
        self._step: deque[str] = deque()

    def choose(self, view: PolicyView) -> Suggestion | None:
        """Return the next stage of the current step, or the first of a new step."""
        if not self._step and not view.running_stages and view.waiting_jobs == view.open_jobs:
            self._step.extend(view.jobs())
        while self._step:
            stage = view.startable(self._step.popleft())
            if stage is not None and (placement := view.placement(stage)) is not None:
                return Suggestion(stage, placement)
        return None
