"""The loops of a depthwise convolution: a register tile of results along a row, by vectors of channels.

All products of a result are summed in registers.  Nothing is copied with zeros around it (`image_tiles`): tiles at the
left and right edge are written out one by one, without the products with zeros, unless these are many.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.image_tiles import Tile, places_in_image, share_of, through_row
from kintune.compiler.kernels.loops import buffer, index, loop, pieces, sequence
from kintune.compiler.kernels.stages import Stages, computing_block

__all__ = ["Strips", "Tiling", "convolve_depthwise", "strips_of"]

_Statement = Any
_Vectors = Sequence[tuple[int, int]]  # first channel and lanes of each
_Tap = tuple[int, Any, Any]  # a result of a tile, a place of the kernel's row, and how far on its data lies


class Tiling(NamedTuple):
    """Tiles of `columns` results by `vectors` of channels; `blocks` of the rows by `parts` of the channels are tasks.

    The channels of a tile are a strip.  A task computes all its rows of one strip before the next strip if `tall`,
    else all its strips of one row before the next row.
    """

    columns: int
    vectors: int
    blocks: int
    parts: int
    tall: int


class Strips(NamedTuple):
    """How channels are divided: `full` strips of `width` channels, then one of the `rest`, if there is any."""

    width: int
    full: int
    rest: int

    @property
    def number(self) -> int:
        """The number of strips."""
        return self.full + (self.rest > 0)


def strips_of(channels: int, width: int) -> Strips:
    """The strips of so many channels."""
    return Strips(width, *divmod(channels, width))


def convolve_depthwise(found: Contraction, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> Stages:
    """The statements that compute the convolution, or the epilogue of it, in vectors of so many `lanes`."""
    return _Depthwise(found, lanes, tiling, epilogue).stages()


class _Depthwise:
    def __init__(self, found: Contraction, lanes: int, tiling: Tiling, epilogue: Epilogue | None) -> None:
        self._found, self._tiling, self._epilogue = found, tiling, epilogue
        self._lanes = lanes
        self._strips = strips_of(found.filters, tiling.vectors * lanes)
        width = self._strips.width
        self._sums = [buffer(f"sums{column}", (width,), "float32", "global") for column in range(tiling.columns)]

    def stages(self) -> Stages:
        found, tiling = self._found, self._tiling
        loops = [("block", found.images * tiling.blocks), ("part", tiling.parts)]
        computing = computing_block(
            f"{found.name}_depthwise",
            found,
            self._epilogue,
            loops,
            self._task,
            weights=found.weights,
            buffers=self._sums,
        )
        return Stages([computing], [])

    def _task(self, block: Any, part: Any) -> _Statement:
        """All rows of a block, and all strips of a part."""
        blocks, found = self._tiling.blocks, self._found
        image = tirx.floordiv(block, index(blocks)) if found.images > 1 else index(0)
        place = tirx.floormod(block, index(blocks)) if found.images > 1 else block
        first, rows = share_of(place, found.rows.results, blocks)

        def over_rows(body: Callable[[Any], _Statement]) -> _Statement:
            return loop("row", rows, lambda row: body(first + row))

        if self._tiling.tall:
            return self._over_strips(part, lambda c, of: over_rows(lambda y: self._row(image, y, c, of)))
        return over_rows(lambda y: self._over_strips(part, lambda c, of: self._row(image, y, c, of)))

    def _over_strips(self, part: Any, body: Callable[[Any, _Vectors], _Statement]) -> _Statement:
        """`body` of the strips of a part, each given by its first channel and its vectors."""
        strips = self._strips
        first, number = share_of(part, strips.number, self._tiling.parts)
        statements = []
        if strips.full:
            vectors = pieces(strips.width, self._lanes)
            if strips.rest and self._tiling.parts == 1:
                number = strips.full
            elif strips.rest:
                number = tirx.min(index(number), index(strips.full) - first)
            statements.append(loop("strip", number, lambda strip: body((first + strip) * index(strips.width), vectors)))
        if strips.rest:
            last = body(index(strips.full * strips.width), pieces(strips.rest, self._lanes))
            is_last = tirx.EQ(part, index(self._tiling.parts - 1))
            statements.append(last if self._tiling.parts == 1 else tirx.IfThenElse(is_last, last, None))
        return sequence(statements)

    def _row(self, image: Any, y: Any, channel: Any, vectors: _Vectors) -> _Statement:
        """A row of results of one strip."""

        def whole(tile: Tile, first: Any, _: Any) -> _Statement:
            return self._tile(tile, [image, y, first, channel], vectors)

        def single(x: Any) -> _Statement:
            return self._tile(Tile(0, 1, ()), [image, y, x, channel], vectors, is_alone=True)

        return through_row(self._found.columns, self._tiling.columns, whole, single)

    def _tile(self, tile: Tile, place: list[Any], vectors: _Vectors, *, is_alone: bool = False) -> _Statement:
        """The results of a tile, whose first one has the indices `place`.

        A tile that `is_alone` is one result; loops leave out the places of the kernel that lie outside the image.
        """
        found = self._found
        image, y, x, channel = place
        across, down = found.columns, found.rows
        left = x * index(across.stride) - index(across.before)

        def products(i: Any, taps: Sequence[_Tap]) -> _Statement:
            row = y * index(down.stride) + i * index(down.dilation) - index(down.before)
            statements = []
            for (start, lanes), (t, j, offset) in itertools.product(vectors, taps):

                def add(lane: Any, t: int = t, j: Any = j, offset: Any = offset, start: int = start) -> _Statement:
                    at = channel + (lane + index(start))
                    value = found.data[image, row, left + offset, at] * found.weight(i, j, None, at)
                    return self._store(t, lane + index(start), self._sums[t][lane + index(start)] + value)

                statements.append(self._vector(lanes, add))
            return sequence(statements)

        def of_row(i: Any) -> _Statement:
            if not is_alone:
                offsets = [index(t * across.stride + j * across.dilation) for t, j in tile.products]
                return products(i, [(t, index(j), at) for (t, j), at in zip(tile.products, offsets, strict=True)])
            first, number = places_in_image(across, x)
            return loop("j", number, lambda j: products(i, [(0, first + j, (first + j) * index(across.dilation))]))

        def begin(t: int, start: int) -> Callable[[Any], _Statement]:
            return lambda lane: self._store(t, lane + index(start), tirx.const(0.0, "float32"))

        def end(t: int, start: int) -> Callable[[Any], _Statement]:
            def stored(lane: Any) -> _Statement:
                at = [image, y, x + index(t), channel + (lane + index(start))]
                value = self._sums[t][lane + index(start)]
                if self._epilogue is None:
                    return tirx.BufferStore(found.result, value, at)
                return self._epilogue.store(value, at)

            return stored

        spots = [(t, start, lanes) for t in range(tile.columns) for start, lanes in vectors]
        begun = [self._vector(lanes, begin(t, start)) for t, start, lanes in spots]
        ended = [self._vector(lanes, end(t, start)) for t, start, lanes in spots]
        if not is_alone and not tile.products:
            return sequence([*begun, *ended])
        first, number = places_in_image(down, y)
        return sequence([*begun, loop("i", number, lambda i: of_row(first + i)), *ended])

    def _store(self, column: int, lane: Any, value: Any) -> _Statement:
        return tirx.BufferStore(self._sums[column], value, [lane])

    def _vector(self, lanes: int, body: Callable[[Any], _Statement]) -> _Statement:
        return loop("lane", lanes, body, tirx.ForKind.VECTORIZED)
