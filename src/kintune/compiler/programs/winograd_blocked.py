"""The loops of Winograd's convolution by blocks: a block of tiles stays in the cache from its data to its results.

One task of the parallel loop takes a block of tiles and a part of the filters: it transforms the data of its tiles,
multiplies, and transforms the products.  The weights are packed in panels of the filters that are computed at once.  An
inner product keeps `rows` tiles by `vectors` vectors of filters in registers for the whole sum over channels.

Filters need not be whole vectors: the last one is filled up with zeros, of which no results are stored.  Channels of
the data that are no whole vector are transformed in shorter ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.programs.convolution import Convolution
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.kernel_writer import pieces
from kintune.compiler.programs.loop_blocks import block_in_loops, whole
from kintune.compiler.programs.loops import sequence
from kintune.compiler.programs.prefetching import LINE_VALUES, ask_for
from kintune.compiler.programs.stages import Stages
from kintune.compiler.programs.winograd_loops import half_of_tile, looped_tile_of_data, looped_tile_of_results
from kintune.compiler.programs.winograd_tiles import Geometry, transformed_weight
from kintune.compiler.space.packing import PACKS

__all__ = ["Blocking", "make_blocks"]

_ZERO = 0.0

_STEPS = (4, 3, 2, 1)
"""Channels of a turn of the innermost loop, in which some of the next weights are asked for."""


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
    return _Blocks(convolution, g, blocking, epilogue).stages()


class _Blocks:
    def __init__(self, convolution: Convolution, g: Geometry, blocking: Blocking, epilogue: Epilogue | None) -> None:
        self._convolution, self._g, self._blocking, self._epilogue = convolution, g, blocking, epilogue
        self._filters = convolution.shape[3]
        self._panel = blocking.vectors * g.lanes
        self._panels = g.filters // self._panel
        self._own = self._panels // blocking.parts  # panels of a task
        self._groups = -(-g.tiles // (blocking.blocks * blocking.rows))
        self._size = self._groups * blocking.rows  # tiles of a task
        self._weights = g.buffer("weights", g.places, self._panels, g.channels, self._panel)
        self._tiles = g.buffer("tiles", g.places, self._size, g.channels)
        self._products = g.buffer("products", g.places, self._size, self._own * self._panel)
        self._half = half_of_tile(g)
        self._sums = [g.buffer(f"sums{row}", self._panel) for row in range(blocking.rows)]  # small: on the stack

    def stages(self) -> Stages:
        g, b, source = self._g, self._blocking, self._convolution.weights

        is_whole = self._filters == g.filters

        def packed(t: Any, o: Any, c: Any, f: Any) -> Any:
            number = o * g.at(self._panel) + f
            value = transformed_weight(source, g, t, c, number)
            if not is_whole:
                value = tirx.if_then_else(number < g.at(self._filters), value, tirx.const(_ZERO, "float32"))
            return tirx.BufferStore(self._weights, value, [t, o, c, f])

        def read(t: Any, o: Any, c: Any, f: Any) -> Any:
            filters = (o * g.at(self._panel) + f, 1) if is_whole else (0, self._filters)
            return [(source, [(0, 3), (0, 3), (c, 1), filters])]

        packing = block_in_loops(
            "winograd_weights",
            [("t", g.places), ("o", self._panels), ("c", g.channels), ("f", self._panel)],
            packed,
            g,
            reads=read,
            writes=lambda t, o, c, f: [(self._weights, [(t, 1), (o, 1), (c, 1), (f, 1)])],
            annotations={PACKS: True},
        )
        target = self._convolution.result if self._epilogue is None else self._epilogue.target
        others = [] if self._epilogue is None else [whole(buffer) for buffer in self._epilogue.operands]
        computing = block_in_loops(
            "conv2d_winograd",
            [("block", b.blocks), ("part", b.parts)],
            self._task,
            g,
            reads=lambda block, part: [whole(self._convolution.data), whole(self._weights), *others],
            writes=lambda block, part: [whole(target)],
            buffers=[self._tiles, self._products, self._half, *self._sums],
            fused=True,
        )
        return Stages([packing, computing], [self._weights])

    def _task(self, block: Any, part: Any) -> Any:
        """Transform the data of a block of tiles, multiply it with a part of the filters, transform the products."""
        g, b = self._g, self._blocking
        first, last = block * g.at(self._size), g.at(g.tiles - 1)
        is_cut = b.blocks * self._size > g.tiles

        def data(p: Any, c: Any) -> Any:
            tile = tirx.min(first + p, last)

            def transformed(channel: Any, lanes: int) -> Any:
                return looped_tile_of_data(
                    self._convolution, g, tile, channel, lanes, self._half, self._tiles, lambda t, each: [t, p, each]
                )

            return self._vectors(c, g.channels, transformed)

        def results(p: Any, f: Any) -> Any:
            begin = part * g.at(self._own * self._panel)

            def transformed(number: Any, lanes: int) -> Any:
                return looped_tile_of_results(
                    self._convolution, g, first + p, number, lanes, self._half, self._products,
                    lambda t, lane: [t, p, number - begin + lane], self._epilogue,
                )  # fmt: skip

            stored = self._vectors(part * g.at(self._own * b.vectors) + f, self._filters, transformed)
            return tirx.IfThenElse(first + p <= last, stored, None) if is_cut else stored

        return tirx.SeqStmt(
            [
                _loops(g, [self._size, -(-g.channels // g.lanes)], data),
                _loops(g, [g.places, self._own, self._groups], lambda t, o, q: self._multiplied(part, t, o, q)),
                _loops(g, [self._size, self._own * b.vectors], results),
            ]
        )

    def _vectors(self, number: Any, extent: int, body: Callable[[Any, int], Any]) -> Any:
        """`body` of the vector with this number, of so many values in all: its first value, and its lanes.

        The last vector may be several shorter ones.
        """
        g = self._g
        first, (full, rest) = number * g.at(g.lanes), divmod(extent, g.lanes)
        if not rest:
            return body(first, g.lanes)
        last = sequence(
            [body(first + g.at(start) if start else first, lanes) for start, lanes in pieces(rest, g.lanes)]
        )
        return tirx.IfThenElse(number < g.at(full), body(first, g.lanes), last) if full else last

    def _multiplied(self, part: Any, t: Any, o: Any, q: Any) -> Any:
        """The products of a group of rows with a panel, at the place `t` within tiles; `o` counts the task's panels."""
        g, sums = self._g, self._sums
        rows = [q * g.at(self._blocking.rows) + g.at(row) for row in range(self._blocking.rows)]
        panel = part * g.at(self._own) + o

        def add(c: Any) -> Any:
            def product(row: int, lane: Any) -> Any:
                value = self._tiles[t, rows[row], c] * self._weights[t, panel, c, lane]
                return tirx.BufferStore(sums[row], sums[row][lane] + value, [lane])

            return self._all(product)

        def begin(row: int, lane: Any) -> Any:
            return tirx.BufferStore(sums[row], tirx.const(_ZERO, "float32"), [lane])

        def end(row: int, lane: Any) -> Any:
            return tirx.BufferStore(self._products, sums[row][lane], [t, rows[row], o * g.at(self._panel) + lane])

        step = next(step for step in _STEPS if g.channels % step == 0)

        def steps(turn: Any) -> Any:
            asked = self._ahead(part, t, o, q * g.at(g.channels // step) + turn, step)
            return sequence([*asked, _loops(g, [step], lambda c: add(turn * g.at(step) + c))])

        return tirx.SeqStmt([self._all(begin), _loops(g, [g.channels // step], steps), self._all(end)])

    def _ahead(self, part: Any, t: Any, o: Any, turn: Any, step: int) -> list[Any]:
        """Ask for some of the panel that is read next; all turns of all groups of rows together ask for all of it.

        The weights of a layer are read once a block, and come from memory where they are many.
        """
        g = self._g
        turns = self._groups * (g.channels // step)
        each = -(-g.channels * self._panel // (LINE_VALUES * turns))
        if each > step:  # so few rows that nothing is won
            return []
        following = tirx.min(t * g.at(self._own) + o + g.at(1), g.at(g.places * self._own - 1))
        place = tirx.floordiv(following, g.at(self._own))
        panel = part * g.at(self._own) + tirx.floormod(following, g.at(self._own))
        lines = [turn * g.at(each) + g.at(line) for line in range(each)]
        return [ask_for(self._weights, [place, panel, g.at(0), line * g.at(LINE_VALUES)]) for line in lines]

    def _all(self, body: Callable[[int, Any], Any]) -> Any:
        """A statement for all rows of a group and all columns of a panel."""
        g, statements = self._g, []
        for row, (start, lanes) in itertools.product(
            range(self._blocking.rows), pieces(self._panel, _power_of_two(self._panel))
        ):
            lane = tirx.Var("lane", g.index_type)
            at = g.at(start) + lane if start else lane
            statements.append(tirx.For(lane, g.at(0), g.at(lanes), tirx.ForKind.VECTORIZED, body(row, at)))
        return sequence(statements)


def _power_of_two(number: int) -> int:
    """The largest power of two that is not larger: LLVM computes vectors of other numbers of lanes one by one."""
    return 1 << (number.bit_length() - 1)


def _loops(g: Geometry, extents: list[int], body: Callable[..., Any]) -> Any:
    """A statement in serial loops."""
    variables = [tirx.Var(f"i{depth}", g.index_type) for depth in range(len(extents))]
    statement = body(*variables)
    for variable, extent in reversed(list(zip(variables, extents, strict=True))):
        statement = tirx.For(variable, g.at(0), g.at(extent), tirx.ForKind.SERIAL, statement)
    return statement
