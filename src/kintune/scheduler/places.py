"""What is known of each host and device: what is free there, who uses it, and what lanes that wait for it call it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from kintune.core.stage import StageKey
from kintune.scheduler.resources import Device, Host

__all__ = ["ANY_HOST", "DeviceState", "HostState", "host_token", "type_token"]

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
