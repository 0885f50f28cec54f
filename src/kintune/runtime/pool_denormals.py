"""Denormal numbers in the threads of the compiler's own pool, in which candidates are timed.

The native runtime has threads of its own, and does this by itself.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import tvm

from kintune_runtime.library import library

__all__ = ["set_pool_denormals"]

_RUNTIME = "libtvm_runtime.so"
_state: tuple[int, bool] | None = None  # the process whose pool was set, and how


def set_pool_denormals(flush: bool) -> None:
    """Make the pool's threads flush denormal numbers to zero, or keep them, from now on.

    The calling thread, which runs a part of each launch, is set as well: use it within `Flushing`.
    """
    global _state
    if _state == (os.getpid(), flush):
        return
    runtime = ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / _RUNTIME))  # which is loaded already
    launch = runtime.TVMBackendParallelLaunch
    launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    task = ctypes.cast(library().kt_denormals_task, ctypes.c_void_p)
    launch(task, int(flush) or None, 0)  # 0: a task for each thread
    _state = (os.getpid(), flush)
