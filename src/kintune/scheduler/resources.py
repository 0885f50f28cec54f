"""What stages run on, and which part of it one stage was given."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from kintune.core.stage import StageKey

__all__ = [
    "ANY_HOST",
    "Device",
    "DeviceState",
    "Host",
    "HostState",
    "Placement",
    "Resource",
    "host_token",
    "type_token",
]


class Host(msgspec.Struct, frozen=True, tag_field="resource", tag="host"):
    """A machine with `cores` and `memory_mb` to give."""

    id: str
    cores: int
    memory_mb: int


class Device(msgspec.Struct, frozen=True, tag_field="resource", tag="device"):
    """Something that times programs, one of the interchangeable devices of its `type`.

    `host` is the machine it hangs on, or None for one reached otherwise.  With `on_host_cores` the device *is* that
    host's cores: a stage that has it alone takes all of them, waits until they are free, and keeps others away.
    `capacity` is how many stages it takes at once that do not want it alone; None: any number.
    """

    id: str
    type: str
    host: str | None = None
    on_host_cores: bool = False
    capacity: int | None = None


Resource: TypeAlias = Host | Device


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a stage runs: `cores` and `memory_mb` of `host`, and `device`, alone on it if `exclusive`."""

    host: str | None = None
    cores: int = 0
    memory_mb: int = 0
    device: str | None = None
    exclusive: bool = False


ANY_HOST = "any host"
"""What who waits for cores, wherever they are, waits for."""


def host_token(id: str) -> str:
    """What who is bound to a host waits for."""
    return f"host {id}"


def type_token(name: str) -> str:
    """What who wants a device of a type waits for."""
    return f"type {name}"


@dataclass
class HostState:
    """A host; `tokens` are the names of what becomes free with it, `claimed_by` for whom it is kept free."""

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
        """Whether nobody uses its cores."""
        return self.free_cores == self.host.cores


@dataclass
class DeviceState:
    """A device; `exclusive` while one user has it alone."""

    device: Device
    order: int
    lost: bool = False
    exclusive: bool = False
    users: set[StageKey] = field(default_factory=set)
    tokens: tuple[str, ...] = ()
