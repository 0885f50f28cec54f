"""The runtime's thread pool: how many threads, and on which cores."""

from __future__ import annotations

import os

import tvm

from kintune.hardware.cores import physical_cores

__all__ = ["BIND_VARIABLE", "THREADS_VARIABLE", "prepare_threads"]

THREADS_VARIABLE = "TVM_NUM_THREADS"
"""Read by the runtime at its first parallel call; without it, it takes half of the processors it sees."""

BIND_VARIABLE = "TVM_BIND_THREADS"
"""`0` leaves it to the kernel where threads run."""

_ONE_CORE_PER_THREAD = -2


def prepare_threads(threads: int) -> None:
    """Give this process's pool `threads` threads, but no more than physical cores it may use, one on each.

    `TVM_NUM_THREADS` overrides the number, and so does a pool that has run already: it never grows.  The runtime by
    itself binds its threads to the machine's first processors, whether this process may use them or not, and to both
    halves of a core where those are neighbours.
    """
    cores = physical_cores()
    count = int(os.environ.setdefault(THREADS_VARIABLE, str(max(1, min(threads, len(cores))))))
    if os.environ.get(BIND_VARIABLE) == "0" or count > len(cores):
        return
    before = os.sched_getaffinity(0)
    tvm.get_global_func("runtime.config_threadpool")(_ONE_CORE_PER_THREAD, count, [str(c) for c in cores[:count]])
    os.sched_setaffinity(0, before)  # the runtime changes that of the calling thread too
