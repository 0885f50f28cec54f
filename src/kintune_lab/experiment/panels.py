"""Rows of a tidy table put into groups, and the groups into words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kintune_lab.experiment.option import spelled
from kintune_lab.experiment.tables import ASKED, Row, Scalar

__all__ = ["by", "slug", "varying", "words"]


def by(rows: Iterable[Row], *columns: str) -> dict[tuple[Scalar, ...], list[Row]]:
    """The rows of each combination of values of `columns`, in the order in which they first occur."""
    groups: dict[tuple[Scalar, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(column) for column in columns), []).append(row)
    return groups


def varying(rows: Sequence[Row], columns: Iterable[str], *, besides: Iterable[str] = ()) -> list[str]:
    """Those of `columns`, other than `besides`, that have more than one value in `rows`."""
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
