"""Sends tensors out of all caches: where the processor can do that without waiting for each line, in little time."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import tvm
import tvm_ffi
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.measure.guarded_memory import numpy_dtype

__all__ = ["Evict", "evictor"]

Evict = Callable[..., None]
"""Sends the tensors that it is given to memory, and returns when they are there."""

_FEATURE = "clflushopt"
_LINE = 64
_HOST_FEATURES = "tvm.codegen.llvm.GetHostCPUFeatures"
_ENTRY = "evict"


@cache
def evictor(threads: int) -> Evict:
    """The fastest way that this processor has, with so many of the runtime's threads.

    `clflushopt` is not ordered with its like, so that lines leave side by side: 9.4 MB in 0.2 ms with two threads.  The
    compiler's own way, which serves every processor, waits for each line: 5 ms.
    """
    if dict(tvm_ffi.get_global_func(_HOST_FEATURES)()).get(_FEATURE, False):
        return _side_by_side(threads)
    flush = tvm_ffi.get_global_func("cache_flush_cpu_non_first_arg")

    def evict(*tensors: Any) -> None:
        if tensors:
            flush(tensors[0], *tensors)

    return evict


def _side_by_side(threads: int) -> Evict:
    program = tvm.IRModule({_ENTRY: _program(threads).with_attr("global_symbol", _ENTRY)})
    module = tvm.compile(program, tvm.target.Target({"kind": "llvm", "mattr": [f"+{_FEATURE}"]})).mod
    flush = module[_ENTRY]

    def evict(*tensors: Any) -> None:
        for tensor in tensors:
            flush(tensor._create_view((math.prod(tensor.shape) * numpy_dtype(str(tensor.dtype)).itemsize,), "uint8"))

    return evict


def _program(threads: int) -> Any:
    line = _LINE

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def evict(handle: T.handle):  # type: ignore[no-untyped-def]
        length = T.int64()
        data = T.match_buffer(handle, (length,), "uint8")
        for part in T.parallel(threads):
            for i in T.serial(length // (threads * line) + 1):
                T.evaluate(
                    T.call_llvm_intrin(
                        "void",
                        "llvm.x86.clflushopt",
                        T.address_of(data[T.min(length - 1, (part * (length // (threads * line) + 1) + i) * line)]),
                    )
                )
            T.evaluate(T.call_llvm_intrin("void", "llvm.x86.sse2.mfence"))

    return evict
