"""Hosts and devices that stages run on, and the placement of a stage on them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["Device", "Host", "Placement", "Resource"]


class Host(msgspec.Struct, frozen=True, tag_field="resource", tag="host"):
    """A machine that offers `cores` and `memory_mb`."""

    id: str
    cores: int
    memory_mb: int


class Device(msgspec.Struct, frozen=True, tag_field="resource", tag="device"):
    """A device on which programs are timed; devices of one `type` are interchangeable.

    `host` is the machine that the device is attached to, or None if it belongs to no known host.  With
    `on_host_cores`, the device is that host's CPU: an exclusive stage takes all of the host's cores and starts only
    when all are free.  `capacity` limits how many non-exclusive stages run at once; None means no limit.
    """

    id: str
    type: str
    host: str | None = None
    on_host_cores: bool = False
    capacity: int | None = None

    @property
    def place(self) -> tuple[str | None, bool]:
        """Where it is: its host, and whether it is the CPU of that."""
        return self.host, self.on_host_cores


Resource: TypeAlias = Host | Device


class Placement(msgspec.Struct, frozen=True, gc=False):
    """Where a stage runs: `cores` and `memory_mb` of `host`, and `device`, alone on it if `exclusive`."""

    host: str | None = None
    cores: int = 0
    memory_mb: int = 0
    device: str | None = None
    exclusive: bool = False
