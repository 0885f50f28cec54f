"""Which GPUs this machine has, as its driver's own program says, and which targets are GPUs; free of TVM."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess

import msgspec

__all__ = ["GPU", "ORDER_VARIABLE", "VISIBLE_VARIABLE", "Gpu", "architecture_here", "is_gpu", "list_gpus"]

GPU = "cuda"
"""The compiler's kind of target of NVIDIA's GPUs."""

ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
"""Tells a process's CUDA runtime how to count GPUs."""

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Tells a process's CUDA runtime which GPUs there are, and in which order."""

_PROGRAM = "nvidia-smi"
_COLUMNS = ("index", "name", "compute_cap", "memory.total", "driver_version")
_SECONDS = 20.0


class Gpu(msgspec.Struct, frozen=True):
    """One GPU: its number, what it calls itself, its architecture ("sm_90"), its memory and its driver's version."""

    index: int
    name: str
    architecture: str
    memory_mb: int
    driver: str


def list_gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine, in the driver's order; none where there is no driver, or one that does not answer."""
    program = shutil.which(_PROGRAM)
    if program is None:
        return ()
    command = [program, f"--query-gpu={','.join(_COLUMNS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(filter(None, map(_gpu, csv.reader(done.stdout.splitlines())))) if done.returncode == 0 else ()


def architecture_here() -> str | None:
    """The architecture of the first GPU that this process may use; None where it has none."""
    first = os.environ.get(VISIBLE_VARIABLE, "0").partition(",")[0].strip()
    return next((gpu.architecture for gpu in list_gpus() if str(gpu.index) == first), None)


def is_gpu(target: str) -> bool:
    """Whether this canonical target is a GPU."""
    return bool(json.loads(target).get("kind") == GPU)


def _gpu(row: list[str]) -> Gpu | None:
    """None for a line that does not say what was asked (a GPU that has fallen off the bus says "[N/A]")."""
    try:
        index, name, capability, memory, driver = map(str.strip, row)
        major, minor = capability.split(".")
        return Gpu(int(index), name, f"sm_{int(major)}{int(minor)}", int(float(memory)), driver)
    except ValueError:
        return None
