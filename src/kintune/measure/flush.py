"""Sends everything out of the cores' own caches, as far as the last cache that they share and no further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.measure.guarded_memory import GuardedMemory, numpy_dtype

__all__ = ["Sweep", "compiled", "reading", "sweeper"]

Sweep = Callable[[Sequence[Any]], None]
"""Sends everything out of the cores' own caches, and then brings the tensors that it is given back into them."""

_LINE = 64
_FLOATS = _LINE // 4
_ENTRY = "main"
_TIMES = 2  # as much as the cache holds must pass through it more than once: it does not replace strictly by age


@cache
def sweeper(threads: int, cache_bytes: int) -> Sweep:
    """That of `threads` cores with so much of second-level cache each.

    Each thread reads memory of its own, twice what its cache holds: what was there goes to the last cache, where there
    is one.  Tensors are brought back in equal parts, one for each thread, as most kernels share them out.  With two
    threads and a megabyte each that takes 33 us.
    """
    read = compiled(reading(threads))
    rows = _TIMES * cache_bytes // _LINE * threads
    ballast = GuardedMemory.of((rows, _FLOATS), "float32")
    ballast.array((rows, _FLOATS), "float32")[...] = 0
    own = ballast.tensor((rows, _FLOATS), "float32")
    out = tvm.runtime.tensor(np.zeros((threads, _FLOATS), np.float32))

    def sweep(tensors: Sequence[Any]) -> None:
        read(own, out)
        for tensor in tensors:
            nbytes = int(np.prod(tensor.shape)) * numpy_dtype(str(tensor.dtype)).itemsize
            if nbytes >= _LINE:
                read(tensor._create_view((nbytes // _LINE, _FLOATS), "float32"), out)

    return sweep


def compiled(function: Any) -> Any:
    """A function of tensors as one that can be called here."""
    module = tvm.IRModule({_ENTRY: function.with_attr("global_symbol", _ENTRY)})
    return tvm.compile(module, tvm.target.Target("llvm")).mod[_ENTRY]


def reading(threads: int, neighbour: int = 0) -> Any:
    """Reads a tensor of so many rows of a cache line each in equal parts, a part a thread, into one line a thread.

    A thread reads its own part, or that of the thread so many places further.
    """
    floats = _FLOATS

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def read(handle: T.handle, out: T.Buffer((threads, floats), "float32")):  # type: ignore[no-untyped-def,valid-type]
        rows = T.int64()
        data = T.match_buffer(handle, (rows, floats), "float32")
        for part in T.parallel(threads):
            with T.sblock("read"):
                total = T.sblock_alloc_buffer((1,), "float32")
                total[0] = T.float32(0.0)
                for i in T.serial((rows + threads - 1) // threads):
                    total[0] = T.max(
                        total[0],
                        data[T.min(rows - 1, (part + neighbour) % threads * ((rows + threads - 1) // threads) + i), 0],
                    )
                out[part, 0] = total[0]

    return read
