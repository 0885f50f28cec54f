"""Denormal numbers in the threads of the compiler's own pool, in which candidates are timed.

The native runtime has threads of its own, and does this by itself.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import tvm

from kintune_runtime.library import library

__all__ = ["set_pool_denormals"]

_RUNTIME = "libtvm_runtime.so"


def set_pool_denormals(flush: bool) -> None:
    """Make the pool's threads flush denormal numbers to zero, or keep them, from now on.

    The calling thread, which runs a part of each launch, is set as well: use it within `Flushing`.  Each thread that
    launches kernels has a pool of its own, whose number of threads may change: so call this before each run in which
    the state matters.  It takes 1 to 3 us while the pool is awake.
    """
    launch, task = _calls()
    launch(task, int(flush) or None, 0)  # 0: a task for each thread of the pool


@functools.cache
def _calls() -> tuple[Any, ctypes.c_void_p]:
    """The runtime's parallel launch, and the task that sets a thread."""
    runtime = ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / _RUNTIME))  # which is loaded already
    launch = runtime.TVMBackendParallelLaunch
    launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    return launch, ctypes.cast(library().kt_denormals_task, ctypes.c_void_p)
