"""The GPUs of this machine, as nvidia-smi lists them, and the library of their driver.  Free of TVM."""

from __future__ import annotations

import csv
import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from kintune.errors import OrderError
from kintune.hardware.toolchain import compiler_command, find_linker

__all__ = [
    "ORDER_VARIABLE",
    "VISIBLE_VARIABLE",
    "Gpu",
    "architecture_here",
    "list_gpus",
    "provide_driver",
]


ORDER_VARIABLE = "CUDA_DEVICE_ORDER"
"""The environment variable with the order in which the CUDA runtime numbers GPUs."""

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable with the GPUs that the CUDA runtime may use, and their order."""

_PROGRAM = "nvidia-smi"
_COLUMNS = (
    "index",
    "uuid",
    "name",
    "compute_cap",
    "memory.total",
    "driver_version",
    "compute_mode",
    "mig.mode.current",
)
_SECONDS = 20.0
_SHARED = "Default"  # compute mode
_IN_PARTS = "Enabled"  # MIG mode

_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


class Gpu(msgspec.Struct, frozen=True):
    """One GPU: its number, its name, its architecture ("sm_90"), its memory and its driver's version.

    `memory_mb` is 0 where the GPU has none of its own.  If it is `shared`, several processes can use it at once.
    """

    index: int
    name: str
    architecture: str
    memory_mb: int = 0
    driver: str = ""
    uuid: str = ""
    shared: bool = True


def list_gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process may use, in its order; none where there is no driver, or one that does not answer.

    What `CUDA_VISIBLE_DEVICES` leaves out is not there.  A GPU that was divided (MIG) is not there either: its parts
    are not told apart.
    """
    program = shutil.which(_PROGRAM)
    if program is None:
        return ()
    command = [program, f"--query-gpu={','.join(_COLUMNS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if done.returncode != 0:
        return ()
    return _visible([gpu for row in csv.reader(done.stdout.splitlines()) if (gpu := _gpu(row)) is not None])


def architecture_here() -> str | None:
    """The architecture of the first GPU that this process may use; None where it has none."""
    return next((gpu.architecture for gpu in list_gpus()), None)


def _visible(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    """Those that the variable names, by number or the beginning of their identity, up to the first that is missing."""
    named = os.environ.get(VISIBLE_VARIABLE)
    if named is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for word in map(str.strip, named.split(",")):
        meant = [gpu for gpu in gpus if word and (str(gpu.index) == word or _is_identity(word, gpu))]
        if len(meant) != 1:
            break
        found += meant
    return tuple(found)


def _is_identity(word: str, gpu: Gpu) -> bool:
    return word.startswith("GPU-") and gpu.uuid.startswith(word)


def _gpu(row: list[str]) -> Gpu | None:
    """Return the GPU of one line of nvidia-smi; None if it is divided (MIG), or the line lacks a value.

    The values of a GPU that fell off the bus are "[N/A]".
    """
    try:
        index, uuid, name, capability, memory, driver, mode, parts = map(str.strip, row)
        if parts == _IN_PARTS:
            return None
        major, minor = capability.split(".")
        memory_mb = int(float(memory)) if memory[:1].isdigit() else 0
        return Gpu(int(index), name, f"sm_{int(major)}{int(minor)}", memory_mb, driver, uuid, mode == _SHARED)
    except ValueError:
        return None


_FUNCTIONS = (
    "cuDeviceGetName",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernelEx",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuTensorMapEncodeTiled",
)
"""The functions of the driver's library that the compiler's CUDA runtime links to."""


def provide_driver() -> None:
    """Load the driver's library into this process, or without a driver a stand-in whose functions report no device.

    Call it before the compiler's CUDA runtime is loaded.

    Raises:
        OrderError: there is neither a driver nor a C compiler to make the stand-in with.
    """
    try:
        ctypes.CDLL(_DRIVER, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        _load_stand_in()


def _load_stand_in() -> None:
    """Compile and load a library of the driver's name in which all of `_FUNCTIONS` return CUDA_ERROR_NO_DEVICE."""
    source = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in _FUNCTIONS)
    compiler = find_linker()
    with tempfile.TemporaryDirectory(prefix="kintune-driver-") as folder:
        code, library = Path(folder) / "driver.c", Path(folder) / _DRIVER
        code.write_text(source)
        command = [
            *compiler_command(compiler),
            "-shared",
            "-fPIC",
            f"-Wl,-soname,{_DRIVER}",
            "-o",
            str(library),
            str(code),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            line = next((line for line in done.stderr.splitlines() if line.strip()), "no message")
            raise OrderError(f"no GPU driver, and {compiler} makes none to build with: {line[:200]}")
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
