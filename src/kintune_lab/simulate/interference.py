"""Who disturbs whom, where more runs on a resource than it has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kintune.core.stage import StageKey
from kintune.scheduler.resources import Device, Host, Placement, Resource

__all__ = ["Crowd"]


@dataclass
class _Place:
    room: int
    used: int = 0
    keys: dict[StageKey, int] = field(default_factory=dict)


class Crowd:
    """Who runs where, and how much slower that makes a stage.

    A place is crowded while more cores are used than it has, or while a device that one stage wants alone has another.
    A stage in a crowded place takes `factors[kind]` times as long, 1 where that is not told.
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
        """A stage has begun."""
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
        """A stage has ended."""
        for id in self._at.pop(key):
            place = self._places[id]
            place.used -= place.keys.pop(key)
        del self._kinds[key]

    def neighbours(self, key: StageKey) -> list[StageKey]:
        """The stage and all that share a place with it."""
        return list(dict.fromkeys(other for id in self._at[key] for other in self._places[id].keys))

    def slowdown(self, key: StageKey) -> float:
        """How many times longer the stage takes as things are."""
        crowded = any(self._places[id].used > self._places[id].room for id in self._at[key])
        return self._factors.get(self._kinds[key], 1.0) if crowded else 1.0
