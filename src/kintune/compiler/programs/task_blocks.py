"""Blocks of programs that are written as a whole: tasks in one parallel loop, and storing a tile of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.loops import INDEX, as_root, index, loop
from kintune.compiler.space.weights import LAYOUT_FREE, weight_positions

__all__ = ["block_over", "stored_vector", "tasks_over", "unravelled", "with_body"]


def block_over(
    name: str,
    loops: Sequence[tuple[str, int]],
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
    block = SBlock(
        variables,
        [_whole(each) for each in reads],
        [_whole(each) for each in writes],
        name,
        body(*inner),
        alloc_buffers=list(buffers),
        annotations=annotations,
    )
    statement: Any = SBlockRealize(outer, True, block)
    for depth in reversed(range(len(loops))):
        kind = tirx.ForKind.PARALLEL if parallel and not depth else tirx.ForKind.SERIAL
        statement = tirx.For(outer[depth], index(0), index(loops[depth][1]), kind, statement)
    return statement


def tasks_over(
    name: str,
    blocks: int,
    parts: int,
    body: Callable[..., Any],
    reads: Sequence[Any],
    writes: Sequence[Any],
    own: Sequence[Any],
) -> Any:
    """A block for each block of rows and part of the panels, in one parallel loop; each task has the buffers `own`."""
    block, part, task = (tirx.Var(each, INDEX) for each in ("vblock", "vpart", "task"))
    variables = [
        tirx.IterVar(tvm.ir.Range(index(0), index(extent)), variable, tirx.IterVar.DataPar)
        for variable, extent in ((block, blocks), (part, parts))
    ]
    made = SBlock(
        variables,
        [_whole(each) for each in reads],
        [_whole(each) for each in writes],
        name,
        body(block, part),
        alloc_buffers=list(own),
    )
    inside = SBlockRealize([tirx.floordiv(task, index(parts)), tirx.floormod(task, index(parts))], True, made)
    return tirx.For(task, index(0), index(blocks * parts), tirx.ForKind.PARALLEL, inside)


def with_body(
    module: tvm.IRModule, statements: Sequence[Any], buffers: Sequence[Any], packed: set[int], epilogue: Epilogue | None
) -> tvm.IRModule:
    """The module whose `main` consists of these statements and allocates the buffers.

    Schedules may no longer choose the layout of the weights at the positions `packed`, nor of those that the epilogue
    reads.
    """
    function = module["main"]
    changed = function.with_body(as_root(tirx.SeqStmt(list(statements)), buffers))
    read = [] if epilogue is None else epilogue.operands
    free = [
        position
        for position in sorted(weight_positions(function) - packed)
        if not any(function.params[position].same_as(operand) for operand in read)
    ]
    changed = changed.with_attr(LAYOUT_FREE, free) if free else changed.without_attr(LAYOUT_FREE)
    return tvm.IRModule({"main": changed}, attrs=module.attrs)


def unravelled(row: Any, extents: Sequence[int]) -> list[Any]:
    """The indices of a row, by the extents of its axes."""
    found, rest = [], row
    for place in reversed(range(len(extents))):
        extent = extents[place]
        outermost = all(each == 1 for each in extents[:place])
        found.append(index(0) if extent == 1 else rest if outermost else tirx.floormod(rest, index(extent)))
        rest = rest if extent == 1 else tirx.floordiv(rest, index(extent))
    return found[::-1]


def stored_vector(
    lanes: int, columns: int, panel: int, epilogue: Epilogue | None, result: Any, element: Any, lead: Sequence[Any]
) -> Callable[[Any, Any], Any]:
    """A function of `o` and `v` that gives the statement which stores vector `v` of panel `o` of one row.

    `element(v, lane)` is a sum, `lead` the indices of the row, and `panel` the number of columns of a panel.  Only the
    first `columns` columns are stored.
    """
    wide = epilogue is None or epilogue.is_vectorised
    whole, rest = divmod(columns, lanes)
    exact = not rest and columns % panel == 0

    def vector(o: Any, v: Any) -> Any:
        first = o * index(panel) + v * index(lanes)

        def store(count: int) -> Any:
            def one(lane: Any) -> Any:
                value, at = element(v, lane), [*lead, first + lane]
                return tirx.BufferStore(result, value, at) if epilogue is None else epilogue.store(value, at)

            kind = tirx.ForKind.VECTORIZED if wide and count == lanes else tirx.ForKind.SERIAL
            return loop("lane", count, one, kind)

        if exact:
            return store(lanes)
        partly = tirx.IfThenElse(first < index(columns), store(rest), None) if rest else None
        return tirx.IfThenElse(first < index(whole * lanes), store(lanes), partly) if whole else partly

    return vector


def _whole(each: Any) -> Any:
    return tirx.BufferRegion(each, [tvm.ir.Range.from_min_extent(index(0), index(int(e))) for e in each.shape])
