"""All jobs in step, each stage of all of them at once: the worst case, which forces them to disturb each other."""

from __future__ import annotations

from collections import deque

from kintune.scheduler.policy import Policy, PolicyView, Suggestion

__all__ = ["Synchronous"]


class Synchronous(Policy):
    """Waits until nothing runs and every job has something to start, then starts one stage of each, room or not.

    The synchronous strategy of Stiller's thesis (setup C).
    """

    name = "synchronous"
    waives = True

    def __init__(self) -> None:
        self._step: deque[str] = deque()

    def choose(self, view: PolicyView) -> Suggestion | None:
        """The next stage of the step that has begun, or the first of a new step."""
        if not self._step and not view.running_stages and view.waiting_jobs == view.open_jobs:
            self._step.extend(view.jobs())
        open_jobs = set(view.jobs()) if self._step else ()
        while self._step:
            job = self._step.popleft()
            stage = view.startable(job) if job in open_jobs else None
            placement = None if stage is None else view.placement(stage)
            if stage is not None and placement is not None:
                return Suggestion(stage, placement)
        return None
