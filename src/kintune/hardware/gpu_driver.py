"""A stand-in for the driver of NVIDIA GPUs, so that programs for them can be built where there is none.

The compiler's CUDA runtime, without which it makes no machine code for GPUs, names functions of the driver and is not
loaded unless somebody has them.  Building calls none of them.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

from kintune.errors import OrderError
from kintune.hardware.linker import find_linker

__all__ = ["provide_driver"]

_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

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
"""What the compiler's CUDA runtime asks of the driver."""


def provide_driver() -> None:
    """Load the driver's library into this process, or what stands in for it.

    Call it before the compiler's CUDA runtime is loaded.

    Raises:
        OrderError: there is neither a driver nor a C compiler to make the stand-in with.
    """
    try:
        ctypes.CDLL(_DRIVER, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        _load_stand_in()


def _load_stand_in() -> None:
    source = "".join(f"int {name}(void) {{ return {_NO_DEVICE}; }}\n" for name in _FUNCTIONS)
    compiler = find_linker()
    with tempfile.TemporaryDirectory(prefix="kintune-driver-") as folder:
        code, library = Path(folder) / "driver.c", Path(folder) / _DRIVER
        code.write_text(source)
        command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{_DRIVER}", "-o", str(library), str(code)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            line = next((line for line in done.stderr.splitlines() if line.strip()), "no message")
            raise OrderError(f"no GPU driver, and {compiler} makes none to build with: {line[:200]}")
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
