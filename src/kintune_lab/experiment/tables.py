"""Tables of observations: rows of plain values, their CSV form, and grouping of rows for reports."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kintune.errors import KintuneError
from kintune_lab.experiment.option import spelled

__all__ = [
    "ASKED",
    "CELLS",
    "METHODS",
    "Row",
    "Scalar",
    "Tables",
    "by",
    "check_tables",
    "columns_of",
    "joined",
    "slug",
    "to_csv",
    "varying",
    "words",
]


Scalar: TypeAlias = str | int | float | bool | None

Row: TypeAlias = Mapping[str, Scalar]
"""One observation: a value by column; None where nothing was observed."""

Tables: TypeAlias = Mapping[str, Sequence[Row]]
"""Rows by the name of their table.  The names are those of the CSV files."""

CELLS = "cells"

METHODS = "methods"
"""The tables that every bench has: its cells with how they ended, and each cell's methods."""

ASKED = "asked_"
"""Before the name of an option's column in a table that has a column of that name itself."""


def check_tables(tables: Tables) -> None:
    """Check the tables of an experiment, so that a wrong one fails its cell and not the collection.

    Raises:
        KintuneError: a table's name or a value is not allowed.
    """
    for name, rows in tables.items():
        if name in (CELLS, METHODS) or not name.isidentifier():
            raise KintuneError(
                f"{name!r} is no name for a table of an experiment; use other letters, digits or underscores"
            )
        for row in rows:
            for column, value in row.items():
                if not (value is None or isinstance(value, (str, int, float, bool))):
                    raise KintuneError(f"table {name}, column {column}: a {type(value).__name__} is no plain value")


def joined(rows: Iterable[Row], cell: str, values: Row) -> list[Row]:
    """Each row with its cell's id and option values before its own columns."""
    return [
        {"cell": cell, **{f"{ASKED}{name}" if name in row else name: v for name, v in values.items()}, **row}
        for row in rows
    ]


def columns_of(rows: Iterable[Row]) -> tuple[str, ...]:
    """Return all columns of `rows`, in the order in which they first occur."""
    return tuple(dict.fromkeys(column for row in rows for column in row))


def to_csv(rows: Sequence[Row]) -> bytes:
    """Return `rows` as CSV with a header: numbers in full, `true` and `false`, nothing for None, NaN and infinities."""
    columns = columns_of(rows)
    lines = [_line(columns), *(_line([_text(row.get(column)) for column in columns]) for row in rows)]
    return "".join(lines).encode()


def _line(fields: Sequence[str]) -> str:
    """One line; the writer quotes both kinds of line ends only if its own line end has both."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(fields)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _text(value: Scalar) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def by(rows: Iterable[Row], *columns: str) -> dict[tuple[Scalar, ...], list[Row]]:
    """The rows of each combination of values of `columns`, in the order in which they first occur."""
    groups: dict[tuple[Scalar, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(column) for column in columns), []).append(row)
    return groups


def varying(rows: Sequence[Row], columns: Iterable[str], *, besides: Iterable[str] = ()) -> list[str]:
    """Return those of `columns`, other than `besides`, that have more than one value in `rows`."""
    left = [column for column in columns if column not in set(besides)]
    return [column for column in left if len({spelled(row.get(column)) for row in rows}) > 1]


def words(columns: Sequence[str], values: Sequence[Scalar]) -> str:
    """A group's values as people read them: `bert_base, round_size 16`."""
    parts = []
    for column, value in zip(columns, values, strict=True):
        text = "not set" if value is None else spelled(value).strip('"').removeprefix("zoo:")
        parts.append(text if column in ("model", "method") else f"{column.removeprefix(ASKED)} {text}")
    return ", ".join(parts)


def slug(text: str) -> str:
    """A name for a file that says the same as `text`."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-.") or "all"
