"""Gets the compiler of this process ready to make machine code for GPUs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm_ffi.libinfo import load_lib_ctypes

from kintune.errors import OrderError
from kintune.measure.cuda.driver import provide_driver
from kintune.measure.cuda.gpus import GPU
from kintune.measure.cuda.nvcc import compile_cubin, find_nvcc

__all__ = ["compiling_for", "enable_cuda", "load_runtime"]

_CREATE = "ffi.Module.create.cuda"
_COMPILE = "tvm_callback_cuda_compile"


def compiling_for(target: tvm.target.Target) -> AbstractContextManager[Any]:
    """Within what programs for this target must be compiled; whatever that needs is ready from now on.

    Raises:
        OrderError: it is a GPU, and there is nothing to compile for one with.
    """
    if target.kind.name != GPU:
        return nullcontext()
    enable_cuda()
    within: AbstractContextManager[Any] = target
    return within


@cache
def enable_cuda() -> None:
    """Let this process build programs for GPUs, whether or not it has one.

    Raises:
        OrderError: there is no CUDA compiler, or a part of its toolkit is missing.
    """
    find_nvcc()
    load_runtime()
    tvm_ffi.register_global_func(_COMPILE, _compile, override=True)


@cache
def load_runtime() -> bool:
    """Load the compiler's CUDA runtime, unless that was done; returns whether this machine has a driver for GPUs.

    Raises:
        OrderError: a library that it needs is missing.
    """
    real = provide_driver()
    if tvm_ffi.get_global_func(_CREATE, allow_missing=True) is None:
        folder = Path(tvm.__file__).parent / "lib"
        try:
            load_lib_ctypes(package="tvm", target_name="tvm_runtime_cuda", extra_lib_paths=[folder], mode="RTLD_LOCAL")
        except (OSError, RuntimeError) as error:
            first = str(error).strip().partition("\n")[0]
            raise OrderError(
                f"the compiler's CUDA runtime cannot be loaded: {first}; install the CUDA toolkit"
            ) from error
    return real


def _compile(code: str) -> bytes:
    """Called by the compiler with each CUDA source, within its target."""
    return compile_cubin(str(code), str(tvm.target.Target.current().attrs["arch"]))
