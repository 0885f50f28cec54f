"""Rows of a result in tiles whose sums stay in registers: each tile has the products that lie in the image.

Nothing is copied with zeros around it (`image_tiles`).  Rows that fill no whole tile are a smaller one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import DENSE, GROUPED, Contraction, Reach
from kintune.compiler.kernels.image_tiles import (
    Tile,
    meets,
    partial_tiles,
    places_in_image,
    share_of,
    through_row,
)
from kintune.compiler.kernels.loops import INDEX, index, loop, sequence, unravelled

__all__ = ["Live", "PlaceRun", "RowTile", "TiledRows", "Walk", "few_tiles", "live_part", "walk_of"]


class Walk(Enum):
    """How tiles go through the rows."""

    EVERY = "every"
    """Each tile has the rows behind those of the tile before; a row reads one place of the image."""

    FEW = "few"
    """The same for a kernel of several places.  The few tiles are written out, since each lacks products of its own."""

    LINES = "lines"
    """A tile has results of one row of the image; a loop goes through those that lack no products."""


def walk_of(found: Contraction, few: int) -> Walk:
    """The way through the rows of a sum, of which so many are few."""
    if found.kind != DENSE or not (found.is_direct or found.positions <= few):
        return Walk.LINES
    return Walk.EVERY if found.is_direct else Walk.FEW


class Live(NamedTuple):
    """What a sum reads along one axis, without the places of the kernel that meet only zeros at its start and end.

    `first` is the first place of the kernel that is left.  `reach.before` is negative where the first position reads
    the image from a later place on.
    """

    reach: Reach
    first: int


def live_part(reach: Reach) -> Live:
    """The places of the kernel from the first to the last that meets the image at some position."""
    places = [place for place in range(reach.kernel) if any(meets(reach, at, place) for at in range(reach.results))]
    first, last = (places[0], places[-1]) if places else (0, 0)
    kept = reach._replace(kernel=last - first + 1, before=reach.before - first * reach.dilation)
    return Live(kept, first)


class PlaceRun(NamedTuple):
    """Places of the kernel's row, from `first` on, with which the same `rows` of a tile have products."""

    first: Any
    number: Any
    rows: tuple[int, ...]


_Part = tuple[Any, Any, Sequence[PlaceRun]]  # from this row of the kernel on, so many have these runs


class RowTile(NamedTuple):
    """So many rows that are computed at once, and their products.

    `source(row, i, j)` is the number of the value where the data of a row begins that a place of the kernel meets; rows
    lie `pitch` values apart if that is not 0.  `place(row)` are its indices in the result but for the column.
    """

    number: int
    pitch: int
    source: Callable[[int, Any, Any], Any]
    place: Callable[[int], list[Any]]
    parts: Sequence[_Part]


Multiply = Callable[[Sequence[int], Callable[[int], Any], Any, int], Any]
"""The products of some rows of a tile: where the data of each begins, the number of the first value of their sums, and
the number of values.
"""


def _runs_of(kernel: int, meeting: Callable[[int], tuple[int, ...]]) -> tuple[PlaceRun, ...]:
    """The runs of the places of the kernel's row that some rows meet."""
    grouped = itertools.groupby(range(kernel), meeting)
    listed = [(rows, list(places)) for rows, places in grouped if rows]
    return tuple(PlaceRun(places[0], len(places), rows) for rows, places in listed)


def few_tiles(found: Contraction, rows: int) -> list[list[tuple[int, int, tuple[PlaceRun, ...]]]]:
    """The products of each tile of so many positions: from which row of the kernel on how many have which runs."""
    down, across = live_part(found.rows).reach, live_part(found.columns).reach
    spots = list(itertools.product(*map(range, (found.images, down.results, across.results))))
    tiles = []
    for start in range(0, len(spots), rows):
        some = spots[start : start + rows]

        def met(i: int, some: Any = some) -> tuple[PlaceRun, ...]:
            high = [row for row, (_, y, _) in enumerate(some) if meets(down, y, i)]
            return _runs_of(across.kernel, lambda j: tuple(row for row in high if meets(across, some[row][2], j)))

        grouped = [(runs, list(places)) for runs, places in itertools.groupby(range(down.kernel), met)]
        tiles.append([(places[0], len(places), runs) for runs, places in grouped])
    return tiles


