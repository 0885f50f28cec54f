"""The loops of a product with packed weights: a register tile of rows by vectors of columns, with all of its sum.

The weights are packed in panels [depth, panel] of the columns that are computed at once, so that an inner loop reads
them one after the other.  One task takes a block of rows and a part of the panels.

The columns need not fill the last panel: it is filled up with zeros, of which no results are stored.

A sum of thousands of products may be taken in parts: what a part reads of the data and of a panel stays in a core's own
cache.  The result holds the sums meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.indexing import Vectors
from kintune.compiler.programs.kernel_writer import pieces
from kintune.compiler.programs.loop_blocks import block_in_loops, computing_block, whole
from kintune.compiler.programs.prefetching import LINE_VALUES, ask_for
from kintune.compiler.programs.stages import Stages
from kintune.compiler.space.packing import PACKS

__all__ = ["Tiling", "make_tiles", "position_of"]

_STEPS = (4, 3, 2, 1)
"""Products of a turn of the innermost loop."""

_MOST_LINES = 1
"""Lines that are fetched for each product, at most."""

_Statement = Any
_Body = Callable[[int, Any], _Statement]
_Place = tuple[Any, Any]  # a panel and a depth


class Tiling(NamedTuple):
    """`rows` by `vectors` vectors in registers; `blocks` of the rows by `parts` of the panels are the tasks.

    A sum is taken in so many `depths`.
    """

    rows: int
    vectors: int
    blocks: int
    parts: int
    depths: int = 1

    def groups(self, positions: int) -> int:
        """Register tiles of a block of rows."""
        return -(-positions // (self.blocks * self.rows))


def make_tiles(found: Contraction, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> Stages:
    """The statements that compute the product, or the epilogue of it.

    `parts` must divide the number of panels of `vectors` vectors, and `depths` the length of a sum.  With several
    depths the columns must fill their panels, and the result, or that of the epilogue, must be of float32.  Rows beyond
    the last repeat the last one, and are not stored.
    """
    return _Tiles(found, lanes, tiling, epilogue).stages()


class _Tiles:
    def __init__(self, found: Contraction, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> None:
        self._found, self._tiling, self._epilogue = found, tiling, epilogue
        self._g = Vectors(lanes, found.index_type)
        self._panel = tiling.vectors * lanes
        self._panels = -(-found.filters // self._panel)
        self._groups = tiling.groups(found.positions)
        self._depth = found.channels // tiling.depths
        self._target = found.result if epilogue is None else epilogue.target
        self._weights = self._g.buffer("panels", self._panels, found.channels, self._panel)
        self._sums = [self._g.buffer(f"sums{row}", self._panel) for row in range(tiling.rows)]

    def stages(self) -> Stages:
        found, g, tiling = self._found, self._g, self._tiling
        zero = g.at(0)

        def packed(o: Any, c: Any, f: Any) -> _Statement:
            column = o * g.at(self._panel) + f
            value = found.weight(zero, zero, c, column)
            if found.filters % self._panel:
                value = tirx.if_then_else(column < g.at(found.filters), value, tirx.const(0.0, "float32"))
            return tirx.BufferStore(self._weights, value, [o, c, f])

        packing = block_in_loops(
            "panel_weights",
            [("o", self._panels), ("c", found.channels), ("f", self._panel)],
            packed,
            g,
            reads=lambda o, c, f: [whole(found.weights)],
            writes=lambda o, c, f: [(self._weights, [(o, 1), (c, 1), (f, 1)])],
            annotations={PACKS: True},
        )
        computing = computing_block(
            "tiled",
            found,
            self._epilogue,
            [("block", tiling.blocks), ("part", tiling.parts)],
            self._task,
            g,
            weights=self._weights,
            buffers=self._sums,
            again=tiling.depths > 1,
        )
        return Stages([packing, computing], [self._weights])

    def _task(self, block: Any, part: Any) -> _Statement:
        """All tiles of a block of rows and a part of the panels, one depth and one panel after the other."""
        g, depths = self._g, self._tiling.depths
        own = self._panels // self._tiling.parts
        first = block * g.at(self._groups * self._tiling.rows)

        def tile(d: Any, o: Any, q: Any) -> _Statement:
            panel, depth = part * g.at(own) + o, d
            if depths == 1:
                following = (part * g.at(own) + tirx.min(o + g.at(1), g.at(own - 1)), d)
            else:
                number = tirx.min(d * g.at(own) + o + g.at(1), g.at(depths * own - 1))
                following = (part * g.at(own) + tirx.floormod(number, g.at(own)), tirx.floordiv(number, g.at(own)))
            return self._tile((panel, depth), following, first + q * g.at(self._tiling.rows), q)

        def of_depth(d: Any) -> _Statement:
            return _loop(g, "panel", own, lambda o: _loop(g, "group", self._groups, lambda q: tile(d, o, q)))

        return of_depth(g.at(0)) if depths == 1 else _loop(g, "depth", depths, of_depth)

    def _tile(self, place: _Place, following: _Place, first: Any, group: Any) -> _Statement:
        """The products of a tile's rows, from `first` on, with one depth of a panel, before the `following` is read.

        The tile is number `group` of its block.
        """
        panel, depth = place
        g, found, sums = self._g, self._found, self._sums
        last = g.at(found.positions - 1)
        rows = [tirx.min(first + g.at(row), last) for row in range(self._tiling.rows)]
        places = [self._source(row) for row in rows]

        def add(inside: Any) -> _Statement:
            c = inside if self._tiling.depths == 1 else depth * g.at(self._depth) + inside

            def product(row: int, column: Any) -> _Statement:
                source = (*places[row], c)
                value = found.data[source] * self._weights[panel, c, column]
                return tirx.BufferStore(sums[row], sums[row][column] + value, [column])

            return self._all(product)

        def begin(row: int, column: Any) -> _Statement:
            return tirx.BufferStore(sums[row], tirx.const(0.0, "float32"), [column])

        def place_of(row: int, column: Any) -> list[Any]:
            return [*position_of(found.extents, rows[row], g), panel * g.at(self._panel) + column]

        def kept(row: int, column: Any) -> list[Any]:
            at = place_of(row, column)
            return at if self._epilogue is None else self._epilogue.indices_of(at)

        def go_on(row: int, column: Any) -> _Statement:
            return tirx.BufferStore(sums[row], self._target[tuple(kept(row, column))], [column])

        def keep(row: int, column: Any) -> _Statement:
            return tirx.BufferStore(self._target, sums[row][column], kept(row, column))

        def end(row: int, column: Any) -> _Statement:
            at, value = place_of(row, column), sums[row][column]
            if self._epilogue is None:
                return tirx.BufferStore(found.result, value, at)
            return self._epilogue.store(value, at)

        results = []
        for row in range(self._tiling.rows):
            stored = _sequence(self._stored(row, panel, end))
            if self._tiling.depths > 1:
                is_last = tirx.EQ(depth, g.at(self._tiling.depths - 1))
                stored = tirx.IfThenElse(is_last, stored, _sequence(self._vectors(row, keep)))
            is_cut = found.positions % (self._tiling.blocks * self._tiling.rows)
            inside = first + g.at(row) < g.at(found.positions)
            results.append(tirx.IfThenElse(inside, stored, None) if is_cut else stored)
        step = next(step for step in _STEPS if self._depth % step == 0)

        def steps(at: Any) -> _Statement:
            fetched = self._fetch(following, group * g.at(self._depth // step) + at, step)
            return _sequence([*fetched, _loop(g, "product", step, lambda each: add(at * g.at(step) + each))])

        begun = self._all(begin)
        if self._tiling.depths > 1:
            begun = tirx.IfThenElse(tirx.EQ(depth, g.at(0)), begun, self._all(go_on))
        return _sequence([begun, _loop(g, "c", self._depth // step, steps), *results])

    def _fetch(self, following: _Place, number: Any, step: int) -> list[_Statement]:
        """Fetch the part with this number of a panel into the cache; all tiles of a block together fetch all of it.

        Weights come from memory, which takes as long as the products do.  A few cache lines are prefetched between
        products, since a core has about a dozen misses in flight at once, and stalls on more.
        """
        g = self._g
        lines = self._panel // LINE_VALUES
        total, turns = lines * self._depth, self._groups * (self._depth // step)
        each = -(-total // turns)
        if each > _MOST_LINES * step:  # so few rows that nothing is won
            return []
        fetched = []
        for line in range(each):
            at = tirx.min(number * g.at(each) + g.at(line), g.at(total - 1))
            row = tirx.floordiv(at, g.at(lines))
            if self._tiling.depths > 1:
                row = following[1] * g.at(self._depth) + row
            place = [following[0], row, tirx.floormod(at, g.at(lines)) * g.at(LINE_VALUES)]
            fetched.append(ask_for(self._weights, place))
        return fetched

    def _all(self, body: _Body) -> _Statement:
        """A statement for all rows and columns of a tile."""
        return _sequence([each for row in range(self._tiling.rows) for each in self._vectors(row, body)])

    def _vectors(self, row: int, body: _Body) -> list[_Statement]:
        """Statements for all columns of a row, one a vector: LLVM splits up a vector of 3 x 16 lanes."""
        return [self._vector(row, start, self._g.lanes, body) for start in range(0, self._panel, self._g.lanes)]

    def _stored(self, row: int, panel: Any, body: _Body) -> list[_Statement]:
        """The same, without the columns of zeros beyond the last one, which only the last panel has."""
        g = self._g
        statements = self._vectors(row, body)
        valid = self._found.filters - (self._panels - 1) * self._panel
        if valid == self._panel:
            return statements
        some = _sequence([self._vector(row, start, lanes, body) for start, lanes in pieces(valid, g.lanes)])
        if self._panels == 1:
            return [some]
        return [tirx.IfThenElse(tirx.EQ(panel, g.at(self._panels - 1)), some, _sequence(statements))]

    def _vector(self, row: int, start: int, lanes: int, body: _Body) -> _Statement:
        """A statement for so many columns of a row, from `start` on."""
        g, lane = self._g, tirx.Var("lane", self._g.index_type)
        column = lane if start == 0 else lane + g.at(start)
        return tirx.For(lane, g.at(0), g.at(lanes), tirx.ForKind.VECTORIZED, body(row, column))

    def _source(self, row: Any) -> list[Any]:
        """The indices of the row of the data that a row of the result is of."""
        found, g = self._found, self._g
        if found.is_matrix:  # its rows may be along other axes than those of the result
            return position_of([int(extent) for extent in found.data.shape[:-1]], row, g)
        image, y, x = position_of(found.extents, row, g)
        return [image, y * g.at(found.rows.stride), x * g.at(found.columns.stride)]


def position_of(extents: Sequence[int], row: Any, g: Vectors) -> list[Any]:
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


def _sequence(statements: Sequence[_Statement]) -> _Statement:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def _loop(g: Vectors, name: str, extent: int, body: Callable[[Any], _Statement]) -> _Statement:
    variable = tirx.Var(name, g.index_type)
    return tirx.For(variable, g.at(0), g.at(extent), tirx.ForKind.SERIAL, body(variable))
