"""Aligned tables, no wider than the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Column", "columns_of", "printable", "shortened", "table_lines"]

_GAP = "  "
_LEAST = 12  # columns that a cell keeps when it is shortened
_DOTS = "..."
_WIDE = ("W", "F")  # of Unicode's East Asian widths


class Column(NamedTuple):
    """A column: its heading, whether it is aligned to the right, and what becomes of it on a narrow terminal.

    The cells of one that yields are shortened first; one that is optional is left out before any other is shortened.
    """

    title: str
    right: bool = False
    yields: bool = False
    optional: bool = False


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Returns a heading and a line for each row, no longer than `width` (None: as long as it takes).

    Where there is no room, the cells of columns that yield are shortened, then optional columns are left out from the
    right, and then the widest are shortened.  Blanks stand in place of control characters: cells may come from others.
    """
    cells = [[printable(cell) for cell in row] for row in ([column.title for column in columns], *rows)]
    widths = [max(columns_of(row[at]) for row in cells) for at in range(len(columns))]
    kept = list(range(len(columns))) if width is None else _kept(widths, columns, width)
    columns, widths = [columns[at] for at in kept], [widths[at] for at in kept]
    if width is not None:
        _fit(widths, columns, width)
    return [_line([row[at] for at in kept], columns, widths) for row in cells]


def shortened(text: str, width: int) -> str:
    """Returns the text within `width` columns, with dots in place of what is left out."""
    if columns_of(text) <= width:
        return text
    dots = _DOTS if width > len(_DOTS) else ""
    kept, room = "", width - len(dots)
    for character in text:
        room -= columns_of(character)
        if room < 0:
            break
        kept += character
    return kept + dots


def columns_of(text: str) -> int:
    """Returns how many columns a terminal takes for a text: two for wide characters, such as Chinese ones."""
    if text.isascii():
        return len(text)
    import unicodedata  # not needed otherwise

    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in _WIDE else 1 for each in text
    )


def _kept(widths: Sequence[int], columns: Sequence[Column], width: int) -> list[int]:
    """The places of columns that are not left out."""
    kept = list(range(len(columns)))
    for at in reversed(range(len(columns))):
        narrowest = sum(min(widths[one], _LEAST) if columns[one].yields else widths[one] for one in kept)
        if narrowest + len(_GAP) * (len(kept) - 1) > width and columns[at].optional:
            kept.remove(at)
    return kept


def _fit(widths: list[int], columns: Sequence[Column], width: int) -> None:
    """Make the columns narrower until they fit."""
    room = width - len(_GAP) * (len(columns) - 1)
    for yielding, least in ((True, _LEAST), (False, _LEAST), (False, 1)):
        places = [at for at, column in enumerate(columns) if column.yields or not yielding]
        while sum(widths) > room:
            widest = max(places, key=lambda at: widths[at], default=None)
            if widest is None or widths[widest] <= least:
                break
            widths[widest] -= 1


def _line(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = []
    for cell, column, width in zip(row, columns, widths, strict=True):
        text = shortened(cell, width)
        blanks = " " * (width - columns_of(text))
        parts.append(f"{blanks}{text}" if column.right else f"{text}{blanks}")
    return _GAP.join(parts).rstrip()


def printable(text: str) -> str:
    """Returns the text with blanks in place of control characters, which a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)
