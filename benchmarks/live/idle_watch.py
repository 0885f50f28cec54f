"""Follows a schedule, and notes for how long devices had nothing to do while work waited for one of their type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from kintune.core.stage import StageKey
from kintune.scheduler.events import (
    Decision,
    Event,
    GiveUp,
    JobCancelled,
    JobEnded,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryAt,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.resources import Device

LONG_S = 1.0


class Idle(NamedTuple):
    """A device that could be used, and was not, for some seconds while work waited for it."""

    device: str
    since: float
    seconds: float


class IdleWatch:
    """To be told of every event with its decisions, as `kintune.workers.engine.local.Observe`.

    `idle_s` is the sum over all devices, `long` holds the times of more than a second, `stages` counts those that were
    done, `losses` how often a host or a device was lost.
    """

    def __init__(self) -> None:
        self.idle_s = 0.0
        self.long: list[Idle] = []
        self.stages = 0
        self.losses = 0
        self._types: dict[str, str] = {}
        self._lost: set[str] = set()
        self._wanted: dict[StageKey, str] = {}  # by all stages that are asked for: a type of device
        self._waiting: dict[str, set[StageKey]] = defaultdict(set)
        self._running: dict[StageKey, str] = {}
        self._busy: dict[str, int] = defaultdict(int)
        self._since: dict[str, float] = {}

    @property
    def usable(self) -> int:
        """How many devices could be used now."""
        return len(self._types) - len(self._lost & self._types.keys())

    @property
    def busy(self) -> int:
        """How many devices have something to do."""
        return sum(count > 0 for count in list(self._busy.values()))

    @property
    def waiting(self) -> int:
        """How many stages wait for a device."""
        return sum(map(len, list(self._waiting.values())))

    def finish(self, now: float) -> None:
        """It is over: who idles now has done so until now."""
        self._lost.update(self._types)
        self._look(now)

    def observe(self, event: Event, decisions: Sequence[Decision]) -> None:
        """Take in what happened, and what was decided."""
        self._happened(event)
        for decision in decisions:
            self._decided(decision)
        self._look(event.now)

    def _happened(self, event: Event) -> None:
        match event:
            case ResourceJoined(resource=Device() as device):
                self._types[device.id] = device.type
                self._lost.discard(device.id)
            case ResourceLost():
                self._lost.add(event.resource)
                self.losses += 1
            case ResourceBack():
                self._lost.discard(event.resource)
            case StageReady(stage=stage) if stage.demand.device is not None:
                self._wanted[stage.key] = stage.demand.device
                self._wait(stage.key)
            case RetryDue():
                self._wait((event.job, event.stage))
            case StageDone():
                self.stages += 1
                self._let_go((event.job, event.stage))
                self._forget((event.job, event.stage))
            case StageFailed():
                self._let_go((event.job, event.stage))
                self._wait((event.job, event.stage))
            case StageDropped():
                self._forget((event.job, event.stage))
            case JobCancelled() | JobEnded():
                for key in [key for key in self._wanted if key[0] == event.job]:
                    self._forget(key)
            case _:
                pass

    def _decided(self, decision: Decision) -> None:
        key = decision.job, decision.stage
        match decision:
            case Start(placement=placement) if placement.device is not None:
                self._running[key] = placement.device
                self._busy[placement.device] += 1
                self._stop_waiting(key)
            case RetryAt() | GiveUp():
                self._stop_waiting(key)
            case _:
                pass

    def _look(self, now: float) -> None:
        for device, kind in self._types.items():
            idle = bool(self._waiting[kind]) and not self._busy[device] and device not in self._lost
            if idle:
                self._since.setdefault(device, now)
            elif (since := self._since.pop(device, None)) is not None:
                self.idle_s += now - since
                if now - since > LONG_S:
                    self.long.append(Idle(device, since, now - since))

    def _wait(self, key: StageKey) -> None:
        if key in self._wanted:
            self._waiting[self._wanted[key]].add(key)

    def _stop_waiting(self, key: StageKey) -> None:
        if key in self._wanted:
            self._waiting[self._wanted[key]].discard(key)

    def _let_go(self, key: StageKey) -> None:
        device = self._running.pop(key, None)
        if device is not None:
            self._busy[device] -= 1

    def _forget(self, key: StageKey) -> None:
        self._stop_waiting(key)
        self._wanted.pop(key, None)
