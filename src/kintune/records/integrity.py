"""A checksum over the content of each row, so that a row which was changed on disk is recognised as damaged.

The checksum covers the table's name and every column but the checksum itself and a number given by the database,
encoded as msgpack in column order.  NUL characters are replaced before, since PostgreSQL does not store them; earlier
versions did not do that.  A row is written through `sealed` and read through `verified`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec
from sqlalchemy import Column, Double, Row, Table

from kintune.core.candidate import digest_of
from kintune.errors import DamagedRecord

__all__ = ["Damage", "OnDamage", "find_damage", "refuse", "row_id", "sealed", "verified", "without_nul"]


class Damage(msgspec.Struct, frozen=True):
    """One thing that is wrong with the records: the `id` of a row of `table`, or of the database as a whole."""

    table: str
    id: str
    problem: str

    def error(self) -> DamagedRecord:
        """The error that reports it."""
        return DamagedRecord(self.table, self.id, self.problem)


OnDamage: TypeAlias = Callable[[Damage], None]
"""Called with each damaged row of a query, which is skipped if this returns; `refuse` raises, a list's `append` does
not."""


def refuse(damage: Damage) -> None:
    """Raise `DamagedRecord`; for a query that needs every row."""
    raise damage.error()


@cache
def _sealed_columns(table: Table) -> tuple[Column[Any], ...]:
    return tuple(c for c in table.columns if c.name != "checksum" and c is not table.autoincrement_column)


def _checksum(table: Table, values: Mapping[str, Any]) -> str:
    content = [values[column.name] for column in _sealed_columns(table)]
    return digest_of(table.name.encode(), msgspec.msgpack.encode(content))


def _as_stored(column: Column[Any], value: Any) -> Any:
    """The value as a database gives it back: a Double is a float, and zero has no sign."""
    return float(value) + 0.0 if isinstance(column.type, Double) and value is not None else value


def sealed(table: Table, **values: Any) -> dict[str, Any]:
    """The row with its checksum, ready to be inserted; every column but a number given by the database is required."""
    row = {column.name: _as_stored(column, values[column.name]) for column in _sealed_columns(table)}
    return {**row, "checksum": _checksum(table, _as_replaced(row))}


def without_nul(text: str) -> str:
    """The text with NUL characters replaced, which PostgreSQL refuses; texts from users may have them."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _as_replaced(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: without_nul(value) if isinstance(value, str) else value for name, value in row.items()}


def row_id(table: Table, row: Mapping[str, Any]) -> str:
    """The row's primary key, as errors and `Damage` name it."""
    return "/".join(str(row[column.name]) for column in table.primary_key)


def find_damage(table: Table, row: Mapping[str, Any]) -> Damage | None:
    """What is wrong with the row, if anything."""
    if "checksum" not in table.columns or row["checksum"] == _checksum(table, row):
        return None
    if row["checksum"] == _checksum(table, _as_replaced(row)):
        return None
    return Damage(table.name, row_id(table, row), "its content does not match its checksum")


def verified(table: Table, rows: Iterable[Row[Any]], on_damage: OnDamage = refuse) -> Iterator[dict[str, Any]]:
    """The rows, each with all columns of `table`, whose checksums are right; `on_damage` is called with the others."""
    for row in rows:
        values = row._asdict()
        damage = find_damage(table, values)
        if damage is None:
            yield values
        else:
            on_damage(damage)
