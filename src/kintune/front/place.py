"""Which cores of this machine measure, which do everything else, and the processes on them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

import msgspec

from kintune.doctor.machine import inspect_machine
from kintune.engine.command import Command
from kintune.errors import TargetError
from kintune.front.station import Station
from kintune.measure.cores import choose_cores, physical_cores
from kintune.scheduler.resources import Device, Host, Resource
from kintune.wire.child import ResourceLimits

__all__ = ["DEVICE", "HOST", "Place", "choose_devices", "choose_place", "memory_mb"]

DEVICE = "cpu"
"""The device that is all of this machine's cores; also the type of devices, as the scheduler knows it."""

HOST = "local"
"""This machine, as the scheduler knows it."""

_OWN_CORES = re.compile(r"cpu:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")
_BUILD_MEMORY_MB = 16 * 1024
_WAYS = "'cpu', or cores of it: 'cpu:1', 'cpu:2-3', 'cpu:0,2', and several devices as 'cpu:2+cpu:3'"


class Place(msgspec.Struct, frozen=True):
    """The cores of each device, and those of the `host` that prepares, selects, builds and learns.

    There is one device and it is the host, and then nothing else runs while something is measured; or none of them has
    a core in common with another or with the host.
    """

    devices: tuple[tuple[int, ...], ...]
    host: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether the device is the host's own cores."""
        return self.devices == (self.host,)

    @property
    def threads(self) -> int:
        """How many threads a device runs."""
        return len(self.devices[0])

    @property
    def cores(self) -> tuple[int, ...]:
        """All cores that are used."""
        return tuple(sorted({*self.host, *(core for device in self.devices for core in device)}))

    @property
    def names(self) -> tuple[str, ...]:
        """What the devices are called."""
        return (DEVICE,) if self.shared else tuple(f"{DEVICE}:{_text(cores)}" for cores in self.devices)

    def station(self) -> Station:
        """This machine as what runs are measured on."""
        return Station(DEVICE, len(self.devices), self.threads, inspect_machine().cpu, self.shared)

    def resources(self) -> list[Resource]:
        """What the scheduler can give."""
        host = HOST if self.shared else None
        devices = [Device(name, DEVICE, host=host, on_host_cores=self.shared) for name in self.names]
        return [Host(HOST, len(self.host), memory_mb()), *devices]

    def commands(self, target: str, *, urgent: bool = False) -> dict[str, Command]:
        """How workers are started, by kind, and by kind and device; `urgent` ones time at real-time priority."""
        arguments = ("--target", target, "--threads", str(self.threads), *(("--urgent",) if urgent else ()))
        devices = {
            f"device@{name}": _python(
                cores, self.threads, memory_mb(), "kintune.measure.device_worker", *arguments, pinned=not self.shared
            )
            for name, cores in zip(self.names, self.devices, strict=True)
        }
        return {"build": self.on_host("kintune.measure.build_worker", memory_mb=_BUILD_MEMORY_MB), **devices}

    def on_host(self, module: str, *arguments: str, memory_mb: int | None = None) -> Command:
        """How a process of the host is started."""
        return _python(self.host, 1, memory_mb, module, *arguments, pinned=not self.shared)


def choose_place(device: str, threads: int | None) -> Place:
    """The place for a device: "cpu" (all physical cores, or `threads` of them), or "cpu:1", "cpu:2-3", "cpu:0,2".

    Several devices, joined by "+", have as many cores each.  Those on cores of their own leave all others to the host.

    Raises:
        TargetError: no such device, no such core, one core twice, or none left for the host.
    """
    if device == DEVICE:
        cores = choose_cores(threads or 0)
        return Place((cores,), cores)
    devices = tuple(choose_devices(device).values())
    wanted = [core for cores in devices for core in cores]
    host = tuple(core for core in physical_cores() if core not in wanted)
    if not host:
        raise TargetError(f"device {device!r}: no core is left to build on; leave it one, or measure on 'cpu'")
    if threads not in (None, len(devices[0])):
        raise TargetError(
            f"device {device!r} has {len(devices[0])} cores, and threads={threads}; leave one of both away"
        )
    return Place(devices, host)


def choose_devices(device: str) -> dict[str, tuple[int, ...]]:
    """The cores of each device that `device` names, as for `choose_place`, by the device's name.

    Raises:
        TargetError: no such device, no such core, or one core twice.
    """
    if device == DEVICE:
        return {DEVICE: choose_cores(0)}
    devices = tuple(_own(part) for part in device.split("+"))
    usable = physical_cores()
    wanted = [core for cores in devices for core in cores]
    if missing := [core for core in wanted if core not in usable]:
        raise TargetError(
            f"device {device!r}: there is no core {missing[0]}; this process may use {', '.join(map(str, usable))}"
        )
    if twice := [core for core in wanted if wanted.count(core) > 1]:
        raise TargetError(f"device {device!r}: core {twice[0]} stands twice")
    if len({len(cores) for cores in devices}) > 1:
        raise TargetError(f"device {device!r}: the devices have unlike numbers of cores, and times would not compare")
    return {f"{DEVICE}:{_text(cores)}": cores for cores in devices}


def memory_mb() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1 << 20)


def _own(text: str) -> tuple[int, ...]:
    found = _OWN_CORES.fullmatch(text)
    if found is None:
        raise TargetError(f"device {text!r}: this machine has {_WAYS}")
    return tuple(sorted({core for part in found.group(1).split(",") for core in _cores(part)}))


def _cores(part: str) -> range:
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _text(cores: Iterable[int]) -> str:
    return ",".join(map(str, cores))


def _python(
    cores: tuple[int, ...], threads: int, memory_mb: int | None, module: str, *arguments: str, pinned: bool
) -> Command:
    return Command(
        (sys.executable, "-m", module, *arguments),
        {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)},
        ResourceLimits(address_space_mb=memory_mb, cores=cores if pinned else ()),
    )
