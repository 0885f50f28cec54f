"""The placement of a run: the cores and GPUs that measure, the cores for all else, and the processes on them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from kintune.core.capabilities import GPU
from kintune.errors import TargetError
from kintune.hardware.cores import choose_cores, memory_mb, physical_cores
from kintune.hardware.cpu import inspect_machine
from kintune.hardware.gpus import Gpu, list_gpus
from kintune.hardware.locks import DeviceLock, OnWait, cores_lock
from kintune.hardware.toolchain import find_nvcc
from kintune.scheduler.resources import Device, Host, Resource
from kintune.wire.child import ResourceLimits
from kintune.workers.engine.process import Command

__all__ = [
    "DEVICE",
    "HOST",
    "OWN_DEVICES",
    "CorePlacement",
    "MeasurementSite",
    "OwnDevice",
    "choose_devices",
    "choose_placement",
    "holding",
    "memory_mb",
    "off_devices",
]


DEVICE = "cpu"
"""The device of all cores of this machine."""

OWN_DEVICES = frozenset({DEVICE, GPU})
"""What all cores of this machine, and its first GPU, are called; also the types of its devices for the scheduler."""

HOST = "local"
"""The id of this machine for the scheduler."""

_OWN_CORES = re.compile(r"cpu:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")


_GPU = re.compile(rf"{GPU}(?::(\d{{1,4}}))?")


_MOST_CORES = 1 << 16


_BUILD_MEMORY_MB = 16 * 1024


_WAYS = "'cpu', cores of it ('cpu:1', 'cpu:2-3', 'cpu:0,2'), 'cuda' or 'cuda:1', and several devices as 'cpu:2+cpu:3'"


class OwnDevice(msgspec.Struct, frozen=True):
    """A device with its own `cores`: it is these cores, or the `gpu` on which they start kernels."""

    cores: tuple[int, ...]
    gpu: Gpu | None = None


class CorePlacement(msgspec.Struct, frozen=True):
    """The cores of each device, and those of the `host` that prepares, selects, builds and learns.

    Either there is one device, which is the host, and nothing else runs while it measures; or no device shares a core
    with another one or with the host.  If devices are `gpus`, their cores start the kernels.
    """

    devices: tuple[tuple[int, ...], ...]
    host: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()

    @property
    def type(self) -> str:
        """The type of its devices for the scheduler."""
        return GPU if self.gpus else DEVICE

    @property
    def shared(self) -> bool:
        """Whether the device is the host's own cores."""
        return self.devices == (self.host,)

    @property
    def threads(self) -> int:
        """Number of threads of a device."""
        return len(self.devices[0])

    @property
    def cores(self) -> tuple[int, ...]:
        """The numbers of all cores that are used."""
        return tuple(sorted({*self.host, *(core for device in self.devices for core in device)}))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the devices."""
        if self.gpus:
            return tuple(f"{GPU}:{gpu.index}" for gpu in self.gpus)
        return (DEVICE,) if self.shared else tuple(f"{DEVICE}:{_text(cores)}" for cores in self.devices)

    def site(self) -> MeasurementSite:
        """Return the measurement site of runs with this placement."""
        model = self.gpus[0].name if self.gpus else inspect_machine().cpu
        return MeasurementSite(self.type, len(self.devices), self.threads, model, self.shared)

    def resources(self) -> list[Resource]:
        """Return the resources for the scheduler."""
        host = HOST if self.shared else None
        devices = [Device(name, self.type, host=host, on_host_cores=self.shared) for name in self.names]
        return [Host(HOST, len(self.host), memory_mb()), *devices]

    def commands(self, target: str, *, urgent: bool = False) -> dict[str, Command]:
        """Return the commands of workers, by kind, or by kind and device; `urgent` ones have real-time priority."""
        arguments = ("--target", target, "--threads", str(self.threads), *(("--urgent",) if urgent else ()))
        numbers: list[tuple[str, ...]] = [("--gpu", str(gpu.index)) for gpu in self.gpus] or [()] * len(self.devices)
        memory = None if self.gpus else memory_mb()  # a GPU's driver reserves very large address ranges
        devices = {
            f"device@{name}": _python(
                cores,
                self.threads,
                memory,
                "kintune.workers.device_worker",
                *arguments,
                *number,
                pinned=not self.shared,
                outside=bool(self.gpus),
            )
            for name, cores, number in zip(self.names, self.devices, numbers, strict=True)
        }
        return {"build": self.on_host("kintune.workers.build_worker", memory_mb=_BUILD_MEMORY_MB), **devices}

    def on_host(self, module: str, *arguments: str, memory_mb: int | None = None) -> Command:
        """Return the command that starts a process on the host."""
        return _python(self.host, 1, memory_mb, module, *arguments, pinned=not self.shared, outside=bool(self.gpus))


def choose_placement(device: str, threads: int | None) -> CorePlacement:
    """Return the placement for "cpu" (all physical cores, or `threads` of them), "cpu:1", "cpu:2-3", "cpu:0,2", "cuda".

    Several devices, joined by "+", have as many cores each.  Those on cores of their own leave all others to the host.

    Raises:
        TargetError: no such device, no such core, one core twice, or none left for the host.
        OrderError: it is a GPU, and there is no CUDA compiler.
    """
    if device == DEVICE:
        cores = choose_cores(threads or 0)
        return CorePlacement((cores,), cores)
    chosen = choose_devices(device).values()
    devices = tuple(each.cores for each in chosen)
    wanted = [core for cores in devices for core in cores]
    host = tuple(core for core in physical_cores() if core not in wanted)
    if not host:
        raise TargetError(f"device {device!r}: no core is left to build on; leave it one, or measure on 'cpu'")
    if threads not in (None, len(devices[0])):
        raise TargetError(
            f"device {device!r} has {len(devices[0])} cores, and threads={threads}; leave one of the two out"
        )
    return CorePlacement(devices, host, tuple(each.gpu for each in chosen if each.gpu is not None))


@contextmanager
def holding(cores: Iterable[int], gpus: Iterable[int], on_wait: OnWait | None = None) -> Iterator[None]:
    """Hold locks on these cores and GPUs of the machine; errors are those of `DeviceLock.acquire`."""
    with ExitStack() as stack:
        for gpu in sorted(gpus):
            stack.enter_context(DeviceLock(f"gpu-{gpu}").holding(on_wait))
        stack.enter_context(cores_lock(cores, on_wait))
        yield


@contextmanager
def off_devices(placement: CorePlacement) -> Iterator[None]:
    """Keep the calling thread, and the threads and processes that it starts, off devices that have their own cores."""
    before = os.sched_getaffinity(0)
    if not placement.shared:
        os.sched_setaffinity(0, placement.host)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def choose_devices(device: str) -> dict[str, OwnDevice]:
    """Return the devices that `device` names, in the form of `choose_placement`, by name.

    Raises:
        TargetError: no such device, no such core or GPU, or one of them twice.
        OrderError: it is a GPU, and there is no CUDA compiler.
    """
    if device == DEVICE:
        return {DEVICE: OwnDevice(choose_cores(0))}
    if _GPU.match(device):
        return _choose_gpus(device)
    devices = tuple(_own(part) for part in device.split("+"))
    usable = physical_cores()
    wanted = [core for cores in devices for core in cores]
    if missing := [core for core in wanted if core not in usable]:
        raise TargetError(
            f"device {device!r}: there is no core {missing[0]}; this process may use {', '.join(map(str, usable))}"
        )
    if twice := [core for core in wanted if wanted.count(core) > 1]:
        raise TargetError(f"device {device!r}: core {twice[0]} is given twice")
    if len({len(cores) for cores in devices}) > 1:
        raise TargetError(f"device {device!r}: the devices have different numbers of cores, so their times differ")
    return {f"{DEVICE}:{_text(cores)}": OwnDevice(cores) for cores in devices}


def _choose_gpus(device: str) -> dict[str, OwnDevice]:
    """Return the GPUs by name, each with its own core; cores are taken from the last one on."""
    found = [_GPU.fullmatch(part) for part in device.split("+")]
    if not all(found):
        raise TargetError(f"device {device!r}: this machine has {_WAYS}")
    named = [match.group(1) for match in found if match is not None]
    numbers = [int(number or 0) for number in named]
    gpus = {gpu.index: gpu for gpu in list_gpus()}
    if named == [None]:
        numbers = list(gpus)[:1] or [0]
    if missing := [number for number in numbers if number not in gpus]:
        there = ", ".join(map(str, gpus)) or "none at all"
        raise TargetError(f"device {device!r}: there is no GPU {missing[0]}; `nvidia-smi` knows {there}")
    if twice := [number for number in numbers if numbers.count(number) > 1]:
        raise TargetError(f"device {device!r}: GPU {twice[0]} is given twice")
    if len({(gpus[number].name, gpus[number].architecture) for number in numbers}) > 1:
        raise TargetError(f"device {device!r}: the GPUs differ, so their times would not be comparable")
    if alone := [number for number in numbers if not gpus[number].shared]:
        raise TargetError(
            f"device {device!r}: GPU {alone[0]} takes one process at a time, and a proof needs two; "
            f"set it to take several: nvidia-smi -i {alone[0]} -c DEFAULT"
        )
    find_nvcc()
    cores = physical_cores()[::-1]  # indexed by the GPU's number, whichever GPUs are used
    if without := [number for number in numbers if number >= len(cores)]:
        raise TargetError(f"device {device!r}: no core is left to start kernels on GPU {without[0]}")
    return {f"{GPU}:{number}": OwnDevice((cores[number],), gpus[number]) for number in numbers}


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
    cores: tuple[int, ...],
    threads: int,
    memory_mb: int | None,
    module: str,
    *arguments: str,
    pinned: bool,
    outside: bool,
) -> Command:
    return Command(
        (sys.executable, "-m", module, *arguments),
        {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)},
        ResourceLimits(address_space_mb=memory_mb, cores=cores if pinned else ()),
        outside=outside,
    )


class MeasurementSite(msgspec.Struct, frozen=True):
    """The devices that runs are measured on: `count` devices of type `device`, each with `threads` cores of this `cpu`.

    `shared` says that the device is the host's own cores, so that nothing else runs while it measures.
    """

    device: str
    count: int
    threads: int
    cpu: str
    shared: bool = False
