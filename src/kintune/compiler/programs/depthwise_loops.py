"""The loops of a depthwise convolution: a register tile of results along a row, by vectors of channels.

All products of a result are summed in registers.  Nothing is copied with zeros around it: a loop leaves out the rows of
the kernel that lie above or below the image, and the tiles at its left and right edge are written out one by one,
without the products with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.kernel_writer import pieces
from kintune.compiler.programs.loops import sequence
from kintune.compiler.programs.stages import Stages
from kintune.compiler.programs.weighted_sum import Reach, WeightedSum
from kintune.compiler.programs.winograd_stages import block_in_loops, whole
from kintune.compiler.programs.winograd_tiles import Geometry

__all__ = ["Strips", "Tile", "Tiling", "convolve_depthwise", "strips_of", "tiles_of"]

_Statement = Any
_Vectors = Sequence[tuple[int, int]]  # first channel and lanes of each


class Tiling(NamedTuple):
    """Tiles of `columns` results by `vectors` of channels; `blocks` of the rows by `parts` of the channels are tasks.

    The channels of a tile are a strip.  A task computes all its rows of one strip before the next strip with `is_tall`,
    else all its strips of one row before the next row.
    """

    columns: int
    vectors: int
    blocks: int
    parts: int
    is_tall: int


class Strips(NamedTuple):
    """How channels are divided: `full` strips of `width` channels, then one of the `rest`, if there is any."""

    width: int
    full: int
    rest: int

    @property
    def number(self) -> int:
        """The number of strips."""
        return self.full + (self.rest > 0)


class Tile(NamedTuple):
    """The results from column `first` on; each of the pairs (result, place in the kernel's row) has a product."""

    first: int
    columns: int
    products: tuple[tuple[int, int], ...]


def strips_of(channels: int, width: int) -> Strips:
    """The strips of so many channels."""
    return Strips(width, *divmod(channels, width))


def tiles_of(reach: Reach, columns: int) -> list[Tile]:
    """The tiles of a row of results, in order; products are in the order of the data that they read."""

    def products(first: int, number: int) -> tuple[tuple[int, int], ...]:
        start = first * reach.stride - reach.before
        places = [(t * reach.stride + j * reach.dilation, t, j) for t in range(number) for j in range(reach.kernel)]
        return tuple((t, j) for at, t, j in sorted(places) if 0 <= start + at < reach.size)

    sizes = [(first, min(columns, reach.results - first)) for first in range(0, reach.results, columns)]
    return [Tile(first, number, products(first, number)) for first, number in sizes]


def convolve_depthwise(found: WeightedSum, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> Stages:
    """The statements that compute the convolution, or the epilogue of it, in vectors of so many `lanes`."""
    return _Depthwise(found, lanes, tiling, epilogue).stages()


class _Depthwise:
    def __init__(self, found: WeightedSum, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> None:
        self._found, self._tiling, self._epilogue = found, tiling, epilogue
        self._lanes = lanes
        self._g = Geometry(0, lanes, 1, 1, found.positions, 1, found.filters, found.index_type)
        self._strips = strips_of(found.filters, tiling.vectors * lanes)
        self._tiles = tiles_of(found.columns, tiling.columns)
        self._sums = [self._g.buffer(f"sums{column}", self._strips.width) for column in range(tiling.columns)]

    def stages(self) -> Stages:
        found, g, tiling = self._found, self._g, self._tiling
        others = [] if self._epilogue is None else [whole(buffer) for buffer in self._epilogue.operands]
        target = found.result if self._epilogue is None else self._epilogue.target
        computing = block_in_loops(
            f"{found.name}_depthwise",
            [("block", found.images * tiling.blocks), ("part", tiling.parts)],
            self._task,
            g,
            reads=lambda block, part: [whole(found.data), whole(found.weights), *others],
            writes=lambda block, part: [whole(target)],
            buffers=self._sums,
            fused=True,
        )
        return Stages([computing], [])

    def _task(self, block: Any, part: Any) -> _Statement:
        """All rows of a block, and all strips of a part."""
        g, blocks, found = self._g, self._tiling.blocks, self._found
        image = tirx.floordiv(block, g.at(blocks)) if found.images > 1 else g.at(0)
        place = tirx.floormod(block, g.at(blocks)) if found.images > 1 else block
        first, rows = self._share(place, found.rows.results, blocks)

        def over_rows(body: Callable[[Any], _Statement]) -> _Statement:
            return self._loop("row", rows, lambda row: body(first + row))

        if self._tiling.is_tall:
            return self._over_strips(part, lambda c, of: over_rows(lambda y: self._row(image, y, c, of)))
        return over_rows(lambda y: self._over_strips(part, lambda c, of: self._row(image, y, c, of)))

    def _share(self, number: Any, extent: int, shares: int) -> tuple[Any, Any]:
        """Where a share of an extent begins, and how much it is."""
        g = self._g
        own = -(-extent // shares)
        first = number * g.at(own)
        return first, own if extent % own == 0 else tirx.min(g.at(own), g.at(extent) - first)

    def _over_strips(self, part: Any, body: Callable[[Any, _Vectors], _Statement]) -> _Statement:
        """`body` of the strips of a part, each given by its first channel and its vectors."""
        g, strips = self._g, self._strips
        first, number = self._share(part, strips.number, self._tiling.parts)
        statements = []
        if strips.full:
            vectors = pieces(strips.width, self._lanes)
            if strips.rest and self._tiling.parts == 1:
                number = strips.full
            elif strips.rest:
                number = tirx.min(g.at(number), g.at(strips.full) - first)
            statements.append(
                self._loop("strip", number, lambda strip: body((first + strip) * g.at(strips.width), vectors))
            )
        if strips.rest:
            last = body(g.at(strips.full * strips.width), pieces(strips.rest, self._lanes))
            is_last = tirx.EQ(part, g.at(self._tiling.parts - 1))
            statements.append(last if self._tiling.parts == 1 else tirx.IfThenElse(is_last, last, None))
        return sequence(statements)

    def _row(self, image: Any, y: Any, channel: Any, vectors: _Vectors) -> _Statement:
        """A row of results of one strip: those tiles in a loop that lack no product, the others one by one."""
        tiles, g = self._tiles, self._g
        complete = self._tiling.columns * self._found.columns.kernel
        inner = [number for number, tile in enumerate(tiles) if len(tile.products) == complete]

        def written(tile: Tile, first: Any) -> _Statement:
            return self._tile(tile, [image, y, first, channel], vectors)

        def looped() -> _Statement:
            tile = tiles[inner[0]]
            return self._loop("tile", len(inner), lambda k: written(tile, k * g.at(tile.columns) + g.at(tile.first)))

        statements = []
        for number, tile in enumerate(tiles):
            if number not in inner:
                statements.append(written(tile, g.at(tile.first)))
            elif number == inner[0]:
                statements.append(looped())
        return sequence(statements)

    def _tile(self, tile: Tile, place: list[Any], vectors: _Vectors) -> _Statement:
        """The results of a tile, whose first one has the index `place`."""
        g, found = self._g, self._found
        image, y, x, channel = place
        across, down = found.columns, found.rows
        left = x * g.at(across.stride) - g.at(across.before)

        def products(i: Any) -> _Statement:
            row = y * g.at(down.stride) + i * g.at(down.dilation) - g.at(down.before)
            statements = []
            for start, lanes in vectors:
                for t, j in tile.products:
                    column = left + g.at(t * across.stride + j * across.dilation)

                    def add(lane: Any, t: int = t, j: int = j, column: Any = column, start: int = start) -> _Statement:
                        at = channel + (lane + g.at(start))
                        value = found.data[image, row, column, at] * found.weight(i, g.at(j), None, at)
                        return self._store(t, lane + g.at(start), self._sums[t][lane + g.at(start)] + value)

                    statements.append(self._vector(lanes, add))
            return sequence(statements)

        def begin(t: int, start: int) -> Callable[[Any], _Statement]:
            return lambda lane: self._store(t, lane + g.at(start), tirx.const(0.0, "float32"))

        def end(t: int, start: int) -> Callable[[Any], _Statement]:
            def stored(lane: Any) -> _Statement:
                at = [image, y, x + g.at(t), channel + (lane + g.at(start))]
                value = self._sums[t][lane + g.at(start)]
                if self._epilogue is None:
                    return tirx.BufferStore(found.result, value, at)
                return self._epilogue.store(value, at)

            return stored

        spots = [(t, start, lanes) for t in range(tile.columns) for start, lanes in vectors]
        begun = [self._vector(lanes, begin(t, start)) for t, start, lanes in spots]
        ended = [self._vector(lanes, end(t, start)) for t, start, lanes in spots]
        first, number = self._rows_of_kernel(y)
        summed = self._loop("i", number, lambda i: products(first + i)) if tile.products else None
        return sequence([*begun, *([] if summed is None else [summed]), *ended])

    def _rows_of_kernel(self, y: Any) -> tuple[Any, Any]:
        """The first row of the kernel that lies in the image for a row of results, and how many of them do."""
        g, reach = self._g, self._found.rows
        lowest = (reach.results - 1) * reach.stride + (reach.kernel - 1) * reach.dilation - reach.before
        first: Any = g.at(0)
        if reach.before:
            above = g.at(reach.before + reach.dilation - 1) - y * g.at(reach.stride)
            first = tirx.max(g.at(0), tirx.floordiv(above, g.at(reach.dilation)))
        if lowest < reach.size and not reach.before:
            return first, reach.kernel
        end: Any = g.at(reach.kernel)
        if lowest >= reach.size:
            below = g.at(reach.size + reach.before + reach.dilation - 1) - y * g.at(reach.stride)
            end = tirx.min(end, tirx.floordiv(below, g.at(reach.dilation)))
        return first, tirx.max(end - first, g.at(0))

    def _store(self, column: int, lane: Any, value: Any) -> _Statement:
        return tirx.BufferStore(self._sums[column], value, [lane])

    def _vector(self, lanes: int, body: Callable[[Any], _Statement]) -> _Statement:
        return self._loop("lane", lanes, body, tirx.ForKind.VECTORIZED)

    def _loop(self, name: str, extent: Any, body: Callable[[Any], _Statement], kind: int = tirx.ForKind.SERIAL) -> Any:
        g = self._g
        if isinstance(extent, int) and extent == 1:
            return body(g.at(0))
        variable = tirx.Var(name, g.index_type)
        return tirx.For(variable, g.at(0), g.at(extent), kind, body(variable))
