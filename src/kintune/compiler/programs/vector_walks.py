"""How tiles go through the positions of a sum, and which places of the kernel meet the image at each position."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from kintune.compiler.kernels.contraction import Contraction, Reach
from kintune.compiler.programs.image_tiles import edges, tiles_of

__all__ = ["Live", "Run", "Walk", "few_tiles", "inner_tiles", "live_part", "runs_of"]


class Walk(Enum):
    """How tiles go through the positions."""

    EVERY = "every"
    """Each tile has the positions behind those of the tile before; a position reads one place of the image."""

    FEW = "few"
    """The same for a kernel of several places.  The few tiles are written out, since each lacks products of its own."""

    LINES = "lines"
    """A tile has positions of one row of the results; a loop goes through those that lack no products."""


class Live(NamedTuple):
    """What a sum reads along one axis, without the places of the kernel that meet only zeros at its start and end.

    `first` is the first place of the kernel that is left.  `reach.before` is negative where the first position reads
    the image from a later place on.
    """

    reach: Reach
    first: int


def _meets(reach: Reach, position: int, place: int) -> bool:
    return 0 <= position * reach.stride + place * reach.dilation - reach.before < reach.size


def live_part(reach: Reach) -> Live:
    """The places of the kernel from the first to the last that meets the image at some position."""
    places = [
        place
        for place in range(reach.kernel)
        if any(_meets(reach, position, place) for position in range(reach.results))
    ]
    first, last = (places[0], places[-1]) if places else (0, 0)
    kept = reach._replace(kernel=last - first + 1, before=reach.before - first * reach.dilation)
    return Live(kept, first)


def inner_tiles(reach: Reach, columns: int) -> int:
    """The tiles of a row that lack no product."""
    return len(tiles_of(reach, columns)) - sum(edges(reach, columns))


class Run(NamedTuple):
    """Places of the kernel's row, from `first` on, with which the same `rows` of a tile have products."""

    first: Any
    number: Any
    rows: tuple[int, ...]


def runs_of(kernel: int, meeting: Callable[[int], tuple[int, ...]]) -> tuple[Run, ...]:
    """The runs of the places of the kernel's row that some rows meet."""
    grouped = itertools.groupby(range(kernel), meeting)
    listed = [(rows, list(places)) for rows, places in grouped if rows]
    return tuple(Run(places[0], len(places), rows) for rows, places in listed)


def few_tiles(found: Contraction, rows: int) -> list[list[tuple[int, int, tuple[Run, ...]]]]:
    """The products of each tile of so many positions: from which row of the kernel on how many have which runs."""
    down, across = live_part(found.rows).reach, live_part(found.columns).reach
    spots = list(itertools.product(*map(range, (found.images, down.results, across.results))))
    tiles = []
    for start in range(0, len(spots), rows):
        some = spots[start : start + rows]

        def met(i: int, some: Any = some) -> tuple[Run, ...]:
            high = [row for row, (_, y, _) in enumerate(some) if _meets(down, y, i)]
            return runs_of(across.kernel, lambda j: tuple(row for row in high if _meets(across, some[row][2], j)))

        grouped = [(runs, list(places)) for runs, places in itertools.groupby(range(down.kernel), met)]
        tiles.append([(places[0], len(places), runs) for runs, places in grouped])
    return tiles
