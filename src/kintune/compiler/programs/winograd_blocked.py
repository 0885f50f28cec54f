"""The loops of Winograd's convolution by blocks: a block of tiles stays in the cache from its data to its results.

One task of the parallel loop takes a block of tiles and a part of the filters: it transforms the data of its tiles,
multiplies, and transforms the products.  The weights are packed in panels of the filters that are computed at once.  An
inner product keeps `rows` tiles by `vectors` vectors of filters in registers for the whole sum over channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.programs.convolution import Convolution
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.kernel_writer import pieces
from kintune.compiler.programs.stages import Stages
from kintune.compiler.programs.winograd_stages import block_in_loops, whole
from kintune.compiler.programs.winograd_tiles import Geometry, tile_of_data, tile_of_results, transformed_weight
from kintune.compiler.space.packing import PACKS

__all__ = ["Blocking", "make_blocks"]

_ZERO = 0.0


class Blocking(NamedTuple):
    """`blocks` of tiles by `parts` of the filters; `rows` tiles by `vectors` vectors of filters in registers."""

    rows: int
    vectors: int
    blocks: int
    parts: int


def make_blocks(convolution: Convolution, g: Geometry, blocking: Blocking, epilogue: Epilogue | None) -> Stages:
    """The statements that compute the convolution's result, or the epilogue of it.

    `parts` times `vectors` vectors divide the filters.  Blocks have as many tiles as rows divide; tiles beyond the
    last are computed as the last one is, and not stored.
    """
    b = blocking
    panel = b.vectors * g.lanes
    panels = g.filters // panel
    groups = -(-g.tiles // (b.blocks * b.rows))
    size = groups * b.rows
    weights = g.buffer("weights", g.places, panels, g.channels, panel)
    source, target = convolution.weights, convolution.result if epilogue is None else epilogue.target
    packing = block_in_loops(
        "winograd_weights",
        [("t", g.places), ("o", panels), ("c", g.channels), ("f", panel)],
        lambda t, o, c, f: tirx.BufferStore(
            weights, transformed_weight(source, g, t, c, o * g.at(panel) + f), [t, o, c, f]
        ),
        g,
        reads=lambda t, o, c, f: [(source, [(0, 3), (0, 3), (c, 1), (o * g.at(panel) + f, 1)])],
        writes=lambda t, o, c, f: [(weights, [(t, 1), (o, 1), (c, 1), (f, 1)])],
        annotations={PACKS: True},
    )
    own = panels // b.parts
    tiles = g.buffer("tiles", g.places, size, g.channels)
    products = g.buffer("products", g.places, size, own * panel)
    sums = [g.buffer(f"sums{row}", panel) for row in range(b.rows)]  # each small enough to be on the stack
    last = g.at(g.tiles - 1)

    def body(block: Any, part: Any) -> Any:
        first = block * g.at(size)
        data = _loops(
            g,
            [size, g.channels // g.lanes],
            lambda p, c: tile_of_data(
                convolution,
                g,
                tirx.min(first + p, last),
                c,
                tiles,
                lambda t, channel: [g.at(t), p, channel],
            ),
        )
        multiplied = _loops(
            g,
            [g.places, own, groups],
            lambda t, o, q: _inner(g, b, tiles, weights, sums, products, (t, part * g.at(own) + o, o, q)),
        )
        results = _loops(
            g,
            [size, own * b.vectors],
            lambda p, f: _if(
                first + p <= last if b.blocks * size > g.tiles else None,
                tile_of_results(
                    convolution,
                    g,
                    first + p,
                    part * g.at(own * b.vectors) + f,
                    products,
                    lambda t, lane: [g.at(t), p, f * g.at(g.lanes) + lane],
                    epilogue,
                ),
            ),
        )
        return tirx.SeqStmt([data, multiplied, results])

    others = [] if epilogue is None else [whole(buffer) for buffer in epilogue.operands]
    computing = block_in_loops(
        "conv2d_winograd",
        [("block", b.blocks), ("part", b.parts)],
        body,
        g,
        reads=lambda block, part: [whole(convolution.data), whole(weights), *others],
        writes=lambda block, part: [whole(target)],
        buffers=[tiles, products, *sums],
        fused=True,
    )
    return Stages([packing, computing], [weights])


def _inner(
    g: Geometry, b: Blocking, tiles: Any, weights: Any, sums: list[Any], products: Any, at: tuple[Any, Any, Any, Any]
) -> Any:
    """The products of some rows with one panel.

    `at` is the place within a tile, the panel among all and among those here, and the group of rows.
    """
    t, o, own, q = at
    panel = b.vectors * g.lanes

    def each(body: Callable[[int, Any], Any]) -> Any:
        statements = []
        for row, (start, lanes) in itertools.product(range(b.rows), pieces(panel, _power_of_two(panel))):
            lane = tirx.Var("lane", g.index_type)
            at = g.at(start) + lane if start else lane
            statements.append(tirx.For(lane, g.at(0), g.at(lanes), tirx.ForKind.VECTORIZED, body(row, at)))
        return tirx.SeqStmt(statements) if len(statements) > 1 else statements[0]

    def tile(row: int) -> Any:
        return q * g.at(b.rows) + g.at(row)

    def add(c: Any) -> Any:
        return each(
            lambda row, lane: tirx.BufferStore(
                sums[row], sums[row][lane] + tiles[t, tile(row), c] * weights[t, o, c, lane], [lane]
            )
        )

    start = each(lambda row, lane: tirx.BufferStore(sums[row], tirx.const(_ZERO, "float32"), [lane]))
    end = each(lambda row, lane: tirx.BufferStore(products, sums[row][lane], [t, tile(row), own * g.at(panel) + lane]))
    return tirx.SeqStmt([start, _loops(g, [g.channels], add), end])


def _power_of_two(number: int) -> int:
    """The largest power of two that is not larger: LLVM computes vectors of other numbers of lanes one by one."""
    return 1 << (number.bit_length() - 1)


def _if(condition: Any, statement: Any) -> Any:
    return statement if condition is None else tirx.IfThenElse(condition, statement, None)


def _loops(g: Geometry, extents: list[int], body: Callable[..., Any]) -> Any:
    """A statement in serial loops."""
    variables = [tirx.Var(f"i{depth}", g.index_type) for depth in range(len(extents))]
    statement = body(*variables)
    for variable, extent in reversed(list(zip(variables, extents, strict=True))):
        statement = tirx.For(variable, g.at(0), g.at(extent), tirx.ForKind.SERIAL, statement)
    return statement
