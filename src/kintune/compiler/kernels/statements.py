"""Blocks of programs that are written as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.kernels.loops import INDEX, index

__all__ = ["block_over", "ceildiv", "whole"]


def ceildiv(value: Any, by: int) -> Any:
    """The number of parts of size `by` that hold `value`, which may be an expression."""
    return -(-value // by) if isinstance(value, int) else tirx.floordiv(value + index(by - 1), index(by))


def block_over(
    name: str,
    loops: Sequence[tuple[str, Any]],
    body: Callable[..., Any],
    reads: Sequence[Any],
    writes: Sequence[Any],
    *,
    parallel: bool = True,
    fused: bool = False,
    by_element: bool = False,
    buffers: Sequence[Any] = (),
    annotations: dict[str, Any] | None = None,
) -> Any:
    """A block in loops, given as (name, extent), of which the first is parallel unless `parallel` is false.

    The block reads and writes all of the buffers `reads` and `writes`, and allocates `buffers`.  With `by_element`, it
    writes the elements at the variables of the loops.  Two loops that are `fused` are one parallel loop; a serial one,
    if they are one task.
    """
    zero = index(0)
    outer = [tirx.Var(f"{each}_{name}", INDEX) for each, _ in loops]
    inner = [tirx.Var(f"v{each}", INDEX) for each, _ in loops]
    extents = [index(extent) for _, extent in loops]
    variables = [
        tirx.IterVar(tvm.ir.Range(zero, extent), variable, tirx.IterVar.DataPar)
        for variable, extent in zip(inner, extents, strict=True)
    ]
    read, written = ([whole(each) for each in group] for group in (reads, writes))
    if by_element:
        element = [tvm.ir.Range.from_min_extent(variable, index(1)) for variable in inner]
        written = [tirx.BufferRegion(each, element) for each in writes]
    block = SBlock(variables, read, written, name, body(*inner), alloc_buffers=list(buffers), annotations=annotations)
    if fused:
        both, (number, width) = tirx.Var(f"{name}_task", INDEX), (extent for _, extent in loops)
        inside = SBlockRealize([tirx.floordiv(both, extents[1]), tirx.floormod(both, extents[1])], True, block)
        is_one = isinstance(number, int) and number * width == 1
        kind = tirx.ForKind.SERIAL if is_one else tirx.ForKind.PARALLEL
        return tirx.For(both, zero, index(number * width), kind, inside)
    statement: Any = SBlockRealize(outer, True, block)
    for depth in reversed(range(len(loops))):
        kind = tirx.ForKind.PARALLEL if parallel and not depth else tirx.ForKind.SERIAL
        statement = tirx.For(outer[depth], zero, extents[depth], kind, statement)
    return statement


def whole(each: Any) -> Any:
    """The region of all of a buffer."""
    extents = [index(int(extent)) if isinstance(extent, tirx.IntImm) else extent for extent in each.shape]
    ranges = [tvm.ir.Range.from_min_extent(index(0), extent) for extent in extents]
    return tirx.BufferRegion(each, ranges)
