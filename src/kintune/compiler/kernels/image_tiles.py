"""How convolutions go through an image without zeros around it: tiles of a row of results, and rows of the kernel.

A loop leaves out the rows of the kernel that lie above or below the image.  A tile at the left or right edge lists the
products that it has; all others are alike, and one loop computes them.  Where many tiles lack products, as with a
kernel whose places lie far apart, a loop computes the results of these one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from tvm import tirx

from kintune.compiler.kernels.contraction import Reach
from kintune.compiler.kernels.loops import INDEX, index, loop, sequence
from kintune.errors import BuildError

__all__ = [
    "MOST_WRITTEN",
    "Tile",
    "edges",
    "even_widths",
    "has_written_edges",
    "inner_tiles",
    "is_contended",
    "is_shared",
    "meets",
    "partial_tiles",
    "places_in_image",
    "share_of",
    "through_row",
    "tiles_of",
]

_PAIR_BYTES = 128  # two cache lines, which a core asks for together

_Tiled: TypeAlias = Callable[["Tile", Any, Any], Any]
_Single: TypeAlias = Callable[[Any], Any]

MOST_WRITTEN = 6
"""Tiles of a row that are written out one by one, at most."""


class Tile(NamedTuple):
    """The results from column `first` on; each of the pairs (result, place in the kernel's row) has a product."""

    first: int
    columns: int
    products: tuple[tuple[int, int], ...]


@lru_cache(64)
def tiles_of(reach: Reach, columns: int) -> tuple[Tile, ...]:
    """The tiles of a row of results, in order; products are in the order of the data that they read."""
    places = sorted((t * reach.stride + j * reach.dilation, t, j) for t in range(columns) for j in range(reach.kernel))
    every = tuple((t, j) for _, t, j in places)

    def tile(first: int) -> Tile:
        start, number = first * reach.stride - reach.before, min(columns, reach.results - first)
        if number == columns and start >= 0 and start + places[-1][0] < reach.size:
            return Tile(first, columns, every)
        some = tuple((t, j) for at, t, j in places if t < number and 0 <= start + at < reach.size)
        return Tile(first, number, some)

    return tuple(map(tile, range(0, reach.results, columns)))


@lru_cache(256)
def edges(reach: Reach, columns: int) -> tuple[int, int]:
    """How many tiles at the left and at the right lack products or results."""
    complete = [len(tile.products) == columns * reach.kernel for tile in tiles_of(reach, columns)]
    if not any(complete):
        return len(complete), 0
    return complete.index(True), complete[::-1].index(True)


def inner_tiles(reach: Reach, columns: int) -> int:
    """The tiles of a row that lack no product."""
    return len(tiles_of(reach, columns)) - sum(edges(reach, columns))


def has_written_edges(reach: Reach, columns: int) -> bool:
    """Whether the tiles that lack products or results are written out; else their results are computed one by one."""
    return sum(edges(reach, columns)) <= MOST_WRITTEN


def even_widths(results: int, widths: tuple[int, ...]) -> list[int]:
    """Widths of tiles that divide a row as evenly as can be, in as many parts as tiles of these widths do."""
    return sorted({-(-results // -(-results // width)) for width in widths if width <= results})


def is_shared(extent: int, shares: int) -> bool:
    """Whether none of the shares is empty."""
    return shares <= extent and -(-extent // -(-extent // shares)) == shares


def is_contended(parts: int, own: int, columns: int) -> bool:
    """Whether other cores write to cache lines of a task that has one of `parts`, of `own`, of the columns of a row."""
    return parts > 1 and any(4 * end % _PAIR_BYTES for end in (own, columns))


def share_of(number: Any, extent: int, shares: int) -> tuple[Any, Any]:
    """Where share `number` of an extent begins, and its length: an int where all shares are equally long."""
    own = -(-extent // shares)
    first = number * index(own)
    return first, own if extent % own == 0 else tirx.min(index(own), index(extent) - first)


def places_in_image(reach: Reach, y: Any) -> tuple[Any, Any]:
    """The first row of the kernel that lies in the image for row `y` of the results, and how many rows do.

    With the reach of columns it gives the same for column `y`.
    """
    is_open = not isinstance(reach.size, int)
    if is_open and _is_inside(reach):
        return index(0), reach.kernel
    lowest = (reach.results - 1) * reach.stride + (reach.kernel - 1) * reach.dilation - reach.before
    if not is_open and lowest < reach.size and not reach.before:
        return index(0), reach.kernel
    first: Any = index(0)
    if reach.before:
        above = index(reach.before + reach.dilation - 1) - y * index(reach.stride)
        first = tirx.max(index(0), tirx.floordiv(above, index(reach.dilation)))
    end: Any = index(reach.kernel)
    if is_open or lowest >= reach.size:
        below = index(reach.size + reach.before + reach.dilation - 1) - y * index(reach.stride)
        end = tirx.min(end, tirx.floordiv(below, index(reach.dilation)))
    return first, tirx.max(end - first, index(0))


def partial_tiles(rest: Any, columns: int, tile: Callable[[int, Any], Any]) -> list[Any]:
    """The statements `tile(size, first)` of tiles of halved sizes for a rest of less than `columns`."""
    made = []
    for size in (1 << bit for bit in reversed(range((columns - 1).bit_length()))):
        is_there = tirx.floormod(rest, index(2 * size)) >= index(size)
        first = tirx.floordiv(rest, index(2 * size)) * index(2 * size)
        made.append(tirx.IfThenElse(is_there, tile(size, first), None))
    return made


def _is_inside(reach: Reach) -> bool:
    """Whether all that is read lies in the image, whatever its extent is."""
    return not (reach.before or reach.after > 0)


def meets(reach: Reach, position: int, place: int) -> bool:
    """Whether a place of the kernel lies in the image at a position."""
    return 0 <= position * reach.stride + place * reach.dilation - reach.before < reach.size


def through_row(
    reach: Reach,
    columns: int,
    tile: _Tiled,
    single: _Single,
    share: Any = None,
    shares: int = 1,
) -> Any:
    """The statement that computes a row of results, or the share of this number of it.

    `tile(tile, first, number)` computes a tile from column `first` on; `number` counts those of the loop from 0, and is
    None for a tile that is written out.  `single(x)` computes the result of column `x`.

    Raises:
        BuildError: extents are known only when the program runs, and too many tiles would be written out.
    """
    if not isinstance(reach.size, int):
        return _through_open_row(reach, columns, tile, single, share, shares)
    every = tiles_of(reach, columns)
    left, right = edges(reach, columns)
    inner = every[left : len(every) - right]

    def at_edge(some: Sequence[Tile], owner: int) -> list[Any]:
        made = [tile(each, index(each.first), None) for each in some]
        if some and not has_written_edges(reach, columns):
            number, first = sum(each.columns for each in some), index(some[0].first)
            made = [loop("single", number, lambda k: single(k + first))]
        if share is None or shares == 1 or not made:
            return made
        return [tirx.IfThenElse(tirx.EQ(share, index(owner)), sequence(made), None)]

    def looped() -> Any:
        begin, number = (index(0), len(inner)) if share is None else share_of(share, len(inner), shares)
        width, first = index(columns), index(inner[0].first)
        return loop("tile", number, lambda k: tile(inner[0], (begin + k) * width + first, k))

    middle = [looped()] if inner else []
    return sequence([*at_edge(every[:left], 0), *middle, *at_edge(every[len(every) - right :], shares - 1)])


def _through_open_row(reach: Reach, columns: int, tile: _Tiled, single: _Single, share: Any, shares: int) -> Any:
    """What `through_row` gives for a reach whose `size` and `results` are known only when the program runs.

    Tiles at the left lack the same products whatever these are.  Results that lack products at the right are computed
    one by one, as is a row that is shorter than the tiles at the left.

    Raises:
        BuildError: too many tiles would be written out.
    """
    places = sorted((t * reach.stride + j * reach.dilation, t, j) for t in range(columns) for j in range(reach.kernel))

    def some(number: int, start: int = 0) -> Tile:
        return Tile(0, number, tuple((t, j) for at, t, j in places if t < number and start + at >= 0))

    def bound(name: str, value: Any) -> Any:
        variable = tirx.Var(name, INDEX)
        statements.append(tirx.Bind(variable, value))
        return variable

    statements: list[Any] = []
    left = -(-max(reach.before, 0) // (reach.stride * columns))
    if left > MOST_WRITTEN:
        raise BuildError(f"{left} tiles at the left edge lack products")
    width, results = index(columns), reach.results
    far = reach.size + index(reach.before - (reach.kernel - 1) * reach.dilation - 1)
    met = results if _is_inside(reach) else tirx.min(results, tirx.floordiv(far, index(reach.stride)) + 1)
    complete = bound("complete", tirx.max(met, index(0)))  # results that lack no product at the right
    whole, rest = tirx.floordiv(complete, width), tirx.floormod(complete, width)
    begin, end = index(left), whole
    if share is not None:
        begin, end = (index(left) + tirx.floordiv((share + k) * (whole - left), index(shares)) for k in (0, 1))

    def owned(owner: int, made: Sequence[Any]) -> list[Any]:
        if share is None or shares == 1 or not made:
            return list(made)
        return [tirx.IfThenElse(tirx.EQ(share, index(owner)), sequence(made), None)]

    edge = [
        tile(some(columns, first * reach.stride - reach.before), index(first), None)
        for first in range(0, left * columns, columns)
    ]
    full = loop("tile", end - begin, lambda k: tile(some(columns), (begin + k) * width, k))
    partly = partial_tiles(rest, columns, lambda size, first: tile(some(size), whole * width + first, None))
    tiles = sequence([*owned(0, edge), full, *owned(shares - 1, partly)])
    if _is_inside(reach):
        return sequence([*statements, tiles])

    def singles(begin: Any) -> list[Any]:
        return owned(shares - 1, [loop("single", results - begin, lambda k: single(begin + k))])

    tiles = sequence([tiles, *singles(complete)])
    if left:
        tiles = tirx.IfThenElse(complete >= left * width, tiles, sequence(singles(index(0))))
    return sequence([*statements, tiles])
