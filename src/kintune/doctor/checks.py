"""Whether this machine has GPUs, and what programs for them are compiled with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kintune.errors import OrderError
from kintune.hardware.check import Check, Verdict
from kintune.hardware.gpus import Gpu, list_gpus
from kintune.hardware.toolchain import find_nvcc

__all__ = ["check_gpus"]

_LEAST_DRIVER, _LEAST_ARCHITECTURE = 580, 75  # those of CUDA 13


def check_gpus(gpus: Callable[[], Sequence[Gpu]] = list_gpus, nvcc: Callable[[], str] = find_nvcc) -> list[Check]:
    """One check of each GPU, and, where there is a GPU or a CUDA compiler, one of that.

    None of them is ever a problem: without either a machine tunes for its CPU.
    """
    found = gpus()
    checks = [_check(gpu) for gpu in found] or [Check("GPUs", Verdict.GOOD, "none")]
    try:
        checks.append(Check("CUDA compiler", Verdict.GOOD, nvcc()))
    except OrderError as error:
        if found:
            finding, _, remedy = str(error).rpartition(": ")
            checks.append(Check("CUDA compiler", Verdict.NOTE, finding, remedy))
    return checks


def _check(gpu: Gpu) -> Check:
    name = f"GPU {gpu.index}"
    memory = f", {gpu.memory_mb} MB" if gpu.memory_mb else ""
    finding = f"{gpu.name}, {gpu.architecture}{memory}, driver {gpu.driver}"
    version = gpu.driver.partition(".")[0]
    if version.isdigit() and int(version) < _LEAST_DRIVER:
        return Check(name, Verdict.NOTE, finding, f"CUDA 13 needs driver {_LEAST_DRIVER} or later")
    if int(gpu.architecture.removeprefix("sm_")) < _LEAST_ARCHITECTURE:
        return Check(name, Verdict.NOTE, finding, f"CUDA 13 compiles for sm_{_LEAST_ARCHITECTURE} and later only")
    if not gpu.shared:
        return Check(
            name, Verdict.NOTE, finding, f"it takes one process at a time: nvidia-smi -i {gpu.index} -c DEFAULT"
        )
    return Check(name, Verdict.GOOD, f"{finding}; --device cuda:{gpu.index}")
