"""The loops of a product with packed weights: a register tile of rows by vectors of columns, all of the sum in registers.

The weights are packed in panels [depth, panel] of the columns that are computed at once, so that an inner loop reads them
one after the other.  One task takes a block of rows and a part of the panels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.weighted_sum import Reach, WeightedSum
from kintune.compiler.programs.stages import Stages
from kintune.compiler.programs.winograd_stages import block_in_loops, whole
from kintune.compiler.programs.winograd_tiles import Geometry
from kintune.compiler.space.packing import PACKS

__all__ = ["Blocking", "make_tiles"]


class Blocking(NamedTuple):
    """`rows` by `vectors` vectors in registers; `blocks` of the rows by `parts` of the panels are the tasks.

    With a `depth` other than 0, so many products are added before the next row is begun: what a panel has of them stays
    in the first cache, and sums wait in memory meanwhile.
    """

    rows: int
    vectors: int
    blocks: int
    parts: int
    depth: int = 0


def make_tiles(found: WeightedSum, lanes: int, blocking: Blocking, epilogue: Epilogue | None) -> Stages:
    """The statements that compute the product, or the epilogue of it.

    `parts` times `vectors` vectors divide the columns.  Rows beyond the last are computed as the last one is, and not
    stored.
    """
    b = blocking
    g = Geometry(0, lanes, 1, 1, found.positions, found.channels, found.filters, found.index_type)
    panel = b.vectors * lanes
    panels = found.filters // panel
    groups = -(-found.positions // (b.blocks * b.rows))
    size = groups * b.rows
    weights = g.buffer("panels", panels, found.channels, panel)
    target = found.result if epilogue is None else epilogue.target
    zero = g.at(0)
    packing = block_in_loops(
        "panel_weights",
        [("o", panels), ("c", found.channels), ("f", panel)],
        lambda o, c, f: tirx.BufferStore(weights, found.weight(zero, zero, c, o * g.at(panel) + f), [o, c, f]),
        g,
        reads=lambda o, c, f: [whole(found.weights)],
        writes=lambda o, c, f: [(weights, [(o, 1), (c, 1), (f, 1)])],
        annotations={PACKS: True},
    )
    own = panels // b.parts
    sums = [g.buffer(f"sums{row}", panel) for row in range(b.rows)]
    is_cut = 0 < b.depth < found.channels
    waiting = g.buffer("waiting", own, size, panel) if is_cut else None

    def body(block: Any, part: Any) -> Any:
        first = block * g.at(size)

        def tile(o: Any, q: Any, c: Any, depth: int) -> Any:
            """The sums of some rows with one panel, over `depth` products from `c` on."""
            rows = [_least(first + q * g.at(b.rows) + g.at(row), g.at(found.positions - 1)) for row in range(b.rows)]
            places = [_source(found, row, g) for row in rows]
            at_panel = part * g.at(own) + o

            def add(k: Any) -> Any:
                return _each(
                    g,
                    b.rows,
                    panel,
                    lambda row, lane: tirx.BufferStore(
                        sums[row],
                        sums[row][lane] + found.data[tuple([*places[row], c + k])] * weights[at_panel, c + k, lane],
                        [lane],
                    ),
                )

            def begin(row: int, lane: Any) -> Any:
                start: Any = tirx.const(0.0, "float32")
                if waiting is not None:
                    start = tirx.Select(c > zero, waiting[o, q * g.at(b.rows) + g.at(row), lane], start)
                return tirx.BufferStore(sums[row], start, [lane])

            def end(row: int, lane: Any) -> Any:
                return _stored(found, epilogue, sums[row][lane], _position(found.extents, rows[row], g), at_panel * g.at(panel) + lane)

            store = _rows_there(g, b, found, first + q * g.at(b.rows), panel, end)
            if waiting is not None:
                keep = _each(
                    g, b.rows, panel,
                    lambda row, lane: tirx.BufferStore(
                        waiting, sums[row][lane], [o, q * g.at(b.rows) + g.at(row), lane]
                    ),
                )  # fmt: skip
                store = tirx.IfThenElse(c + g.at(depth) >= g.at(found.channels), store, keep)
            return tirx.SeqStmt([_each(g, b.rows, panel, begin), _loop(g, "k", depth, add), store])

        if not is_cut:
            return _loop(g, "o", own, lambda o: _loop(g, "q", groups, lambda q: tile(o, q, zero, found.channels)))
        whole_cuts, rest = divmod(found.channels, b.depth)
        statements = [
            _loop(
                g, "cut", whole_cuts,
                lambda cut: _loop(
                    g, "o", own, lambda o: _loop(g, "q", groups, lambda q: tile(o, q, cut * g.at(b.depth), b.depth))
                ),
            )
        ]  # fmt: skip
        if rest:
            at = g.at(whole_cuts * b.depth)
            statements.append(_loop(g, "o", own, lambda o: _loop(g, "q", groups, lambda q: tile(o, q, at, rest))))
        return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]

    others = [] if epilogue is None else [whole(buffer) for buffer in epilogue.operands]
    computing = block_in_loops(
        "panel_product",
        [("block", b.blocks), ("part", b.parts)],
        body,
        g,
        reads=lambda block, part: [whole(found.data), whole(weights), *others],
        writes=lambda block, part: [whole(target)],
        buffers=[*sums, *([waiting] if waiting is not None else [])],
        fused=True,
    )
    return Stages([packing, computing], [weights])


def _least(a: Any, b: Any) -> Any:
    return tirx.min(a, b)


def _rows_there(g: Geometry, b: Blocking, found: WeightedSum, first: Any, panel: int, end: Any) -> Any:
    """What is stored of the rows of a tile: of those beyond the last, nothing."""
    statements = []
    for row in range(b.rows):
        vectors = _vectors(g, row, panel, end)
        stored = tirx.SeqStmt(vectors) if len(vectors) > 1 else vectors[0]
        if found.positions % (b.blocks * b.rows):
            stored = tirx.IfThenElse(first + g.at(row) < g.at(found.positions), stored, None)
        statements.append(stored)
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


def _stored(found: WeightedSum, epilogue: Epilogue | None, value: Any, place: Sequence[Any], column: Any) -> Any:
    at = [*place, column]
    return tirx.BufferStore(found.result, value, at) if epilogue is None else epilogue.store(value, at)


def _source(found: WeightedSum, row: Any, g: Geometry) -> list[Any]:
    """The indices of the row of the data that a row of the result is of."""
    if found.rows == Reach():  # a matrix, whose rows may be along other axes than those of the result
        return _position([int(extent) for extent in found.data.shape[:-1]], row, g)
    image, y, x = _position(found.extents, row, g)
    return [image, y * g.at(found.rows.stride), x * g.at(found.columns.stride)]


def _position(extents: Sequence[int], row: Any, g: Geometry) -> list[Any]:
    """The indices of a row, along axes of these extents."""
    indices: list[Any] = []
    rest, left = row, math.prod(extents)
    for extent in reversed(extents):
        left //= extent
        if extent == 1:
            indices.append(g.at(0))
        elif left == 1:
            indices.append(rest)
        else:
            indices.append(tirx.floormod(rest, g.at(extent)))
            rest = tirx.floordiv(rest, g.at(extent))
    return indices[::-1]


def _each(g: Geometry, rows: int, panel: int, body: Callable[[int, Any], Any]) -> Any:
    """The statement for all rows and columns, in vectors."""
    statements = [statement for row in range(rows) for statement in _vectors(g, row, panel, body)]
    return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]


def _vectors(g: Geometry, row: int, panel: int, body: Callable[[int, Any], Any]) -> list[Any]:
    """The statement for all columns of a row, a vector each: LLVM takes vectors of 3 times 16 apart."""
    statements = []
    for start in range(0, panel, g.lanes):
        lane = tirx.Var("lane", g.index_type)
        column = lane if start == 0 else lane + g.at(start)
        statements.append(tirx.For(lane, g.at(0), g.at(g.lanes), tirx.ForKind.VECTORIZED, body(row, column)))
    return statements


def _loop(g: Geometry, name: str, extent: int, body: Any) -> Any:
    variable = tirx.Var(name, g.index_type)
    return tirx.For(variable, g.at(0), g.at(extent), tirx.ForKind.SERIAL, body(variable))
