"""The doctor's checks of GPUs and their compiler, of a CPU quota, of the temporary folder, of the measured peak, and of
the records."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kintune.core.device import BY_AMX, DeviceDescription, NarrowSpeed, Peak
from kintune.core.quantisation import INT8
from kintune.errors import KintuneError, OrderError, RecordsError, StorageError
from kintune.hardware.check import Check, HardwareVerdict
from kintune.hardware.cores import choose_cores, physical_cores
from kintune.hardware.gpus import Gpu, list_gpus
from kintune.hardware.locks import cores_lock
from kintune.hardware.quota import cpu_quota, threads_within
from kintune.hardware.toolchain import find_nvcc
from kintune.records import Store
from kintune.terminal.formatting import count, counted
from kintune.tuning.narrow import avoided_extensions, narrow_speeds
from kintune.tuning.peak import device_peak
from kintune.wire.confinement import layers
from kintune.wire.worker_client import interview

__all__ = [
    "check_gpus",
    "check_isolation",
    "check_narrow",
    "check_peak",
    "check_quota",
    "check_records",
    "check_temporary_folder",
    "described",
]


_LEAST_DRIVER, _LEAST_ARCHITECTURE = 580, 75  # those of CUDA 13


def check_gpus(gpus: Callable[[], Sequence[Gpu]] = list_gpus, nvcc: Callable[[], str] = find_nvcc) -> list[Check]:
    """Check each GPU, and the CUDA compiler where there is one or a GPU.

    No finding is a problem: without a GPU, a machine tunes for its CPU.
    """
    found = gpus()
    checks = [_check(gpu) for gpu in found] or [Check("GPUs", HardwareVerdict.GOOD, "none")]
    try:
        checks.append(Check("CUDA compiler", HardwareVerdict.GOOD, nvcc()))
    except OrderError as error:
        if found:
            finding, _, remedy = str(error).rpartition(": ")
            checks.append(Check("CUDA compiler", HardwareVerdict.NOTE, finding, remedy))
    return checks


def _check(gpu: Gpu) -> Check:
    name = f"GPU {gpu.index}"
    memory = f", {gpu.memory_mb} MB" if gpu.memory_mb else ""
    finding = f"{gpu.name}, {gpu.architecture}{memory}, driver {gpu.driver}"
    version = gpu.driver.partition(".")[0]
    if version.isdigit() and int(version) < _LEAST_DRIVER:
        return Check(name, HardwareVerdict.NOTE, finding, f"CUDA 13 needs driver {_LEAST_DRIVER} or later")
    if int(gpu.architecture.removeprefix("sm_")) < _LEAST_ARCHITECTURE:
        return Check(
            name, HardwareVerdict.NOTE, finding, f"CUDA 13 compiles for sm_{_LEAST_ARCHITECTURE} and later only"
        )
    if not gpu.shared:
        return Check(
            name, HardwareVerdict.NOTE, finding, f"it takes one process at a time: nvidia-smi -i {gpu.index} -c DEFAULT"
        )
    return Check(name, HardwareVerdict.GOOD, f"{finding}; --device cuda:{gpu.index}")


def check_quota(root: Path = Path("/")) -> list[Check]:
    """Say what a control group allows this process of its cores; nothing where none limits it.

    `root` is where `proc` and `sys` lie.
    """
    quota = cpu_quota(root)
    if quota is None:
        return []
    cores = len(physical_cores())
    finding = f"{quota.cores:g} of {counted(cores, 'core')}, by {quota.group}"
    if quota.cores >= cores:
        return [Check("CPU quota", HardwareVerdict.GOOD, finding)]
    threads = threads_within(cores, root)
    remedy = f"Kintune uses {threads} thread{'s' if threads > 1 else ''} by default; a larger quota allows more"
    return [Check("CPU quota", HardwareVerdict.NOTE, finding, remedy)]


def check_temporary_folder() -> Check:
    """Check that code may be mapped from files in the folder for temporary files.

    Candidates are loaded from there, and the operators of results that run partly in onnxruntime.
    """
    name, remedy = "temporary folder", "name another folder in TMPDIR, one from which programs may run"
    try:
        folder = tempfile.gettempdir()
        with tempfile.NamedTemporaryFile(prefix="kintune-doctor-") as file:
            file.write(bytes(mmap.PAGESIZE))
            file.flush()
            try:
                mmap.mmap(file.fileno(), mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
            except OSError as error:
                finding = f"programs may not run from {folder}: {error.strerror or error}"
                return Check(name, HardwareVerdict.PROBLEM, finding, remedy)
    except OSError as error:
        return Check(name, HardwareVerdict.PROBLEM, f"no file can be written: {error.strerror or error}", remedy)
    return Check(name, HardwareVerdict.GOOD, folder)


_DEVICE_WORKER = "kintune.workers.device_worker"


def check_peak(location: str | None, *, again: bool = False, on_wait: Callable[[str], None] | None = None) -> Check:
    """Measure the peak of this machine with all its cores, and store it in the records at `location`.

    Waits for another process that holds the cores; `on_wait` is called with its id.  `again` measures anew where the
    records have a peak.
    """
    cores = choose_cores(0)
    try:
        with (
            Store.open(location) as store,
            cores_lock(cores, on_wait),
            interview(_DEVICE_WORKER, ("--target", "native", "--threads", str(len(cores)))) as device,
        ):
            about = msgspec.msgpack.decode(device.about, type=DeviceDescription)
            peak = device_peak(device, about, store, again=again)
    except KintuneError as error:
        return Check("measured peak", HardwareVerdict.PROBLEM, str(error), "fix this; tuning needs the same worker")
    return Check("measured peak", HardwareVerdict.GOOD, described(peak))


def described(peak: Peak) -> str:
    """Describe a peak in one line."""
    reading = f" and reading {count(peak.read_gbytes_per_s * 1e9, 'B')}" if peak.read_gbytes_per_s else ""
    rates = (f"{count(gflops * 1e9, 'FLOP')} in {each}" for each, gflops in sorted((peak.narrow_gflops or {}).items()))
    narrow = ", ".join(rates)
    return (
        f"{count(peak.gflops * 1e9, 'FLOP')} a second with {counted(peak.threads, 'thread')}"
        f"{narrow and f' ({narrow})'}, streaming {count(peak.gbytes_per_s * 1e9, 'B')}{reading} a second"
    )


def check_narrow(
    location: str | None, *, again: bool = False, on_wait: Callable[[str], None] | None = None
) -> list[Check]:
    """Measure how much faster instructions for narrower precisions are here; store that in the records at `location`.

    No finding is a problem: what does not work, or is no faster than fp32, is never offered.  Without such instructions
    there is no check.  `again` and `on_wait` are as for `check_peak`.
    """
    cores = choose_cores(0)
    try:
        with (
            Store.open(location) as store,
            cores_lock(cores, on_wait),
            interview(_DEVICE_WORKER, ("--target", "native", "--threads", str(len(cores)))) as device,
        ):
            about = msgspec.msgpack.decode(device.about, type=DeviceDescription)
            speeds = narrow_speeds(device, about, store, again=again)
    except KintuneError as error:
        return [Check("narrower precisions", HardwareVerdict.NOTE, str(error), "none is used before it is measured")]
    slow = avoided_extensions(speeds)
    return [
        _narrow_check(speed, avoided=bool(slow) and (speed.instructions, speed.precision) == (BY_AMX, INT8))
        for speed in speeds
    ]


def _narrow_check(speed: NarrowSpeed, *, avoided: bool) -> Check:
    name = f"{speed.precision} by {speed.instructions}"
    if speed.problem:
        return Check(name, HardwareVerdict.NOTE, speed.problem, "it is not used")
    finding = f"works, {speed.times_fp32:.1f} times fp32"
    offered = speed.is_faster and not avoided
    return Check(name, HardwareVerdict.GOOD, finding if offered else f"{finding}: it is not used")


def check_isolation() -> list[Check]:
    """Say which layers confine the processes of `kintune tune --isolate` and of a service here, and what each does.

    No finding is a problem: a machine that tunes its user's own models needs none of them.
    """
    return [
        Check(
            f"isolation: {layer.name}",
            HardwareVerdict.GOOD if layer.is_on else HardwareVerdict.NOTE,
            f"{layer.finding} ({layer.does})" if layer.is_on else layer.finding,
            layer.remedy,
        )
        for layer in layers()
    ]


def check_records(location: str | None) -> list[Check]:
    """Open the records at `location` (the default place when None), without creating any."""
    where = location or Store.default_location()
    if not Store.are_at(where):
        return [
            Check(
                "records", HardwareVerdict.NOTE, f"{where} does not exist yet; it is created when something is stored"
            )
        ]
    try:
        with Store.open(where, create=False) as store:
            counts = store.counts()
            finding = f"{store.where}: {counted(counts.runs, 'run')}, {counted(counts.measurements, 'measurement')}"
            notices = [Check("records", HardwareVerdict.NOTE, store.notice)] if store.notice else []
            return [Check("records", HardwareVerdict.GOOD, finding), *notices]
    except (RecordsError, StorageError) as error:
        return [
            Check(
                "records", HardwareVerdict.PROBLEM, str(error), "choose another with --records, or move this one away"
            )
        ]
