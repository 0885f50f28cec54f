"""Faults drawn from a seed, and slowdown by contention, in a simulation."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kintune.core.stage import Stage, StageKey
from kintune.scheduler.resources import Device, Host, Placement, Resource
from kintune_lab.simulate.plan import PlannedJob

__all__ = ["NO_FAULTS", "Contention", "Faults", "Outage"]


class Outage(msgspec.Struct, frozen=True):
    """A resource that is lost for a while."""

    resource: str
    at: float
    seconds: float
    cause: str = "no answer"


class Faults(msgspec.Struct, frozen=True):
    """How often things go wrong.

    An attempt of a stage fails with probability `failing`, a job is cancelled at some time with probability
    `cancelled`, a resource is lost `outages_each` times on average within `span_s` seconds, for `outage_s` on average.
    The same seed brings the same faults, whatever the policy.
    """

    seed: int = 0
    failing: float = 0.0
    cancelled: float = 0.0
    outages_each: float = 0.0
    outage_s: float = 60.0
    span_s: float = 3600.0

    def fails(self, stage: Stage, attempt: int) -> bool:
        """Whether this attempt fails."""
        return self.failing > 0 and self._draw(stage.job, stage.id, str(attempt)).random() < self.failing

    def cancelled_after(self, job: PlannedJob) -> float | None:
        """Seconds from the job's arrival to its cancellation; None if it is not cancelled."""
        if not self.cancelled:
            return None
        draw = self._draw(job.id, "cancelled")
        return draw.uniform(0.0, self.span_s) if draw.random() < self.cancelled else None

    def outages(self, resources: Sequence[Resource]) -> list[Outage]:
        """All outages; those of one resource do not overlap."""
        found: list[Outage] = []
        for resource in resources if self.outages_each else ():
            draw = self._draw(resource.id, "outage")
            now = draw.expovariate(self.outages_each / self.span_s)
            while now < self.span_s:
                seconds = draw.expovariate(1 / self.outage_s)
                found.append(Outage(resource.id, now, seconds))
                now += seconds + draw.expovariate(self.outages_each / self.span_s)
        return sorted(found, key=lambda outage: (outage.at, outage.resource))

    def _draw(self, *about: str) -> random.Random:
        return random.Random("/".join((str(self.seed), *about)))


NO_FAULTS = Faults()
"""Nothing goes wrong."""


@dataclass
class _Place:
    room: int
    used: int = 0
    keys: dict[StageKey, int] = field(default_factory=dict)


class Contention:
    """Which stages run where, and how much slower contention makes each.

    A place is crowded while more cores are used than it has, or while a device that one stage wants alone has another.
    A stage in a crowded place takes `factors[kind]` times as long, 1 by default.
    """

    def __init__(self, resources: Sequence[Resource], factors: Mapping[str, float]) -> None:
        self._factors = factors
        self._places: dict[str, _Place] = {}
        self._devices: dict[str, Device] = {}
        for resource in resources:
            if isinstance(resource, Host):
                self._places[resource.id] = _Place(resource.cores)
            else:
                self._devices[resource.id] = resource
                self._places[resource.id] = _Place(1)
        self._at: dict[StageKey, tuple[str, ...]] = {}
        self._kinds: dict[StageKey, str] = {}

    def enter(self, key: StageKey, kind: str, placement: Placement) -> None:
        """Add a stage that started."""
        uses: dict[str, int] = {}
        if placement.host is not None:
            uses[placement.host] = placement.cores
        if placement.device is not None:
            device = self._devices[placement.device]
            uses[device.id] = 1 if placement.exclusive else 0
            if placement.exclusive and device.on_host_cores and device.host is not None:
                uses[device.host] = self._places[device.host].room
        for id, much in uses.items():
            self._places[id].used += much
            self._places[id].keys[key] = much
        self._at[key] = tuple(uses)
        self._kinds[key] = kind

    def leave(self, key: StageKey) -> None:
        """Remove a stage that ended."""
        for id in self._at.pop(key):
            place = self._places[id]
            place.used -= place.keys.pop(key)
        del self._kinds[key]

    def neighbours(self, key: StageKey) -> list[StageKey]:
        """The stage and all that share a place with it."""
        return list(dict.fromkeys(other for id in self._at[key] for other in self._places[id].keys))

    def slowdown(self, key: StageKey) -> float:
        """Returns how many times longer the stage takes at present."""
        crowded = any(self._places[id].used > self._places[id].room for id in self._at[key])
        return self._factors.get(self._kinds[key], 1.0) if crowded else 1.0