class TiledRows:
    """The rows of a sum in tiles of `height`; a task has one of `blocks` of the rows of an image, or of all.

    Where an image has one row of results, or all rows are one, a task has some of its tiles.  With `most`, there are as
    many rows as are known when the program runs, about so many at most; the statements are the same for each number, if
    the image is left `outside` along the same axes.
    """

    def __init__(
        self,
        found: Contraction,
        walk: Walk,
        height: int,
        blocks: int,
        most: int = 0,
        outside: tuple[bool, bool] = (False, False),
    ) -> None:
        self.found, self.walk, self.height, self.blocks, self.most = found, walk, height, blocks, most
        self.down, self.across = live_part(found.rows), live_part(found.columns)
        self.batches = found.images if walk is Walk.LINES else 1
        self.data, self.reads, self.buffers = found.data, [found.data], list[Any]()
        self.number = tirx.Var("number", INDEX)
        self.begun: list[Any] = [tirx.Bind(self.number, index(found.positions))] if most else []
        """The statements at the begin of a task."""
        if most and walk is Walk.LINES:
            self.begun = []
            self.down, self.across = map(self._opened, (self.down, self.across), "yx", outside)
        self._pixel = found.groups * found.channels  # values of a place of the image

    def _opened(self, live: Live, name: str, outside: bool) -> Live:
        """The same with variables for the extents of an axis of several results, which are bound when a task begins.

        It reads `outside` at some extents.
        """
        extents = {each: getattr(live.reach, each) for each in ("size", "results")}
        if extents["results"] == 1:
            return live
        variables = {each: tirx.Var(f"{each}_{name}", INDEX) for each in extents}
        self.begun += [tirx.Bind(variables[each], index(extent)) for each, extent in extents.items()]
        return live._replace(reach=live.reach._replace(after=int(outside), **variables))

    def tiles(self, image: Any, block: Any, group: Any, computed: Callable[[RowTile, Any], Any]) -> Any:
        """The statement of all tiles of a block, with the columns of a group.

        `computed(tile, number)` is that of a tile; `number` counts those of a loop from 0, and is None for others.
        """
        found, rows = self.found, self.height
        if self.walk is Walk.FEW:
            few = enumerate(few_tiles(found, rows))
            tiles = (self._flat(index(n * rows), min(rows, found.positions - n * rows), parts) for n, parts in few)
            return sequence([computed(tile, None) for tile in tiles])
        if self.walk is Walk.EVERY:

            def of_all(tile: Tile, first: Any, number: Any) -> Any:
                run = PlaceRun(0, 1, tuple(range(tile.columns)))
                return computed(self._flat(first, tile.columns, [(index(0), 1, [run])]), number)

            if self.most:
                return self._of_any_number(block, lambda size, *at: of_all(Tile(0, size, ()), *at))
            every = Reach(found.positions, found.positions)
            return through_row(every, rows, of_all, lambda x: of_all(Tile(0, 1, ()), x, None), block, self.blocks)
        return self.lines(block, lambda y, share: self.line(image, y, group, computed, share))

    def _of_any_number(self, block: Any, tile: Callable[[int, Any, Any], Any]) -> Any:
        """The statement of all tiles of a block, `tile(size, first, number)` each, for any number of rows.

        Rows that fill no whole tile are tiles of halved sizes, as the bits of their number say.
        """
        height, last = self.height, index(self.blocks - 1)
        whole = tirx.floordiv(self.number, index(height))
        begin, end = (tirx.floordiv((block + k) * (whole + 1), index(self.blocks)) for k in (0, 1))
        first, rest = whole * index(height), tirx.floormod(self.number, index(height))
        body = loop("tile", tirx.min(end, whole) - begin, lambda k: tile(height, (begin + k) * index(height), k))
        partly = partial_tiles(rest, height, lambda size, before: tile(size, first + before, None))
        return sequence([body, *([tirx.IfThenElse(tirx.EQ(block, last), sequence(partly), None)] if partly else [])])

    def lines(self, block: Any, body: Callable[[Any, Any], Any]) -> Any:
        """The statement that goes through the rows of results of a block: `body(y, share)`, with a share of one row."""
        results = self.down.reach.results
        if self.found.rows.results == 1:
            return body(index(0), block)
        if not isinstance(results, int):
            begin, end = (tirx.floordiv((block + k) * results, index(self.blocks)) for k in (0, 1))
            return loop("row", end - begin, lambda row: body(begin + row, None))
        begin, number = share_of(block, results, self.blocks)
        return loop("row", number, lambda row: body(begin + row, None))

    def products(self, tile: RowTile, multiply: Multiply) -> list[Any]:
        """The statements that sum up the products of a tile."""
        across, channels = self.across.reach, self.found.channels
        is_joined = across.dilation == 1 and self.found.groups == 1

        def run(i: Any, each: PlaceRun) -> Any:
            def place(j: Any, number: int) -> Any:
                at = (i * index(across.kernel) + j) * index(channels)
                return multiply(each.rows, lambda row: tile.source(row, i, j), at, number * channels)

            if is_joined and isinstance(each.number, int):
                return place(index(each.first), each.number)
            return loop("j", each.number, lambda j: place(index(each.first) + j, 1))

        def part(i: Any, number: Any, runs: Sequence[PlaceRun]) -> Any:
            return loop("i", number, lambda k: sequence([run(index(i) + k, each) for each in runs]))

        return [part(*each) for each in tile.parts if each[-1]]

    def weight(self, value: Any, column: Any, group: Any) -> Any:
        """The weight of a value of a sum, by its number."""
        across, channels = index(self.across.reach.kernel), index(self.found.channels)
        place, channel = tirx.floordiv(value, channels), tirx.floormod(value, channels)
        i = tirx.floordiv(place, across) + index(self.down.first)
        j = tirx.floormod(place, across) + index(self.across.first)
        return self.found.weight(i, j, channel, column, group)

    @property
    def looped(self) -> int:
        """The most tiles of a task that are one loop through all its rows."""
        positions = self.most or self.found.positions
        return -(-(positions // self.height) // self.blocks) if self.walk is Walk.EVERY else 0

    @property
    def depth(self) -> int:
        """The values of a sum."""
        return self.down.reach.kernel * self.across.reach.kernel * self.found.channels

    def line(self, image: Any, y: Any, group: Any, computed: Callable[[RowTile, Any], Any], share: Any) -> Any:
        """The tiles of row `y` of the results, or a share of them."""
        across = self.across.reach
        parts = places_in_image(self.down.reach, y)

        def of_row(tile: Tile, first: Any, number: Any) -> Any:
            met = set(tile.products)
            runs = _runs_of(across.kernel, lambda j: tuple(t for t in range(tile.columns) if (t, j) in met))
            return computed(self._in_line(image, y, first, group, tile.columns, [(*parts, runs)]), number)

        def single(x: Any) -> Any:
            run = PlaceRun(*places_in_image(across, x), (0,))
            return computed(self._in_line(image, y, x, group, 1, [(*parts, [run])]), None)

        return through_row(across, self.height, of_row, single, share, self.blocks)

    def _flat(self, first: Any, number: int, parts: Sequence[_Part]) -> RowTile:
        """So many positions from number `first` on."""
        found = self.found
        is_plain = found.rows.is_plain and found.columns.is_plain

        def source(row: int, i: Any, j: Any) -> Any:
            position = first + index(row)
            if is_plain:
                return position * index(self._pixel)
            image, y, x = unravelled(position, (found.images, found.rows.results, found.columns.results))
            return self._place(image, y, x, i, j)

        def place(row: int) -> list[Any]:
            return unravelled(first + index(row), found.extents)

        return RowTile(number, self._pixel if is_plain else 0, source, place, parts)

    def _in_line(self, image: Any, y: Any, x: Any, group: Any, number: int, parts: Sequence[_Part]) -> RowTile:
        """So many positions of row `y` of the results from column `x` on."""
        found = self.found

        def source(row: int, i: Any, j: Any) -> Any:
            return self._place(image, y, x + index(row), i, j) + group * index(found.channels)

        def place(row: int) -> list[Any]:
            return [image, y, x + index(row), *([group] if found.kind == GROUPED else [])]

        return RowTile(number, found.columns.stride * self._pixel, source, place, parts)

    def _place(self, image: Any, y: Any, x: Any, i: Any, j: Any) -> Any:
        """The number of the value of the data that a position reads with a place of the kernel, in channel 0."""
        down, across = self.down.reach, self.across.reach
        line = y * index(down.stride) + i * index(down.dilation) - index(down.before)
        pixel = x * index(across.stride) + j * index(across.dilation) - index(across.before)
        return ((image * index(down.size) + line) * index(across.size) + pixel) * index(self._pixel)
