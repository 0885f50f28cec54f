"""Looks for damage everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, select

from kintune.errors import DamagedRecord
from kintune.records.blobs import content
from kintune.records.checksum import Damage, find_damage
from kintune.records.database import Database
from kintune.records.schema import METADATA, blobs, events

__all__ = ["check"]

_AT_ONCE = 200  # rows held in memory


def check(database: Database) -> list[Damage]:
    """Everything that is wrong: with the database as a whole, then row by row, then in the sequences of events."""
    with database.snapshot() as connection:
        found = database.backend.structural_damage(connection)
        found += _damaged_rows(connection)
        found += _gaps(connection)
    return found


def _damaged_rows(connection: Connection) -> Iterator[Damage]:
    for table in METADATA.sorted_tables:
        for row in connection.execute(select(table), execution_options={"yield_per": _AT_ONCE}):
            damage = _damaged_blob(row._asdict()) if table is blobs else find_damage(table, row._asdict())
            if damage is not None:
                yield damage


def _damaged_blob(row: Mapping[str, Any]) -> Damage | None:
    try:
        content(row)
    except DamagedRecord as error:
        return Damage(error.table, error.id, error.problem)
    return None


def _gaps(connection: Connection) -> Iterator[Damage]:
    last_run, expected = None, 0
    for run_id, seq in connection.execute(
        select(events.c.run_id, events.c.seq).order_by(events.c.run_id, events.c.seq)
    ):
        expected = expected if run_id == last_run else 0
        if seq != expected:
            yield Damage(events.name, f"{run_id}/{expected}", "it is missing")
        last_run, expected = run_id, seq + 1
