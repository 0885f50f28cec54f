"""What programs that are written as a whole have in common: one parallel loop over tasks, around vector loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir as T  # noqa: N812 - the name that it has everywhere

__all__ = [
    "alloc",
    "load",
    "repeat",
    "store",
    "store_vector",
    "tasks",
    "tiles",
    "transposed",
    "vector",
]


def tasks(
    function: tirx.PrimFunc,
    number: int,
    name: str,
    body: Callable[[Sequence[Any], Any], None],
    *,
    result: int | None = None,
) -> tvm.IRModule:
    """A module whose `main` has the parameters of `function` and a parallel loop over `body(buffers, task)`.

    `number` is that of the tasks, `name` that of the block.

    A body that takes addresses of buffers says which parameter is the `result`; the others are read.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        kept = {key: value for key, value in dict(function.attrs or {}).items() if key != "global_symbol"}
        T.func_attr({**kept, "global_symbol": "main", "tirx.noalias": True})
        buffers = [
            T.arg(str(p.name), T.buffer(tuple(int(extent) for extent in p.shape), str(p.dtype)))
            for p in function.params
        ]
        with T.parallel(0, number) as loop, T.sblock(name):
            task = T.axis.spatial(number, loop)
            if result is not None:
                T.reads(*(_whole(buffer) for buffer in buffers if buffer is not buffers[result]))
                T.writes(_whole(buffers[result]))
            body(buffers, task)
    return tvm.IRModule({"main": builder.get()})


def _whole(buffer: Any) -> Any:
    """The region of all of a buffer."""
    return tirx.BufferRegion(buffer, [tvm.ir.Range.from_min_extent(0, extent) for extent in buffer.shape])


def alloc(name: str, *shape: int) -> Any:
    """A buffer of float32 that each task has for itself."""
    return IRBuilder.name(name, T.sblock_alloc_buffer(shape, "float32"))


def store(buffer: Any, value: Any, *indices: Any) -> None:
    """Store one element, or in a vector loop a vector."""
    T.buffer_store(buffer, value, list(indices))


@contextmanager
def repeat(extent: Any, name: str) -> Iterator[Any]:
    """A serial loop; none where the extent is the number 1."""
    if isinstance(extent, int) and extent == 1:
        yield 0
        return
    with T.serial(0, extent) as variable:
        yield IRBuilder.name(name, variable)


@contextmanager
def vector(lanes: int) -> Iterator[Any]:
    """A loop that is one vector instruction; none for one lane."""
    if lanes == 1:
        yield 0
        return
    with T.vectorized(0, lanes) as lane:
        yield IRBuilder.name("lane", lane)


def load(buffer: Any, indices: Sequence[Any], lanes: int) -> Any:
    """A vector of neighbours along the last axis, from these indices on."""
    *outer, last = indices
    place = (*outer, tirx.Ramp(tirx.convert(last), 1, lanes))
    return T.Bind(buffer[place])


def store_vector(buffer: Any, value: Any, indices: Sequence[Any]) -> None:
    """Store a vector along the last axis, from these indices on."""
    *outer, last = indices
    T.buffer_store(buffer, value, [*outer, tirx.Ramp(tirx.convert(last), 1, int(value.ty.dtype.lanes))])


def transposed(rows: Sequence[Any]) -> list[Any]:
    """The transpose of n vectors of n lanes each, n a power of two: halves are exchanged first, then quarters, etc."""
    found, lanes = list(rows), len(rows)
    width = lanes // 2
    while width:
        lower = [lane if not lane & width else lanes + lane - width for lane in range(lanes)]
        upper = [lane + width if not lane & width else lanes + lane for lane in range(lanes)]
        for i in range(lanes):
            if not i & width:
                pair = [found[i], found[i + width]]
                found[i], found[i + width] = (
                    T.Bind(tirx.Shuffle(pair, [tirx.const(lane, "int32") for lane in order]))
                    for order in (lower, upper)
                )
        width //= 2
    return found


def tiles(extent: int, size: int) -> Iterator[tuple[Callable[[], Any], int]]:
    """The loops that cover `extent`: one over the whole tiles of `size`, then one of what is left.

    Yields for each a function, which gives a context manager of the start of a tile, and the size of its tiles.
    """

    @contextmanager
    def starts(begin: int, number: int, step: int) -> Iterator[Any]:
        with repeat(number, "tile") as tile:
            yield tile * step + begin if number > 1 else begin

    whole, rest = divmod(extent, size)
    if whole:
        yield (lambda: starts(0, whole, size)), size
    if rest:
        yield (lambda: starts(whole * size, 1, rest)), rest
