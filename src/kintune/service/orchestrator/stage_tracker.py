"""Tells which stages run where, and which hosts and devices there are, from the scheduler's own events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kintune.core.stage import StageKey
from kintune.scheduler.events import (
    Decision,
    Event,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    StageDone,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.resources import Host, Resource
from kintune.service.orchestrator.events import EventTally, News, StageBegan, StageEnded, Standing, Standings
from kintune.terminal.formatting import counted

__all__ = ["StageTracker"]


class StageTracker:
    """An observer of the engine.

    Args:
        job_of: the job whose run this is; "" for work of the service itself.
        now: seconds since 1970.
        publish: tells whoever listens.
        tally: what was measured in a stage that is over.
        resources_changed: called when a host or a device joins, is lost or is back.
        waits: called with the run of a stage that is ready and must wait for resources.
    """

    def __init__(
        self,
        job_of: Callable[[str], str],
        now: Callable[[], float],
        publish: Callable[[News], None],
        tally: Callable[[StageKey], EventTally],
        resources_changed: Callable[[], None] = lambda: None,
        waits: Callable[[str], None] = lambda run: None,
    ) -> None:
        self._job_of = job_of
        self._now = now
        self._tally = tally
        self._resources_changed = resources_changed
        self._waits = waits
        self._publish = publish
        self._running: dict[StageKey, str] = {}
        self._standings: dict[str, Standing] = {}

    def __call__(self, event: Event, decisions: Sequence[Decision]) -> None:
        """Publish what an event and the scheduler's decisions change."""
        match event:
            case ResourceJoined(resource=resource):
                self._stands(_standing(resource, self._now()))
            case ResourceLost(resource=id, cause=cause):
                self._stands(msgspec.structs.replace(self._standings[id], lost=cause, since=self._now()))
            case ResourceBack(resource=id):
                self._stands(msgspec.structs.replace(self._standings[id], lost="", since=self._now()))
        if isinstance(event, StageDone | StageFailed):
            tally = self._tally((event.job, event.stage))
            job = self._running.pop((event.job, event.stage), None)
            if job is not None:
                self._publish(StageEnded(job, event.stage, self._now(), tally))
        started = set[StageKey]()
        for decision in decisions:
            if isinstance(decision, Start):
                started.add((decision.job, decision.stage))
                job = self._running[decision.job, decision.stage] = self._job_of(decision.job)
                kind = decision.stage.partition("-")[0]
                self._publish(StageBegan(job, decision.stage, kind, decision.placement, self._now()))

        if isinstance(event, StageReady) and (event.stage.job, event.stage.id) not in started:
            self._waits(event.stage.job)

    def _stands(self, standing: Standing) -> None:
        self._standings[standing.id] = standing
        self._publish(Standings(tuple(self._standings.values())))
        self._resources_changed()


def _standing(resource: Resource, now: float) -> Standing:
    if isinstance(resource, Host):
        return Standing(resource.id, "host", counted(resource.cores, "core"), "", now)
    return Standing(resource.id, "device", resource.type, "", now)
