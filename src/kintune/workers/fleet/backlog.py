"""How long stages that wait for cores will wait, and which hosts are in use, from the scheduler's own events."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from kintune.core.stage import Stage, StageKey
from kintune.scheduler.events import (
    Decision,
    Event,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobMoved,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.forecast import Durations
from kintune.scheduler.resources import Host

__all__ = ["Backlog", "Load"]


class Load(NamedTuple):
    """What there is to do: `work_s` seconds of one core by stages that wait for cores, and `unplaced` jobs.

    `cores` can be used, `busy` of them are; `in_use` are the hosts on which something runs or a job is placed.
    """

    work_s: float
    unplaced: int
    cores: int
    busy: int
    in_use: frozenset[str]

    @property
    def wait_s(self) -> float:
        """How long the last of those that wait now will have waited, if all cores did nothing else."""
        if self.cores:
            return self.work_s / self.cores
        return float("inf") if self.work_s or self.unplaced else 0.0


class Backlog:
    """An observer of an engine; `look` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations = Durations()
        self._waiting: dict[StageKey, Stage] = {}
        self._running: dict[StageKey, tuple[Stage, float, str | None, int]] = {}
        self._hosts: dict[str, Host] = {}
        self._lost: set[str] = set()
        self._homes: dict[str, str | None] = {}

    def __call__(self, event: Event, decisions: Sequence[Decision]) -> None:
        """Note an event, and what the scheduler decided."""
        with self._lock:
            self._note(event)
            for decision in decisions:
                if isinstance(decision, Start):
                    key = (decision.job, decision.stage)
                    stage = self._waiting.pop(key, None)
                    if stage is not None:
                        there = decision.placement
                        self._running[key] = (stage, event.now, there.host, there.cores)

    def look(self) -> Load:
        """Returns the load at present."""
        with self._lock:
            work_s = sum(
                stage.demand.cores * self._durations.expected(stage.duration_key)
                for stage in self._waiting.values()
                if stage.demand.device is None
            )
            lived_on = {home for home in self._homes.values() if home is not None}
            return Load(
                work_s,
                sum(home is None for home in self._homes.values()),
                sum(host.cores for id, host in self._hosts.items() if id not in self._lost),
                sum(cores for _, _, _, cores in self._running.values()),
                frozenset(lived_on | {host for _, _, host, _ in self._running.values() if host is not None}),
            )

    def _note(self, event: Event) -> None:
        match event:
            case JobAdded():
                self._homes[event.job] = event.home
            case JobMoved():
                self._homes[event.job] = event.home
            case JobEnded() | JobCancelled():
                self._homes.pop(event.job, None)
                for stages in (self._waiting, self._running):
                    for key in [key for key in stages if key[0] == event.job]:
                        del stages[key]
            case StageReady(stage=stage):
                self._waiting[stage.key] = stage
            case StageDone():
                running = self._running.pop((event.job, event.stage), None)
                if running is not None:
                    self._durations.learn(running[0].duration_key, event.now - running[1])
            case StageFailed():
                running = self._running.pop((event.job, event.stage), None)
                if running is not None:
                    self._waiting[event.job, event.stage] = running[0]
            case StageDropped():
                self._waiting.pop((event.job, event.stage), None)
            case ResourceJoined(resource=Host() as host):
                self._hosts[host.id] = host
                self._lost.discard(host.id)
            case ResourceLost():
                self._lost.add(event.resource)
                self._homes.update({job: None for job, home in self._homes.items() if home == event.resource})
            case ResourceBack():
                self._lost.discard(event.resource)
            case _:
                pass
