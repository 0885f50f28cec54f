"""Waiting for a device's cores to be neighbours."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.measure.flush import compiled, reading
from kintune.measure.guarded_memory import GuardedMemory

__all__ = ["APART", "CoreLatency", "CoreLocality", "core_latency"]


APART = 1.5
"""Cores are apart when a handover costs this many times what it has cost at the least, but for one lucky look."""

_NAP_S = 0.01


_WAIT_S = 1.0


_PATIENCE = 3


class CoreLocality:
    """Waits for cores that are apart to come together: after a pause a host puts them where they are neighbours.

    What a handover costs at the least is learnt as it goes, so cores that are always apart count as together.  Where
    waiting was in vain some times, nothing is waited for any more until they were found together again.
    """

    def __init__(
        self,
        ratio: Callable[[], float],
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`ratio` tells what a handover costs; `clock` tells seconds, and `sleep` passes some."""
        self._ratio = ratio
        self._clock = clock
        self._sleep = sleep
        self._least: list[float] = []
        self._in_vain = 0

    def gather(self) -> bool:
        """Whether the cores are together, after a second of short pauses at most."""
        deadline = self._clock() + (_WAIT_S if self._in_vain < _PATIENCE else 0.0)
        while not (together := self._are_together()) and self._clock() < deadline:
            self._sleep(_NAP_S)
        self._in_vain = 0 if together else self._in_vain + 1
        return together

    def _are_together(self) -> bool:
        ratio = self._ratio()
        self._least = heapq.nsmallest(2, (*self._least, ratio))
        return ratio <= APART * self._least[-1]


_LINE = 64


_FLOATS = _LINE // 4


_LOOKS = 11


_LEAST_BYTES = 1 << 17


class CoreLatency:
    """Compares reading what a core itself wrote with reading what its neighbour wrote."""

    def __init__(self, own: Callable[[], float], others: Callable[[], float]) -> None:
        """Both write, and return the seconds of reading what was written."""
        self._own = own
        self._others = others

    def ratio(self) -> float:
        """How many times as long it takes to read what another core wrote: the least of some looks, half a millisecond.

        Who was interrupted, or had to be woken, is no slower than the least.
        """
        pairs = [(self._own(), self._others()) for _ in range(_LOOKS)]
        return min(others for _, others in pairs) / min(own for own, _ in pairs)


@cache
def core_latency(threads: int, cache_bytes: int) -> CoreLatency:
    """That of `threads` cores with so much of second-level cache each, of which half is handed on.

    Its functions run on the runtime's threads; with a single one, all is its own.
    """
    rows = max(_LEAST_BYTES, cache_bytes // 2) // _LINE * threads
    held = GuardedMemory.of((rows, _FLOATS), "float32")
    held.array((rows, _FLOATS), "float32")[...] = 0
    data = held.tensor((rows, _FLOATS), "float32")
    out = tvm.runtime.tensor(np.zeros((threads, _FLOATS), np.float32))
    write, own, others = map(compiled, (_writing(threads), reading(threads), reading(threads, 1)))

    def seconds(read: Any) -> float:
        write(data, out)
        start = time.perf_counter()
        read(data, out)
        return time.perf_counter() - start

    return CoreLatency(lambda: seconds(own), lambda: seconds(others))


def _writing(threads: int) -> Any:
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
