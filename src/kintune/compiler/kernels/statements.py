"""Blocks of programs that are written as a whole, and indices of their elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.kernels.loops import INDEX, index

__all__ = ["block_over", "ceildiv", "unravelled", "whole"]


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
    buffers: Sequence[Any] = (),
    annotations: dict[str, Any] | None = None,
) -> Any:
    """A block in loops, given as (name, extent), of which the first is parallel unless `parallel` is false.

    The block reads and writes all of the buffers `reads` and `writes`, and allocates `buffers`.
    """
    outer = [tirx.Var(f"{each}_{name}", INDEX) for each, _ in loops]
    inner = [tirx.Var(f"v{each}", INDEX) for each, _ in loops]
    variables = [
        tirx.IterVar(tvm.ir.Range(index(0), index(extent)), variable, tirx.IterVar.DataPar)
        for variable, (_, extent) in zip(inner, loops, strict=True)
    ]
    regions = ([whole(each) for each in group] for group in (reads, writes))
    block = SBlock(variables, *regions, name, body(*inner), alloc_buffers=list(buffers), annotations=annotations)
    statement: Any = SBlockRealize(outer, True, block)
    for depth in reversed(range(len(loops))):
        kind = tirx.ForKind.PARALLEL if parallel and not depth else tirx.ForKind.SERIAL
        statement = tirx.For(outer[depth], index(0), index(loops[depth][1]), kind, statement)
    return statement


def unravelled(row: Any, extents: Sequence[Any]) -> list[Any]:
    """The indices of a row, by the extents of its axes."""
    found, rest = [], row
    for place in reversed(range(len(extents))):
        extent = extents[place]
        is_one = isinstance(extent, int) and extent == 1
        outermost = all(isinstance(each, int) and each == 1 for each in extents[:place])
        found.append(index(0) if is_one else rest if outermost else tirx.floormod(rest, index(extent)))
        rest = rest if is_one or outermost else tirx.floordiv(rest, index(extent))
    return found[::-1]


def whole(each: Any) -> Any:
    """The region of all of a buffer."""
    return tirx.BufferRegion(each, [tvm.ir.Range.from_min_extent(index(0), index(extent)) for extent in each.shape])
