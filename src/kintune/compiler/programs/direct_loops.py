"""The loops of a convolution: a register tile of results along a row, by vectors of filters, with all of its sum.

The weights are packed in panels [rows, columns, channels, panel] of the filters that are computed at once; the last
panel of a group is filled up with zeros, of which no results are stored.  Nothing is copied with zeros around it
(`image_tiles`): tiles at the left and right edge are written out one by one, without the products with zeros, unless
these are many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import DENSE, Contraction, Reach
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.image_tiles import (
    Tile,
    edges,
    has_written_edges,
    loop_of,
    places_in_image,
    share_of,
    tiles_of,
)
from kintune.compiler.programs.indexing import Vectors
from kintune.compiler.programs.kernel_writer import pieces
from kintune.compiler.programs.loop_blocks import block_in_loops, computing_block, whole
from kintune.compiler.programs.loops import sequence
from kintune.compiler.programs.stages import Stages
from kintune.compiler.space.packing import PACKS

__all__ = ["Tiling", "convolve", "inner_tiles"]

_STEPS = (4, 3, 2, 1)
"""Channels of a turn of the innermost loop."""

_MOST_CHANNELS = 4
"""Channels of which all products with a place of the kernel are written out."""

_Statement = Any
_Source = Callable[[int, Any, Any], tuple[Any, ...]]


class Tiling(NamedTuple):
    """Tiles of `columns` results by `vectors` of filters; `blocks` by `parts` of the panels are the tasks.

    Blocks are of the rows; in images of one row, of the tiles that lack no product.
    """

    columns: int
    vectors: int
    blocks: int
    parts: int


def inner_tiles(reach: Reach, columns: int) -> int:
    """The tiles of a row that lack no product."""
    return len(tiles_of(reach, columns)) - sum(edges(reach, columns))


def convolve(found: Contraction, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> Stages:
    """The statements that compute the convolution, or the epilogue of it, in vectors of so many `lanes`.

    The `parts` of the tiling must divide the number of panels.
    """
    return _Direct(found, lanes, tiling, epilogue).stages()


class _Direct:
    def __init__(self, found: Contraction, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> None:
        self._found, self._tiling, self._epilogue = found, tiling, epilogue
        self._g = g = Vectors(lanes, found.index_type)
        self._panel = tiling.vectors * lanes
        self._panels = -(-found.filters // self._panel)  # of a group
        self._is_row = found.rows.results == 1
        shape = (found.rows.kernel, found.columns.kernel, found.channels, self._panel)
        self._weights = g.buffer("panels", found.groups * self._panels, *shape)
        self._sums = [g.buffer(f"sums{column}", self._panel) for column in range(tiling.columns)]

    def stages(self) -> Stages:
        found, g, tiling = self._found, self._g, self._tiling

        def packed(o: Any, i: Any, j: Any, c: Any, f: Any) -> _Statement:
            group, panel = self._group_and_panel(o)
            number = panel * g.at(self._panel) + f
            value = found.weight(i, j, c, number, group)
            if found.filters % self._panel:
                value = tirx.if_then_else(number < g.at(found.filters), value, tirx.const(0.0, "float32"))
            return tirx.BufferStore(self._weights, value, [o, i, j, c, f])

        names = ("o", "i", "j", "c", "f")
        packing = block_in_loops(
            "panel_weights",
            list(zip(names, (int(extent) for extent in self._weights.shape), strict=True)),
            packed,
            g,
            reads=lambda *at: [whole(found.weights)],
            writes=lambda *at: [(self._weights, [(index, 1) for index in at])],
            annotations={PACKS: True},
        )
        loops = [("block", found.images * tiling.blocks), ("part", tiling.parts)]
        computing = computing_block(
            "direct", found, self._epilogue, loops, self._task, g, weights=self._weights, buffers=self._sums
        )
        return Stages([packing, computing], [self._weights])

    def _task(self, block: Any, part: Any) -> _Statement:
        """All results of a block and a part of the panels, one panel after the other."""
        g, blocks, found = self._g, self._tiling.blocks, self._found
        image = tirx.floordiv(block, g.at(blocks)) if found.images > 1 else g.at(0)
        place = tirx.floormod(block, g.at(blocks)) if found.images > 1 else block
        own = found.groups * self._panels // self._tiling.parts

        def of_panel(panel: Any) -> _Statement:
            if self._is_row:
                return self._row(image, g.at(0), panel, place)
            first, rows = share_of(place, found.rows.results, blocks, g)
            return loop_of(g, "row", rows, lambda row: self._row(image, first + row, panel, None))

        return loop_of(g, "panel", own, lambda o: of_panel(part * g.at(own) + o))

    def _group_and_panel(self, number: Any) -> tuple[Any, Any]:
        """The group of the panel with this number of all, and its number there."""
        if self._found.groups == 1:
            return self._g.at(0), number
        count = self._g.at(self._panels)
        return tirx.floordiv(number, count), tirx.floormod(number, count)

    def _row(self, image: Any, y: Any, panel: Any, share: Any) -> _Statement:
        """A row of results, or a share of it; those tiles in a loop that lack no product, the others one by one."""
        g, tiles, blocks = self._g, tiles_of(self._found.columns, self._tiling.columns), self._tiling.blocks
        left, right = edges(self._found.columns, self._tiling.columns)
        inner = tiles[left : len(tiles) - right]

        def written(some: Sequence[Tile], owner: int) -> list[_Statement]:
            if has_written_edges(self._found.columns, self._tiling.columns):
                made = [self._tile(tile, [image, y, g.at(tile.first)], panel) for tile in some]
            else:
                made = self._singles(some, image, y, panel)
            if share is None or blocks == 1 or not made:
                return made
            return [tirx.IfThenElse(tirx.EQ(share, g.at(owner)), sequence(made), None)]

        def looped(tile: Tile) -> _Statement:
            begin, number = (g.at(0), len(inner)) if share is None else share_of(share, len(inner), blocks, g)

            def at(k: Any) -> _Statement:
                first = (begin + k) * g.at(tile.columns) + g.at(tile.first)
                return self._tile(tile, [image, y, first], panel)

            return loop_of(g, "tile", number, at)

        middle = [looped(inner[0])] if inner else []
        return sequence([*written(tiles[:left], 0), *middle, *written(tiles[len(tiles) - right :], blocks - 1)])

    def _singles(self, tiles: Sequence[Tile], image: Any, y: Any, panel: Any) -> list[_Statement]:
        """The results of these tiles one by one, each with the places of the kernel that lie in the image."""
        g, found, number = self._g, self._found, sum(tile.columns for tile in tiles)

        def single(k: Any) -> _Statement:
            x = k + g.at(tiles[0].first)
            one, place = Tile(0, 1, ()), [image, y, x]
            begun = self._all(one, self._zero)
            down, across = places_in_image(found.rows, y, g), places_in_image(found.columns, x, g)

            def products(i: Any) -> _Statement:
                at = self._sources(place, panel, i)
                return loop_of(
                    g, "j", across[1], lambda j: self._place(at, panel, i, across[0] + j, range(1), _STEPS[0])
                )

            summed = loop_of(g, "i", down[1], lambda i: products(down[0] + i))
            return sequence([*begun, summed, *self._results(one, place, panel)])

        return [loop_of(g, "single", number, single)] if number else []

    def _tile(self, tile: Tile, place: list[Any], panel: Any) -> _Statement:
        """The results of a tile, whose first one has the indices `place`."""
        g = self._g
        statements = self._all(tile, self._zero)
        if tile.products:
            first, number = places_in_image(self._found.rows, place[1], g)
            statements.append(loop_of(g, "i", number, lambda i: self._products(tile, place, panel, first + i)))
        return sequence([*statements, *self._results(tile, place, panel)])

    def _products(self, tile: Tile, place: list[Any], panel: Any, i: Any) -> _Statement:
        """The products with row `i` of the kernel: in a loop over its places where no result lacks any."""
        g, kernel = self._g, self._found.columns.kernel
        at = self._sources(place, panel, i)
        if len(tile.products) == tile.columns * kernel:
            return loop_of(g, "j", kernel, lambda j: self._place(at, panel, i, j, range(tile.columns), _STEPS[0]))
        met: dict[int, list[int]] = {}
        for t, j in tile.products:
            met.setdefault(j, []).append(t)
        return sequence([self._place(at, panel, i, g.at(j), sorted(results), 1) for j, results in sorted(met.items())])

    def _sources(self, place: list[Any], panel: Any, i: Any) -> _Source:
        """A function that gives the indices of the data, by a tile's result, a place of the row `i`, and a channel."""
        g, down, across = self._g, self._found.rows, self._found.columns
        image, y, x = place
        row = y * g.at(down.stride) + i * g.at(down.dilation) - g.at(down.before)
        left = x * g.at(across.stride) - g.at(across.before)
        group = [] if self._found.kind == DENSE else [self._group_and_panel(panel)[0]]

        def at(t: int, j: Any, c: Any) -> tuple[Any, ...]:
            return (image, row, left + (j * g.at(across.dilation) + g.at(t * across.stride)), *group, c)

        return at

    def _place(self, at: _Source, panel: Any, i: Any, j: Any, results: Sequence[int], most: int) -> _Statement:
        """The products of some results with a place of the kernel, at most so many channels in a turn of the loop."""
        g, channels = self._g, self._found.channels

        def add(c: Any) -> _Statement:
            def product(t: int, column: Any) -> _Statement:
                value = self._found.data[at(t, j, c)] * self._weights[panel, i, j, c, column]
                return self._store(t, column, self._sums[t][column] + value)

            return sequence([each for t in results for each in self._vectors(t, product)])

        if channels <= _MOST_CHANNELS:
            return sequence([add(g.at(c)) for c in range(channels)])
        step = next(step for step in _STEPS if step <= most and channels % step == 0)

        def turn(number: Any) -> _Statement:
            return sequence([add(number * g.at(step) + g.at(c)) for c in range(step)])

        return loop_of(g, "c", channels // step, turn)

    def _results(self, tile: Tile, place: list[Any], panel: Any) -> list[_Statement]:
        """Store what follows from the sums, but not that of the zeros that fill up the last panel."""
        g, found = self._g, self._found
        image, y, x = place
        number, panel = self._group_and_panel(panel)
        group = [] if found.kind == DENSE else [number]

        def end(t: int, column: Any) -> _Statement:
            at, value = [image, y, x + g.at(t), *group, panel * g.at(self._panel) + column], self._sums[t][column]
            if self._epilogue is None:
                return tirx.BufferStore(found.result, value, at)
            return self._epilogue.store(value, at)

        every = self._all(tile, end)
        valid = found.filters - (self._panels - 1) * self._panel
        if valid == self._panel:
            return every
        spots = [(t, start, lanes) for t in range(tile.columns) for start, lanes in pieces(valid, g.lanes)]
        some = [self._vector(t, start, lanes, end) for t, start, lanes in spots]
        if self._panels == 1:
            return some
        is_last = tirx.EQ(panel, g.at(self._panels - 1))
        return [tirx.IfThenElse(is_last, sequence(some), sequence(every))]

    def _zero(self, t: int, column: Any) -> _Statement:
        return self._store(t, column, tirx.const(0.0, "float32"))

    def _store(self, t: int, column: Any, value: Any) -> _Statement:
        return tirx.BufferStore(self._sums[t], value, [column])

    def _all(self, tile: Tile, body: Callable[[int, Any], _Statement]) -> list[_Statement]:
        return [each for t in range(tile.columns) for each in self._vectors(t, body)]

    def _vectors(self, t: int, body: Callable[[int, Any], _Statement]) -> list[_Statement]:
        """Statements for all columns of a panel, one a vector: LLVM splits up a vector of 3 x 16 lanes."""
        return [self._vector(t, start, self._g.lanes, body) for start in range(0, self._panel, self._g.lanes)]

    def _vector(self, t: int, start: int, lanes: int, body: Callable[[int, Any], _Statement]) -> _Statement:
        g = self._g
        return loop_of(
            g, "lane", lanes, lambda lane: body(t, lane + g.at(start) if start else lane), tirx.ForKind.VECTORIZED
        )
