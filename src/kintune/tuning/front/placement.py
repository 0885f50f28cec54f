"""Which cores and GPUs of this machine measure, which cores do everything else, and the processes on them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from kintune.errors import TargetError
from kintune.hardware.cores import choose_cores, physical_cores
from kintune.hardware.cpu import inspect_machine
from kintune.hardware.gpus import GPU, Gpu, list_gpus
from kintune.hardware.locks import DeviceLock, OnWait, cores_lock
from kintune.hardware.toolchain import find_nvcc
from kintune.scheduler.resources import Device, Host, Resource
from kintune.wire.child import ResourceLimits
from kintune.workers.engine.process import Command

__all__ = [
    "DEVICE",
    "HOST",
    "MeasurementSite",
    "OwnDevice",
    "Placement",
    "choose_devices",
    "choose_placement",
    "holding",
    "memory_mb",
]


DEVICE = "cpu"
"""The device that is all of this machine's cores; also the type of devices, as the scheduler knows it."""

HOST = "local"
"""This machine, as the scheduler knows it."""

_OWN_CORES = re.compile(r"cpu:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")


_GPU = re.compile(rf"{GPU}(?::(\d+))?")


_MOST_CORES = 1 << 16


_BUILD_MEMORY_MB = 16 * 1024


_WAYS = "'cpu', cores of it ('cpu:1', 'cpu:2-3', 'cpu:0,2'), 'cuda' or 'cuda:1', and several devices as 'cpu:2+cpu:3'"


class OwnDevice(msgspec.Struct, frozen=True):
    """A device that has `cores` for itself: it is these, or the `gpu` that they start kernels on."""

    cores: tuple[int, ...]
    gpu: Gpu | None = None


class Placement(msgspec.Struct, frozen=True):
    """The cores of each device, and those of the `host` that prepares, selects, builds and learns.

    There is one device and it is the host, and then nothing else runs while something is measured; or none of them has
    a core in common with another or with the host.  Where devices are `gpus`, their cores start the kernels.
    """

    devices: tuple[tuple[int, ...], ...]
    host: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()

    @property
    def type(self) -> str:
        """The type of its devices, as the scheduler knows it."""
        return GPU if self.gpus else DEVICE

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
        if self.gpus:
            return tuple(f"{GPU}:{gpu.index}" for gpu in self.gpus)
        return (DEVICE,) if self.shared else tuple(f"{DEVICE}:{_text(cores)}" for cores in self.devices)

    def site(self) -> MeasurementSite:
        """This machine as what runs are measured on."""
        model = self.gpus[0].name if self.gpus else inspect_machine().cpu
        return MeasurementSite(self.type, len(self.devices), self.threads, model, self.shared)

    def resources(self) -> list[Resource]:
        """What the scheduler can give."""
        host = HOST if self.shared else None
        devices = [Device(name, self.type, host=host, on_host_cores=self.shared) for name in self.names]
        return [Host(HOST, len(self.host), memory_mb()), *devices]

    def commands(self, target: str, *, urgent: bool = False) -> dict[str, Command]:
        """How workers are started, by kind, and by kind and device; `urgent` ones time at real-time priority."""
        arguments = ("--target", target, "--threads", str(self.threads), *(("--urgent",) if urgent else ()))
        numbers: list[tuple[str, ...]] = [("--gpu", str(gpu.index)) for gpu in self.gpus] or [()] * len(self.devices)
        memory = None if self.gpus else memory_mb()  # a GPU's driver reserves addresses beyond all measure
        devices = {
            f"device@{name}": _python(
                cores,
                self.threads,
                memory,
                "kintune.workers.device_worker",
                *arguments,
                *number,
                pinned=not self.shared,
            )
            for name, cores, number in zip(self.names, self.devices, numbers, strict=True)
        }
        return {"build": self.on_host("kintune.workers.build_worker", memory_mb=_BUILD_MEMORY_MB), **devices}

    def on_host(self, module: str, *arguments: str, memory_mb: int | None = None) -> Command:
        """How a process of the host is started."""
        return _python(self.host, 1, memory_mb, module, *arguments, pinned=not self.shared)


