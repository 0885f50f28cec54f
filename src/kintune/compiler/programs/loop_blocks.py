"""Blocks of statements in loops of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.programs.indexing import Indexing

__all__ = ["block_in_loops", "computing_block", "whole"]

_KEEP = "kintune.scheduled"
"""The annotation of a loop, which post-processors leave as it is since it has one."""

Region = list[tuple[Any, list[tuple[Any, int]]]]
"""Buffers, each with the start and the extent of its part along each axis."""


def whole(buffer: Any) -> tuple[Any, list[tuple[Any, int]]]:
    """The region of all of a buffer."""
    return buffer, [(0, int(extent)) for extent in buffer.shape]


def block_in_loops(
    name: str,
    loops: Sequence[tuple[str, int]],
    body: Callable[..., Any],
    g: Indexing,
    *,
    reads: Callable[..., Region],
    writes: Callable[..., Region],
    init: Callable[..., Any] | None = None,
    buffers: Sequence[Any] = (),
    annotations: dict[str, Any] | None = None,
    kept: bool = False,
    fused: bool = False,
) -> Any:
    """A block in loops, given as (name, extent); a loop of negative extent reduces.

    `buffers` are allocated in the block.  Loops that are `kept` stay as they are: the first one is parallel.  Two loops
    that are `fused` are one parallel loop.
    """
    outer = [tirx.Var(f"{loop}_{name}", g.index_type) for loop, _ in loops]
    inner = [tirx.Var(f"v{loop}", g.index_type) for loop, _ in loops]
    variables = [
        tirx.IterVar(
            tvm.ir.Range(g.at(0), g.at(abs(extent))),
            variable,
            tirx.IterVar.CommReduce if extent < 0 else tirx.IterVar.DataPar,
        )
        for variable, (_, extent) in zip(inner, loops, strict=True)
    ]
    block = SBlock(
        variables,
        _regions(reads(*inner), g),
        _regions(writes(*inner), g),
        name,
        body(*inner),
        init(*inner) if init is not None else None,
        alloc_buffers=list(buffers),
        annotations=annotations,
    )
    if fused:
        both = tirx.Var(f"{name}_task", g.index_type)
        width = g.at(loops[1][1])
        inside = SBlockRealize([tirx.floordiv(both, width), tirx.floormod(both, width)], True, block)
        return tirx.For(both, g.at(0), g.at(loops[0][1] * loops[1][1]), tirx.ForKind.PARALLEL, inside)
    statement: Any = SBlockRealize(outer, True, block)
    for depth in reversed(range(len(loops))):
        kind = tirx.ForKind.PARALLEL if kept and depth == 0 else tirx.ForKind.SERIAL
        extent = g.at(abs(loops[depth][1]))
        statement = tirx.For(outer[depth], g.at(0), extent, kind, statement, annotations={_KEEP: 1} if kept else None)
    return statement


def _regions(regions: Region, g: Indexing) -> list[Any]:
    return [
        tirx.BufferRegion(buffer, [tvm.ir.Range.from_min_extent(g.at(low), g.at(extent)) for low, extent in ranges])
        for buffer, ranges in regions
    ]


class _Sum(Protocol):
    """What a block computes."""

    @property
    def name(self) -> str:
        """The name of its block in the workload."""

    @property
    def data(self) -> Any:
        """The buffer that it reads."""

    @property
    def result(self) -> Any:
        """The buffer that it writes, if nothing follows."""


def computing_block(
    way: str,
    found: _Sum,
    epilogue: Epilogue | None,
    loops: Sequence[tuple[str, int]],
    body: Callable[..., Any],
    g: Indexing,
    *,
    weights: Any,
    buffers: Sequence[Any],
    again: bool = False,
) -> Any:
    """The block that computes a sum in two loops, which become one parallel loop, and what follows from it.

    `way` tells it from other blocks of the same sum.  It reads the data, the `weights`, what the epilogue reads and,
    with `again`, what it has written.  `buffers` are allocated in it.
    """
    others = [] if epilogue is None else [whole(buffer) for buffer in epilogue.operands]
    target = whole(found.result if epilogue is None else epilogue.target)
    return block_in_loops(
        f"{found.name}_{way}",
        loops,
        body,
        g,
        reads=lambda *_: [whole(found.data), whole(weights), *others, *([target] if again else [])],
        writes=lambda *_: [target],
        buffers=buffers,
        fused=True,
    )
