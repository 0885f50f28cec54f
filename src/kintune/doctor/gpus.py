"""Whether this machine has GPUs, and what programs for them are compiled with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kintune.doctor.check import Check, Verdict
from kintune.errors import OrderError
from kintune.measure.cuda.gpus import Gpu, list_gpus
from kintune.measure.cuda.nvcc import find_nvcc

__all__ = ["check_gpus"]


def check_gpus(gpus: Callable[[], Sequence[Gpu]] = list_gpus, nvcc: Callable[[], str] = find_nvcc) -> list[Check]:
    """One check of each GPU, and, where there is a GPU or a CUDA compiler, one of that.

    None of them is ever a problem: without either a machine tunes for its CPU.
    """
    found = gpus()
    checks = [
        Check(
            f"GPU {gpu.index}",
            Verdict.GOOD,
            f"{gpu.name}, {gpu.architecture}, {gpu.memory_mb} MB, driver {gpu.driver}; --device cuda:{gpu.index}",
        )
        for gpu in found
    ] or [Check("GPUs", Verdict.GOOD, "none")]
    try:
        checks.append(Check("CUDA compiler", Verdict.GOOD, nvcc()))
    except OrderError:
        if found:
            remedy = "install the CUDA toolkit, version 13, or name it in CUDA_HOME"
            checks.append(Check("CUDA compiler", Verdict.NOTE, "none; nothing can be tuned for the GPUs", remedy))
    return checks
