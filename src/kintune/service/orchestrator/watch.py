"""Tells which stages run where, from the scheduler's own events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kintune.scheduler.decisions import Decision, Start
from kintune.scheduler.events import Event, StageDone, StageFailed
from kintune.scheduler.stage import StageKey
from kintune.service.orchestrator.news import News, StageBegan, StageEnded, Tally

__all__ = ["Watch"]


class Watch:
    """An observer of the engine.

    Args:
        job_of: the job whose run this is; "" for work of the service itself.
        now: seconds since 1970.
        publish: tells whoever listens.
        tally: what was measured in a stage that is over.
    """

    def __init__(
        self,
        job_of: Callable[[str], str],
        now: Callable[[], float],
        publish: Callable[[News], None],
        tally: Callable[[StageKey], Tally],
    ) -> None:
        self._job_of = job_of
        self._now = now
        self._tally = tally
        self._publish = publish
        self._running: dict[StageKey, str] = {}

    def __call__(self, event: Event, decisions: Sequence[Decision]) -> None:
        """Something has happened, and this was decided."""
        if isinstance(event, StageDone | StageFailed):
            tally = self._tally((event.job, event.stage))
            job = self._running.pop((event.job, event.stage), None)
            if job is not None:
                self._publish(StageEnded(job, event.stage, self._now(), tally))
        for decision in decisions:
            if isinstance(decision, Start):
                job = self._running[decision.job, decision.stage] = self._job_of(decision.job)
                kind = decision.stage.partition("-")[0]
                self._publish(StageBegan(job, decision.stage, kind, decision.placement, self._now()))
