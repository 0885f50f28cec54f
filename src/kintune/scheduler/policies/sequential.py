"""One job at a time and one stage at a time: no interference."""

from __future__ import annotations

from kintune.scheduler.policy import Policy, PolicyView, Suggestion

__all__ = ["Sequential"]


class Sequential(Policy):
    """Finishes the job that began first, then begins the job of highest priority."""

    name = "sequential"

    def choose(self, view: PolicyView) -> Suggestion | None:
        """Return the earliest startable stage of the current job, once no stage of it runs."""
        job = view.begun_job() or view.next_job()
        if job is None or view.running(job):
            return None
        stage = view.startable(job)
        if stage is None:
            return None
        placement = view.placement(stage)
        return None if placement is None else Suggestion(stage, placement)