def choose_placement(device: str, threads: int | None) -> Placement:
    """The place for a device: "cpu" (all physical cores, or `threads` of them), "cpu:1", "cpu:2-3", "cpu:0,2", "cuda".

    Several devices, joined by "+", have as many cores each.  Those on cores of their own leave all others to the host.

    Raises:
        TargetError: no such device, no such core, one core twice, or none left for the host.
        OrderError: it is a GPU, and there is no CUDA compiler.
    """
    if device == DEVICE:
        cores = choose_cores(threads or 0)
        return Placement((cores,), cores)
    chosen = choose_devices(device).values()
    devices = tuple(each.cores for each in chosen)
    wanted = [core for cores in devices for core in cores]
    host = tuple(core for core in physical_cores() if core not in wanted)
    if not host:
        raise TargetError(f"device {device!r}: no core is left to build on; leave it one, or measure on 'cpu'")
    if threads not in (None, len(devices[0])):
        raise TargetError(
            f"device {device!r} has {len(devices[0])} cores, and threads={threads}; leave one of both away"
        )
    return Placement(devices, host, tuple(each.gpu for each in chosen if each.gpu is not None))


@contextmanager
def holding(cores: Iterable[int], gpus: Iterable[int], on_wait: OnWait | None = None) -> Iterator[None]:
    """Hold locks on these cores and GPUs of the machine; raises what `DeviceLock.acquire` does."""
    with ExitStack() as stack:
        for gpu in sorted(gpus):
            stack.enter_context(DeviceLock(f"gpu-{gpu}").holding(on_wait))
        stack.enter_context(cores_lock(cores, on_wait))
        yield


def choose_devices(device: str) -> dict[str, OwnDevice]:
    """What each device that `device` names has, as for `choose_placement`, by the device's name.

    Raises:
        TargetError: no such device, no such core or GPU, or one of them twice.
        OrderError: it is a GPU, and there is no CUDA compiler.
    """
    if device == DEVICE:
        return {DEVICE: OwnDevice(choose_cores(0))}
    if device.startswith(GPU):
        return _choose_gpus(device)
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
    return {f"{DEVICE}:{_text(cores)}": OwnDevice(cores) for cores in devices}


def _choose_gpus(device: str) -> dict[str, OwnDevice]:
    """Each GPU with a core of its own, from the last one of this machine on."""
    found = [_GPU.fullmatch(part) for part in device.split("+")]
    if not all(found):
        raise TargetError(f"device {device!r}: this machine has {_WAYS}")
    numbers = [int(match.group(1) or 0) for match in found if match is not None]
    gpus = {gpu.index: gpu for gpu in list_gpus()}
    if device == GPU:
        numbers = list(gpus)[:1] or [0]
    if missing := [number for number in numbers if number not in gpus]:
        there = ", ".join(map(str, gpus)) or "none at all"
        raise TargetError(f"device {device!r}: there is no GPU {missing[0]}; `nvidia-smi` knows {there}")
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise TargetError(f"device {device!r}: GPU {twice[0]} stands twice")
    if len({(gpus[number].name, gpus[number].architecture) for number in numbers}) > 1:
        raise TargetError(f"device {device!r}: the GPUs are not alike, and times would not compare")
    if alone := [number for number in numbers if not gpus[number].shared]:
        raise TargetError(
            f"device {device!r}: GPU {alone[0]} takes one process at a time, and a proof needs two; "
            f"set it to take several: nvidia-smi -i {alone[0]} -c DEFAULT"
        )
    find_nvcc()
    cores = physical_cores()[::-1]  # by the GPU's number: each has its own, whoever uses the others
    if without := [number for number in numbers if number >= len(cores)]:
        raise TargetError(f"device {device!r}: no core is left to start kernels on GPU {without[0]}")
    return {f"{GPU}:{number}": OwnDevice((cores[number],), gpus[number]) for number in numbers}


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
    if max(len(first), len(last)) > len(str(_MOST_CORES)) or int(last or first) >= _MOST_CORES:
        raise TargetError(f"device 'cpu:{part}': no machine has such a core")
    if last and int(last) < int(first):
        raise TargetError(f"device 'cpu:{part}': name the lower core first, 'cpu:{last}-{first}'")
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


class MeasurementSite(msgspec.Struct, frozen=True):
    """Devices of one type, as the scheduler knows it: `count` of them, each with `threads` cores of this `cpu`.

    `shared` says that there is one and that it is the host's own cores, so that nothing else runs while it measures.
    """

    device: str
    count: int
    threads: int
    cpu: str
    shared: bool = False
