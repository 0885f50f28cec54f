"""Prepares the compiler in this process for generating GPU code."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm_ffi.libinfo import load_lib_ctypes

from kintune.errors import OrderError
from kintune.hardware.gpus import ORDER_VARIABLE, provide_driver
from kintune.hardware.toolchain import compile_cubin, find_nvcc
from kintune.runtime.target import capabilities
from kintune.runtime.tvm_state import function_registered

__all__ = ["compiling_for", "load_runtime"]

_CREATE = "ffi.Module.create.cuda"
_TOOLKIT = "libcudart.so.13"
_COMPILE = "tvm_callback_cuda_compile"


def compiling_for(target: tvm.target.Target) -> AbstractContextManager[Any]:
    """Returns the context in which programs for this target must be compiled, and prepares the compiler for it.

    Raises:
        OrderError: it needs a compiler beside LLVM, and that is missing.
    """
    if not capabilities(target).compiler:
        return nullcontext()
    find_nvcc()
    load_runtime()
    return _within(target)


@contextmanager
def _within(target: tvm.target.Target) -> Iterator[None]:
    with target, function_registered(_COMPILE, _compile):
        yield


@cache
def load_runtime() -> None:
    """Load the compiler's CUDA runtime, unless that was done.

    Raises:
        OrderError: a library that it needs is missing.
    """
    os.environ.setdefault(ORDER_VARIABLE, "PCI_BUS_ID")  # as the driver's own program counts them
    provide_driver()
    if tvm_ffi.get_global_func(_CREATE, allow_missing=True) is None:
        folder = Path(tvm.__file__).parent / "lib"
        try:
            _load_toolkit()
            load_lib_ctypes(package="tvm", target_name="tvm_runtime_cuda", extra_lib_paths=[folder], mode="RTLD_LOCAL")
        except (OSError, RuntimeError) as error:
            first = str(error).strip().partition("\n")[0]
            raise OrderError(
                f"the compiler's CUDA runtime cannot be loaded: {first}; install the CUDA toolkit, version 13"
            ) from error


def _load_toolkit() -> None:
    """Loads the toolkit's runtime library, from beside its compiler where the system does not find it."""
    with suppress(OSError):
        ctypes.CDLL(_TOOLKIT, mode=ctypes.RTLD_GLOBAL)
        return
    for folder in ("lib64", "lib"):
        with suppress(OSError):
            ctypes.CDLL(str(Path(find_nvcc()).resolve().parents[1] / folder / _TOOLKIT), mode=ctypes.RTLD_GLOBAL)
            return


def _compile(code: str) -> bytes:
    """Compiles a CUDA source; the compiler calls it within its target."""
    return compile_cubin(str(code), str(tvm.target.Target.current().attrs["arch"]))
