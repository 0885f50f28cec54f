"""One job at a time, its stages one after the other: nothing ever disturbs anything."""

from __future__ import annotations

from kintune.scheduler.policy import Policy, PolicyView, Suggestion

__all__ = ["Sequential"]


class Sequential(Policy):
    """Finishes the job that began first before it looks at the next, which is then that of the highest priority."""

    name = "sequential"

    def choose(self, view: PolicyView) -> Suggestion | None:
        """The earliest startable stage of the current job, once nothing of it runs."""
        job = view.begun_job() or view.next_job()
        if job is None or view.running(job):
            return None
        stage = view.startable(job)
        if stage is None:
            return None
        placement = view.placement(stage)
        return None if placement is None else Suggestion(stage, placement)
