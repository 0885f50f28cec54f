"""How convolutions go through an image without zeros around it: tiles of a row of results, and rows of the kernel.

A loop leaves out the rows of the kernel that lie above or below the image.  A tile at the left or right edge lists the
products that it has; all others are alike, and one loop computes them.  Where many tiles lack products, as with a
kernel whose places lie far apart, a loop computes the results of these one by one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Reach
from kintune.compiler.programs.indexing import Indexing

__all__ = [
    "CONTENDED_CYCLES",
    "MOST_WRITTEN",
    "PAIR_BYTES",
    "Tile",
    "edges",
    "even_widths",
    "has_written_edges",
    "is_shared",
    "places_in_image",
    "share_of",
    "tiles_of",
]

PAIR_BYTES = 128
"""Two cache lines, which a core asks for together."""

CONTENDED_CYCLES = 60.0
"""Cycles of a result whose pair of cache lines another core writes to as well."""

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


def has_written_edges(reach: Reach, columns: int) -> bool:
    """Whether the tiles that lack products or results are written out; else their results are computed one by one."""
    return sum(edges(reach, columns)) <= MOST_WRITTEN


def even_widths(results: int, widths: tuple[int, ...]) -> list[int]:
    """Widths of tiles that divide a row as evenly as can be, in as many parts as tiles of these widths do."""
    return sorted({-(-results // -(-results // width)) for width in widths if width <= results})


def is_shared(extent: int, shares: int) -> bool:
    """Whether none of the shares is empty."""
    return shares <= extent and -(-extent // -(-extent // shares)) == shares


def share_of(number: Any, extent: int, shares: int, g: Indexing) -> tuple[Any, Any]:
    """Where share `number` of an extent begins, and its length: an int where all shares are equally long."""
    own = -(-extent // shares)
    first = number * g.at(own)
    return first, own if extent % own == 0 else tirx.min(g.at(own), g.at(extent) - first)


def places_in_image(reach: Reach, y: Any, g: Indexing) -> tuple[Any, Any]:
    """The first row of the kernel that lies in the image for row `y` of the results, and how many rows do.

    With the reach of columns it gives the same for column `y`.
    """
    lowest = (reach.results - 1) * reach.stride + (reach.kernel - 1) * reach.dilation - reach.before
    if lowest < reach.size and not reach.before:
        return g.at(0), reach.kernel
    first: Any = g.at(0)
    if reach.before:
        above = g.at(reach.before + reach.dilation - 1) - y * g.at(reach.stride)
        first = tirx.max(g.at(0), tirx.floordiv(above, g.at(reach.dilation)))
    end: Any = g.at(reach.kernel)
    if lowest >= reach.size:
        below = g.at(reach.size + reach.before + reach.dilation - 1) - y * g.at(reach.stride)
        end = tirx.min(end, tirx.floordiv(below, g.at(reach.dilation)))
    return first, tirx.max(end - first, g.at(0))
