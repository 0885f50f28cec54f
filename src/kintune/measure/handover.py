"""What it costs a core to read what another one has just written: whether the cores are neighbours, at this moment.

Processors are made of groups of cores with a last cache each.  Between two groups a line takes several times as long
as within one.  A virtual machine sees its cores in one group, wherever its host runs them, and the host may move them
every few seconds; a kernel that is timed alone hardly notices, a network whose kernels hand their results on does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.measure.guarded import Guarded
from kintune.measure.sweep import compiled, reading

__all__ = ["Handover", "handover"]

_LINE = 64
_FLOATS = _LINE // 4
_LOOKS = 11
_LEAST_BYTES = 1 << 17


class Handover:
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
def handover(threads: int, cache_bytes: int) -> Handover:
    """That of `threads` cores with so much of second-level cache each, of which half is handed on.

    Its functions run on the runtime's threads; with a single one, all is its own.
    """
    rows = max(_LEAST_BYTES, cache_bytes // 2) // _LINE * threads
    held = Guarded.of((rows, _FLOATS), "float32")
    held.array((rows, _FLOATS), "float32")[...] = 0
    data = held.tensor((rows, _FLOATS), "float32")
    out = tvm.runtime.tensor(np.zeros((threads, _FLOATS), np.float32))
    write, own, others = map(compiled, (_writing(threads), reading(threads), reading(threads, 1)))

    def seconds(read: Any) -> float:
        write(data, out)
        start = time.perf_counter()
        read(data, out)
        return time.perf_counter() - start

    return Handover(lambda: seconds(own), lambda: seconds(others))


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
