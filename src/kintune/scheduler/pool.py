"""The hosts and devices, what is booked on them, and where a demand fits.

A lookup reads indices over the free resources and never scans the bookings.  Resources are also identified by *tokens*
(one for each host, one for any host, one for each device type), the names under which a demand waits for them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kintune.core.stage import Demand, StageKey
from kintune.errors import SchedulerError
from kintune.scheduler.queue import IndexedQueue
from kintune.scheduler.resources import Device, Host, Placement, Resource

__all__ = ["_ANY_HOST", "ResourcePool", "_DeviceState", "_HostState", "_host_token", "_type_token"]


class ResourcePool:
    """Hosts and devices, their bookings, and indices over what is free.

    With n resources, booking and releasing are O(log n), as is `place` in the common case that the freest host or the
    first free device fits; in the worst case `place` is O(n log n).
    """

    def __init__(self) -> None:
        self._hosts: dict[str, _HostState] = {}
        self._devices: dict[str, _DeviceState] = {}
        self._bookings: dict[StageKey, Placement] = {}
        self._claims: dict[Hashable, str] = {}
        self._possible: dict[Demand, bool] = {}
        self._freest: IndexedQueue[str] = IndexedQueue()
        self._idle: dict[str, IndexedQueue[str]] = {}
        self._shareable: dict[str, IndexedQueue[str]] = {}

    def join(self, resource: Resource) -> None:
        """Add a host or a device, or have a lost one back with another size or type.

        Raises:
            SchedulerError: its id is taken, or it is a device on an unknown host.
        """
        if isinstance(resource, Device):
            self._check_device(resource)
        if resource.id in self._hosts or resource.id in self._devices:
            self._replace(resource)
            return
        order = len(self._hosts) + len(self._devices)
        self._possible.clear()
        if isinstance(resource, Host):
            state = _HostState(resource, order, resource.cores, resource.memory_mb)
            state.tokens = (_host_token(resource.id), _ANY_HOST)
            self._hosts[resource.id] = state
            self._index_host(resource.id)
            return
        token = _type_token(resource.type)
        self._devices[resource.id] = _DeviceState(resource, order, tokens=(token,))
        if resource.host is not None:
            host = self._hosts[resource.host]
            host.devices.append(resource.id)
            host.tokens = tuple(dict.fromkeys((*host.tokens, token)))
            if resource.on_host_cores:
                host.core_devices.append(resource.id)
                self._index_host(resource.host)
        self._index_device(resource.id)

    def _check_device(self, device: Device) -> None:
        if device.host is not None and device.host not in self._hosts:
            raise SchedulerError(f"device {device.id!r} is on host {device.host!r}, which has not joined")
        if device.on_host_cores and device.host is None:
            raise SchedulerError(f"device {device.id!r} lives on the cores of a host but names none")
        if device.capacity is not None and device.capacity < 1:
            raise SchedulerError(f"device {device.id!r} has a capacity of {device.capacity}")

    def _replace(self, resource: Resource) -> None:
        """Have a lost resource back as another one; what is booked on it stays booked."""
        state = self._state(resource.id)
        if not state.lost:
            raise SchedulerError(f"a resource {resource.id!r} has joined before")
        if isinstance(state, _HostState) and isinstance(resource, Host):
            state.free_cores += resource.cores - state.host.cores
            state.free_memory_mb += resource.memory_mb - state.host.memory_mb
            state.host = resource
        elif isinstance(state, _DeviceState) and isinstance(resource, Device) and state.device.place == resource.place:
            self._idle[state.device.type].discard(resource.id)
            self._shareable[state.device.type].discard(resource.id)
            state.device, state.tokens = resource, (_type_token(resource.type),)
            if resource.host is not None:
                host = self._hosts[resource.host]
                host.tokens = tuple(dict.fromkeys((*host.tokens, *state.tokens)))
        else:
            raise SchedulerError(f"a resource {resource.id!r} has joined before, as another kind or elsewhere")
        state.lost = False
        self._possible.clear()
        self._index(resource.id)

    def lose(self, id: str) -> set[StageKey]:
        """Mark a resource as lost; returns the stages that are booked on it or, for a host, on its devices.

        Raises:
            SchedulerError: it is unknown or lost already.
        """
        state = self._state(id)
        if state.lost:
            raise SchedulerError(f"resource {id!r} is lost already")
        state.lost = True
        hit = set(state.users)
        if isinstance(state, _HostState):
            self._claims.pop(state.claimed_by, None)
            state.claimed_by = None
            hit.update(*(self._devices[device].users for device in state.devices))
        self._index(id)
        return hit

    def back(self, id: str) -> None:
        """Mark a lost resource as available.

        Raises:
            SchedulerError: it is unknown or not lost.
        """
        state = self._state(id)
        if not state.lost:
            raise SchedulerError(f"resource {id!r} is not lost")
        state.lost = False
        self._index(id)

    def tokens(self, id: str) -> tuple[str, ...]:
        """Return the tokens that stand for this resource in the result of `waits_for`."""
        return self._devices[id].tokens if id in self._devices else self._hosts[id].tokens

    def waits_for(self, demand: Demand, home: str | None) -> tuple[str, ...]:
        """Return the tokens of the resources that block a demand: it cannot fit before one of them is released."""
        hosts = _ANY_HOST if home is None else _host_token(home)
        if demand.device is None:
            return (hosts,)
        return (
            (_type_token(demand.device), hosts) if demand.cores or demand.memory_mb else (_type_token(demand.device),)
        )

    def place_anyway(self, demand: Demand, home: str | None = None) -> Placement | None:
        """Return the least used place for `demand`, whether it is free or not; None if no such resource is usable.

        O(n) in the number of resources.
        """
        device: str | None = None
        if demand.device is not None:
            states = [
                state
                for state in self._devices.values()
                if state.device.type == demand.device
                and self._device_usable(state)
                and home in (None, state.device.host, None if state.device.host else home)
            ]
            if not states:
                return None
            chosen = min(states, key=lambda state: (len(state.users), state.order))
            device, home = chosen.device.id, chosen.device.host or home
            if home is None and not (demand.cores or demand.memory_mb):
                return Placement(None, 0, 0, device, demand.exclusive)
        hosts = [s for s in self._hosts.values() if not s.lost and home in (None, s.host.id)]
        if not hosts:
            return None
        host = min(hosts, key=lambda state: (len(state.users), state.order)).host.id
        return Placement(host, demand.cores, demand.memory_mb, device, demand.exclusive)

    def room(self, host: str | None) -> int | None:
        """Return the number of free cores of the host; None if a device runs on its cores, which needs all of them."""
        state = self._hosts[host or ""]
        return None if state.core_devices else state.free_cores

    def is_claimed(self, host: str | None) -> bool:
        """Return whether the host is claimed."""
        return host is not None and self._hosts[host].claimed_by is not None

    def usable(self, host: str) -> bool:
        """Return whether the host has joined and is not lost."""
        return host in self._hosts and not self._hosts[host].lost

    def place(self, demand: Demand, home: str | None = None, who: Hashable | None = None) -> Placement | None:
        """Return where `demand` fits now, on the host `home` if one is given; None if it must wait.

        Hosts claimed by others are left out; the host claimed by `who` is tried first.
        """
        if demand.device is None:
            host = self._host_for(demand, home, who)
            return None if host is None else Placement(host, demand.cores, demand.memory_mb)
        index = (self._idle if demand.exclusive else self._shareable).get(demand.device)
        if index is None:
            return None
        first = index.first()
        if first is None:
            return None
        placement = self._on_device(first, demand, home, who)
        if placement is not None or len(index) == 1:
            return placement
        return next((there for id in index.in_order() if (there := self._on_device(id, demand, home, who))), None)

    def fits(self, placement: Placement, demand: Demand) -> bool:
        """Return whether `placement` satisfies `demand` and is free."""
        if placement.device is not None:
            if placement.device not in self._devices:
                return False
            device = self._devices[placement.device]
            index = (self._idle if demand.exclusive else self._shareable)[device.device.type]
            if device.device.type != demand.device or placement.device not in index:
                return False
            owner = None if placement.host is None else self._hosts[placement.host].claimed_by
            return self._on_device(placement.device, demand, placement.host, owner) == placement
        if demand.device is not None or placement.host is None or placement.host not in self._hosts:
            return False
        return self._host_fits(placement.host, demand) and placement == Placement(
            placement.host, demand.cores, demand.memory_mb
        )

    def fits_anyway(self, placement: Placement, demand: Demand) -> bool:
        """Return whether `placement` satisfies `demand`, whether it is free or not."""
        host, device = self._hosts.get(placement.host or ""), self._devices.get(placement.device or "")
        if (device is None) != (demand.device is None) or (host is not None and host.lost):
            return False
        if device is not None and (device.device.type != demand.device or not self._device_usable(device)):
            return False
        return placement.cores >= demand.cores and placement.memory_mb >= demand.memory_mb

    def claim(self, who: Hashable, demand: Demand, home: str | None = None) -> None:
        """Reserve a whole host for a demand that does not fit now; until `unclaim`, nothing else starts there.

        The host is `home`, the host of a usable device of the demanded type, or the freest one that is large enough.
        Nothing is claimed if there is no such host, all of these are claimed already, or `who` has a claim.
        """
        if who in self._claims:
            return
        if demand.device is not None:
            of_type = (state for state in self._devices.values() if state.device.type == demand.device)
            usable = [state.device.host for state in of_type if self._device_usable(state)]
            hosts = [host for host in usable if host]
            if home is not None:
                hosts = [home] if home in usable or None in usable else []
        elif home is not None:
            hosts = [home]
        else:
            first = self._freest.first()
            is_enough = first is not None and self._may_claim(first, demand)
            hosts = [first] if first is not None and is_enough else self._freest.in_order()
        for id in hosts:
            if self._may_claim(id, demand):
                self._hosts[id].claimed_by = who
                self._claims[who] = id
                self._index_host(id)
                return

    def _may_claim(self, id: str, demand: Demand) -> bool:
        state = self._hosts[id]
        large = state.host.cores >= demand.cores and state.host.memory_mb >= demand.memory_mb
        return large and not state.lost and state.claimed_by is None

    def unclaim(self, who: Hashable) -> tuple[str, ...]:
        """Drop the claim of `who`; returns the tokens of the host that became available."""
        id = self._claims.pop(who, None)
        if id is None:
            return ()
        self._hosts[id].claimed_by = None
        self._index_host(id)
        return self.tokens(id)

    def drop_claim(self, id: str) -> tuple[str, ...]:
        """Drop the claim on the host of a device that was lost; returns the tokens that became available.

        A stage that waits for this device must not keep the host from others; any other stage claims a host again.
        """
        state = self._devices.get(id)
        host = None if state is None else self._hosts.get(state.device.host or "")
        return () if host is None or host.claimed_by is None else self.unclaim(host.claimed_by)

    def could_ever(self, demand: Demand) -> bool:
        """Return whether any resource that has joined, including busy and lost ones, could satisfy `demand`."""
        if demand not in self._possible:
            self._possible[demand] = self._could_ever(demand)
        return self._possible[demand]

    def _could_ever(self, demand: Demand) -> bool:
        if demand.device is not None and not any(
            state.device.type == demand.device and self._device_could(state.device, demand)
            for state in self._devices.values()
        ):
            return False
        return any(
            state.host.cores >= demand.cores and state.host.memory_mb >= demand.memory_mb
            for state in self._hosts.values()
        ) or (demand.cores == 0 and demand.memory_mb == 0)

    def book(self, stage: StageKey, placement: Placement) -> None:
        """Book `placement` for `stage`; it must have been returned by `place` since the last change."""
        self._bookings[stage] = placement
        if placement.host is not None:
            host = self._hosts[placement.host]
            host.free_cores -= placement.cores
            host.free_memory_mb -= placement.memory_mb
            host.users.add(stage)
        if placement.device is not None:
            device = self._devices[placement.device]
            device.exclusive = placement.exclusive
            device.users.add(stage)
        self._reindex(placement)

    def release(self, stage: StageKey) -> tuple[str, ...]:
        """Remove the booking of `stage`; returns the tokens of what became free."""
        placement = self._bookings.pop(stage)
        if placement.host is not None:
            host = self._hosts[placement.host]
            host.free_cores += placement.cores
            host.free_memory_mb += placement.memory_mb
            host.users.discard(stage)
        if placement.device is not None:
            device = self._devices[placement.device]
            device.exclusive = False
            device.users.discard(stage)
        self._reindex(placement)
        of_host = () if placement.host is None else self._hosts[placement.host].tokens
        of_device = () if placement.device is None else self._devices[placement.device].tokens
        return (*of_device, *of_host)

    def _state(self, id: str) -> _HostState | _DeviceState:
        state = self._hosts.get(id) or self._devices.get(id)
        if state is None:
            raise SchedulerError(f"no resource {id!r} has joined")
        return state

    def _host_fits(self, id: str, demand: Demand) -> bool:
        host = self._hosts[id]
        return not host.lost and host.free_cores >= demand.cores and host.free_memory_mb >= demand.memory_mb

    def _host_for(self, demand: Demand, home: str | None, who: Hashable | None = None) -> str | None:
        if home is not None:
            free = self._hosts[home].claimed_by in (None, who)
            return home if free and self._host_fits(home, demand) else None
        claimed = self._claims.get(who)
        if claimed is not None and self._host_fits(claimed, demand):
            return claimed
        first = self._freest.first()
        if first is None or self._hosts[first].free_cores < demand.cores:
            return None
        if self._host_fits(first, demand):
            return first
        return next((id for id in self._freest.in_order() if self._host_fits(id, demand)), None)

    def _on_device(self, id: str, demand: Demand, home: str | None, who: Hashable | None = None) -> Placement | None:
        device = self._devices[id].device
        if demand.exclusive and device.on_host_cores:
            who = self._hosts[device.host or ""].claimed_by  # claims are made for such stages
            cores = self._hosts[device.host or ""].host.cores
            if demand.cores > cores:
                return None
            demand = Demand(cores, demand.memory_mb, demand.device, demand.exclusive)
        if home is not None and device.host not in (None, home):
            return None
        if device.host is None and not (demand.cores or demand.memory_mb):
            return Placement(None, 0, 0, id, demand.exclusive)
        host = self._host_for(demand, device.host or home, who)
        return None if host is None else Placement(host, demand.cores, demand.memory_mb, id, demand.exclusive)

    def _device_usable(self, state: _DeviceState) -> bool:
        host = state.device.host
        return not state.lost and not (host is not None and self._hosts[host].lost)

    def _device_could(self, device: Device, demand: Demand) -> bool:
        host = None if device.host is None else self._hosts[device.host].host
        return host is None or (host.cores >= demand.cores and host.memory_mb >= demand.memory_mb)

    def _reindex(self, placement: Placement) -> None:
        if placement.host is not None:
            self._index_host(placement.host)
        if placement.device is not None:
            self._index_device(placement.device)

    def _index(self, id: str) -> None:
        if id in self._devices:
            self._index_device(id)
            return
        self._index_host(id)
        for device in self._hosts[id].devices:
            self._index_device(device)

    def _index_host(self, id: str) -> None:
        host = self._hosts[id]
        if host.lost or host.claimed_by is not None:
            self._freest.discard(id)
        else:
            # among hosts with as many free cores, those come first whose cores are not a device
            self._freest.put(id, (-host.free_cores, bool(host.core_devices), -host.free_memory_mb, host.order))
        for device in host.core_devices:
            self._index_device(device)

    def _index_device(self, id: str) -> None:
        state = self._devices[id]
        device = state.device
        host = None if device.host is None else self._hosts[device.host]
        usable = self._device_usable(state)
        cores_free = not device.on_host_cores or host is None or host.idle
        idle = self._idle.setdefault(device.type, IndexedQueue())
        shareable = self._shareable.setdefault(device.type, IndexedQueue())
        if usable and not state.users and cores_free:
            idle.put(id, state.order)
        else:
            idle.discard(id)
        if usable and not state.exclusive and (device.capacity is None or len(state.users) < device.capacity):
            shareable.put(id, (len(state.users), state.order))
        else:
            shareable.discard(id)


_ANY_HOST = "any host"
"""The token of every host: for demands that may run on any of them."""


def _host_token(id: str) -> str:
    """Return the token of one host, for demands that are bound to it."""
    return f"host {id}"


def _type_token(name: str) -> str:
    """Return the token of a device type."""
    return f"type {name}"


@dataclass
class _HostState:
    """A host.

    `devices` are attached to it; `core_devices` are those that run on its cores.  `tokens` stand for it and its
    devices.  `claimed_by` is the owner of the claim on it, if any.
    """

    host: Host
    order: int
    free_cores: int
    free_memory_mb: int
    lost: bool = False
    core_devices: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    users: set[StageKey] = field(default_factory=set)
    claimed_by: Hashable | None = None
    tokens: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Whether all its cores are free."""
        return self.free_cores == self.host.cores


@dataclass
class _DeviceState:
    """A device; `exclusive` is set while an exclusive stage is booked on it."""

    device: Device
    order: int
    lost: bool = False
    exclusive: bool = False
    users: set[StageKey] = field(default_factory=set)
    tokens: tuple[str, ...] = ()
