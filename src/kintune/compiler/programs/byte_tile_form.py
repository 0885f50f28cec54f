"""Which rows of the data the tiles of a sum of products of bytes take, without a copy: rows at one distance.

A tile takes rows of the data that lie at one distance in memory.  Those of a product are one line of them, and so are
the pixels of a convolution of 1 x 1 with a stride of one.  For other convolutions a line is a line of pixels of the
result.  If such lines are short and the stride is one, all lines of an image are taken as one.  Then the places between
the results of two lines are computed too, and not stored.
"""

from __future__ import annotations

from typing import NamedTuple

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.instructions import LINE_BYTES, TILE_ROWS, WORD_BYTES

__all__ = ["TileForm", "copied_lines", "heights_of", "may_copy", "tile_form", "tiles_of"]

_UNITS = (WORD_BYTES, 16, 64)  # what channels may be filled up to
_WORTH = 0.75  # channels are filled up further only where fewer than this share of the products are left
_LEAST_COST = 13  # of a tile, in rows: products wait for each other


class TileForm(NamedTuple):
    """`lines` of `length` rows, `pitch` bytes apart; a row has `segments` of `chunks` rows of tiles, of `quads` times
    four bytes.

    With `through`, a line is an image, and its rows are all places of its lines of pixels.
    """

    lines: int
    length: int
    pitch: int
    segments: int
    chunks: int
    quads: int
    through: bool

    @property
    def steps(self) -> int:
        """The products of tiles in a sum."""
        return self.segments * self.chunks


def tile_form(workload: Contraction) -> tuple[Contraction, TileForm]:
    """The workload with its channels filled up as tiles need them, and its form."""
    found = {unit: _cut(workload._replace(unit=unit)) for unit in _UNITS}
    plain, fewest = found[WORD_BYTES], min(chunks for chunks, _ in found.values())
    unit = WORD_BYTES
    if fewest < _WORTH * plain[0]:
        unit = next(each for each in _UNITS if found[each][0] == fewest)
    w = workload._replace(unit=unit)
    chunks, quads = found[unit]
    lines, length, pitch, through = _lines(w)
    return w, TileForm(lines, length, pitch, w.segments.number, chunks, quads, through)


def tiles_of(form: TileForm, height: int) -> int:
    """The tiles of so many rows in a line."""
    return -(-form.length // height)


def heights_of(form: TileForm) -> tuple[int, ...]:
    """The heights that tiles may have, in rows: a line in the fewest tiles, or in one or two more, about evenly cut."""
    fewest = tiles_of(form, TILE_ROWS)
    return tuple(sorted({-(-form.length // (fewest + more)) for more in range(3) if fewest + more <= form.length}))


def may_copy(w: Contraction, form: TileForm) -> bool:
    """Whether each task may copy the lines of pixels that it reads: in convolutions of one image that need a copy."""
    is_plain = form.lines == 1 and not form.through
    return w.convolves and w.is_copied and w.image[0] == 1 and not is_plain


def copied_lines(w: Contraction, form: TileForm, height: int, tiles: int) -> int:
    """The most lines of pixels, borders included, that `tiles` consecutive tiles read."""
    _, high, width = w.image
    reach = (w.taps[0] - 1) * w.rows.dilation + 1
    if form.through:
        return min(high, (tiles * height + width - 2) // width + 1 + reach)
    in_line = tiles_of(form, height)
    lines = tiles // in_line if tiles % in_line == 0 else (tiles + in_line - 2) // in_line + 1
    return min(high, (lines - 1) * w.rows.stride + reach)


def _cut(w: Contraction) -> tuple[int, int]:
    """The rows of tiles of a segment, and their parts of four bytes, which divide it."""
    quads = w.segment // WORD_BYTES
    each = max(size for size in range(1, LINE_BYTES // WORD_BYTES + 1) if quads % size == 0)
    return quads // each, each


def _lines(w: Contraction) -> tuple[int, int, int, bool]:
    """Lines, their rows, the bytes from one row to the next, and whether a line is a whole image."""
    if not w.convolves:
        return 1, w.positions, w.depth, False
    images, height, width = w.image
    _, high, across = w.extents
    down, right = w.rows.stride, w.columns.stride
    if (down, right) == (1, 1) and (high, across) == (height, width):
        return 1, w.positions, w.depth, False
    lines = images * high, across, right * w.depth, False
    if (down, right) != (1, 1):
        return lines
    through = images, (high - 1) * width + across, w.depth, True
    return min(lines, through, key=lambda each: each[0] * _cost(each[1]))


def _cost(length: int) -> int:
    tiles = -(-length // TILE_ROWS)
    return tiles * max(_LEAST_COST, -(-length // tiles))
