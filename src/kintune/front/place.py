"""Which cores of this machine measure, which do everything else, and the processes on them."""

from __future__ import annotations

import os
import re
import sys

import msgspec

from kintune.engine.command import Command
from kintune.errors import TargetError
from kintune.measure.cores import choose_cores, physical_cores
from kintune.scheduler.resources import Device, Host, Resource
from kintune.wire.child import ResourceLimits

__all__ = ["DEVICE", "Place", "choose_place"]

DEVICE = "cpu"
"""The device that is all of this machine's cores, and its type as the scheduler knows it."""

_OWN_CORES = re.compile(r"cpu:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")
_BUILD_MEMORY_MB = 16 * 1024


class Place(msgspec.Struct, frozen=True):
    """The cores of the `device`, and those of the `host` that prepares, selects, builds and learns.

    They are the same, and then nothing else runs while something is measured, or have none in common.
    """

    device: tuple[int, ...]
    host: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether the device is the host's own cores."""
        return self.device == self.host

    def resources(self) -> list[Resource]:
        """What the scheduler can give."""
        return [
            Host("local", len(self.host), memory_mb()),
            Device("cpu", DEVICE, host="local" if self.shared else None, on_host_cores=self.shared),
        ]

    def commands(self, target: str) -> dict[str, Command]:
        """How workers are started, by kind."""
        threads = len(self.device)
        device = ("--target", target, "--threads", str(threads))
        return {
            "build": self.on_host("kintune.measure.build_worker", memory_mb=_BUILD_MEMORY_MB),
            "device": _python(
                self.device, threads, memory_mb(), "kintune.measure.device_worker", *device, pinned=not self.shared
            ),
        }

    def on_host(self, module: str, *arguments: str, memory_mb: int | None = None) -> Command:
        """How a process of the host is started."""
        return _python(self.host, 1, memory_mb, module, *arguments, pinned=not self.shared)


def choose_place(device: str, threads: int | None) -> Place:
    """The place for a device: "cpu" (all physical cores, or `threads` of them), or "cpu:1", "cpu:2-3", "cpu:0,2".

    A device on cores of its own leaves all others to the host.

    Raises:
        TargetError: no such device, no such core, or none left for the host.
    """
    if device == DEVICE:
        cores = choose_cores(threads or 0)
        return Place(cores, cores)
    found = _OWN_CORES.fullmatch(device)
    if found is None:
        raise TargetError(f"device {device!r}: this machine has 'cpu', or cores of it: 'cpu:1', 'cpu:2-3', 'cpu:0,2'")
    usable = physical_cores()
    wanted = tuple(sorted({core for part in found.group(1).split(",") for core in _cores(part)}))
    if missing := [core for core in wanted if core not in usable]:
        raise TargetError(
            f"device {device!r}: there is no core {missing[0]}; this process may use {', '.join(map(str, usable))}"
        )
    host = tuple(core for core in usable if core not in wanted)
    if not host:
        raise TargetError(f"device {device!r}: no core is left to build on; leave it one, or measure on 'cpu'")
    if threads not in (None, len(wanted)):
        raise TargetError(f"device {device!r} has {len(wanted)} cores, and threads={threads}; leave one of both away")
    return Place(wanted, host)


def memory_mb() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1 << 20)


def _cores(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _python(
    cores: tuple[int, ...], threads: int, memory_mb: int | None, module: str, *arguments: str, pinned: bool
) -> Command:
    return Command(
        (sys.executable, "-m", module, *arguments),
        {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)},
        ResourceLimits(address_space_mb=memory_mb, cores=cores if pinned else ()),
    )
