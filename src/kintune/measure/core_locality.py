"""Core locality: measures the latency between cores, and waits for cores that are far apart to come together."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.measure.flush import compile_function, reading_function
from kintune.measure.guarded_memory import GuardedMemory

__all__ = ["APART_RATIO", "CoreLatency", "CoreLocality", "core_latency"]


APART_RATIO = 1.5
"""Cores are apart when a handover costs this many times its least cost so far (the second least, against outliers)."""

_PAUSE_S = 0.01
_WAIT_S = 1.0
_PATIENCE = 3  # fruitless waits, after which cores that are apart are not waited for
_LINE = 64  # bytes
_FLOATS = _LINE // 4
_SAMPLES = 11
_LEAST_BYTES = 1 << 17


class CoreLocality:
    """Waits for cores that are apart to come together: a host moves them back to neighbouring places after a pause.

    The least cost of a handover between cores is learnt along the way, so cores that are always apart count as
    together.  After some fruitless waits there are no more, until the cores were found together again.
    """

    def __init__(
        self,
        ratio: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`ratio` measures the cost of a handover, see `CoreLatency`; `clock` and `sleep` are those of `time`."""
        self._ratio = ratio
        self._clock = clock
        self._sleep = sleep
        self._least: list[float] = []
        self._fruitless = 0

    def wait(self) -> bool:
        """Waits at most a second, in short pauses, and returns whether the cores are together."""
        deadline = self._clock() + (_WAIT_S if self._fruitless < _PATIENCE else 0.0)
        while not (together := self._are_together()) and self._clock() < deadline:
            self._sleep(_PAUSE_S)
        self._fruitless = 0 if together else self._fruitless + 1
        return together

    def _are_together(self) -> bool:
        ratio = self._ratio()
        self._least = heapq.nsmallest(2, (*self._least, ratio))
        return ratio <= APART_RATIO * self._least[-1]


class CoreLatency:
    """Compares reading what a core itself wrote with reading what its neighbour wrote."""

    def __init__(self, own: Callable[[], float], others: Callable[[], float]) -> None:
        """Both functions write and then read; they return the seconds of the reading."""
        self._own = own
        self._others = others

    def ratio(self) -> float:
        """Returns how many times as long it takes to read what another core wrote; takes half a millisecond.

        It divides the least times of some samples: interruptions and wake-ups do not change the least.
        """
        pairs = [(self._own(), self._others()) for _ in range(_SAMPLES)]
        return min(others for _, others in pairs) / min(own for own, _ in pairs)


@cache
def core_latency(threads: int, cache_bytes: int) -> CoreLatency:
    """Returns the latency of `threads` cores with `cache_bytes` of second-level cache each, half of which is read.

    Its functions run on the runtime's threads; a single thread has no neighbour and reads its own part.
    """
    rows = max(_LEAST_BYTES, cache_bytes // 2) // _LINE * threads
    held = GuardedMemory.of((rows, _FLOATS), "float32")
    held.array((rows, _FLOATS), "float32")[...] = 0
    data = held.tensor((rows, _FLOATS), "float32")
    out = tvm.runtime.tensor(np.zeros((threads, _FLOATS), np.float32))
    functions = (_writing_function(threads), reading_function(threads), reading_function(threads, 1))
    write, own, others = map(compile_function, functions)

    def seconds(read: Any) -> float:
        write(data, out)
        start = time.perf_counter()
        read(data, out)
        return time.perf_counter() - start

    return CoreLatency(lambda: seconds(own), lambda: seconds(others))


def _writing_function(threads: int) -> Any:
    """Returns a TIR function that writes one value to each row of a tensor, in equal parts, a part a thread."""
    floats = _FLOATS

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def write(handle: T.handle, out: T.Buffer((threads, floats), "float32")):  # type: ignore[no-untyped-def,valid-type]
        rows = T.int64()
        data = T.match_buffer(handle, (rows, floats), "float32")
        for part in T.parallel(threads):
            with T.sblock("write"):
                for i in T.serial(rows // threads):
                    data[part * (rows // threads) + i, 0] = out[part, 0]

    return write
