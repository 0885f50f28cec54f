"""What stages run on, and which part of it one stage was given."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["Device", "Host", "Placement", "Resource"]


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
