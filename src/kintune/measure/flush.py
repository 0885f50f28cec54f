"""Flushes tensors from the caches before a timed run: to the last-level cache, or to memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm.script import tirx as T  # noqa: N812 - the name that its parser knows

from kintune.measure.guarded_memory import GuardedMemory, numpy_dtype

__all__ = [
    "LastLevelFlush",
    "MemoryFlush",
    "compile_function",
    "last_level_flusher",
    "memory_flusher",
    "reading_function",
]

LastLevelFlush: TypeAlias = Callable[[Sequence[Any]], None]
"""Flushes the cores' own caches to the last-level cache, then reads the given tensors back into them."""

MemoryFlush: TypeAlias = Callable[..., None]
"""Flushes the given tensors from all caches, and returns when they are in memory."""

_LINE = 64  # bytes
_FLOATS = _LINE // 4
_ENTRY = "main"
_TIMES = 2  # as much as the cache holds must pass through it more than once: it does not replace strictly by age
_FLUSH_FEATURE = "clflushopt"
_HOST_FEATURES = "tvm.codegen.llvm.GetHostCPUFeatures"


@cache
def last_level_flusher(threads: int, cache_bytes: int) -> LastLevelFlush:
    """Returns a flush to the last-level cache for `threads` cores with `cache_bytes` of second-level cache each.

    Each thread reads memory of its own, twice what its cache holds: what was there goes to the last-level cache, where
    there is one.  Tensors are read back in equal parts, one for each thread, as most kernels divide them.  With two
    threads and a megabyte each that takes 33 us.
    """
    read = compile_function(reading_function(threads))
    rows = _TIMES * cache_bytes // _LINE * threads
    ballast = GuardedMemory.of((rows, _FLOATS), "float32")
    ballast.array((rows, _FLOATS), "float32")[...] = 0
    own = ballast.tensor((rows, _FLOATS), "float32")
    out = tvm.runtime.tensor(np.zeros((threads, _FLOATS), np.float32))

    def flush(tensors: Sequence[Any]) -> None:
        read(own, out)
        for tensor in tensors:
            nbytes = _nbytes(tensor)
            if nbytes >= _LINE:
                read(tensor._create_view((nbytes // _LINE, _FLOATS), "float32"), out)

    return flush


@cache
def memory_flusher(threads: int) -> MemoryFlush:
    """Returns the fastest flush to memory that this processor has, with `threads` threads of the runtime.

    `clflushopt` instructions are not ordered with each other, so lines leave side by side: 9.4 MB in 0.2 ms with two
    threads.  The compiler's own function, which every processor has, waits for each line: 5 ms.
    """
    if not dict(tvm_ffi.get_global_func(_HOST_FEATURES)()).get(_FLUSH_FEATURE, False):
        flush_all = tvm_ffi.get_global_func("cache_flush_cpu_non_first_arg")

        def flush_in_turn(*tensors: Any) -> None:
            if tensors:
                flush_all(tensors[0], *tensors)

        return flush_in_turn
    flush_bytes = compile_function(_flushing_function(threads), {"kind": "llvm", "mattr": [f"+{_FLUSH_FEATURE}"]})

    def flush(*tensors: Any) -> None:
        for tensor in tensors:
            flush_bytes(tensor._create_view((_nbytes(tensor),), "uint8"))

    return flush


def compile_function(function: Any, target: str | dict[str, Any] = "llvm") -> Any:
    """Compiles a TIR function of tensors for a target, and returns a callable that takes these tensors."""
    module = tvm.IRModule({_ENTRY: function.with_attr("global_symbol", _ENTRY)})
    return tvm.compile(module, tvm.target.Target(target)).mod[_ENTRY]


def reading_function(threads: int, neighbour: int = 0) -> Any:
    """Returns a TIR function that reads a tensor of rows of one cache line each, in equal parts, a part a thread.

    A thread reads its own part, or that of the thread `neighbour` places further, and writes one line to the output.
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


def _flushing_function(threads: int) -> Any:
    """Returns a TIR function that flushes the lines of a tensor of bytes, in equal parts, a part a thread."""
    line = _LINE

    @T.prim_func(s_tir=True, private=True)  # type: ignore[untyped-decorator]
    def flush(handle: T.handle):  # type: ignore[no-untyped-def]
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

    return flush


def _nbytes(tensor: Any) -> int:
    return int(math.prod(tensor.shape)) * numpy_dtype(str(tensor.dtype)).itemsize
