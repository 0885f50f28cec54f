"""Finds damaged records and removes them; what is missing then is measured again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, select, update

from kintune.errors import DamagedRecord
from kintune.records.blobs import content
from kintune.records.database import Database
from kintune.records.integrity import Damage, find_damage, sealed
from kintune.records.runs import RunState
from kintune.records.schema import METADATA, blobs, events, measurements, meta, runs

__all__ = ["check", "remove_damage"]

_AT_ONCE = 200  # rows held in memory


def check(database: Database) -> list[Damage]:
    """Returns all damage: of the database as a whole, then of rows, then gaps in the sequences of events."""
    with database.snapshot() as connection:
        found = database.system.structural_damage(connection)
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


def remove_damage(database: Database) -> list[Damage]:
    """Remove every damaged row with the rows that refer to it; returns the damage that is left.

    A run with a damaged event loses its events and, unless it is over, is abandoned.  Measurements of a removed run
    stay (`_detach`).
    """
    with database.transaction() as connection:
        for damage in check(database):
            table = METADATA.tables.get(damage.table)
            if table is events:
                _abandon(connection, damage.id.rpartition("/")[0])
            elif table is not None and table is not meta:
                _remove(connection, table, _row_is(table, damage.id))
    return check(database)


def _row_is(table: Table, row_id: str) -> ColumnElement[bool]:
    """The row whose primary key is written `row_id`."""
    columns = list(table.primary_key)
    parts = row_id.rsplit("/", len(columns) - 1)
    return and_(*(column == column.type.python_type(part) for column, part in zip(columns, parts, strict=True)))


def _remove(connection: Connection, table: Table, which: ColumnElement[bool]) -> None:
    """Delete rows, after the rows that refer to them."""
    for child in METADATA.sorted_tables:
        for key in child.foreign_keys:
            if key.column.table is table:
                of_these = key.parent.in_(select(key.column).where(which))
                if child is measurements and table is runs:
                    _detach(connection, of_these)
                else:
                    _remove(connection, child, of_these)
    connection.execute(delete(table).where(which))


def _detach(connection: Connection, which: ColumnElement[bool]) -> None:
    """Set the run of measurements to none; delete those that are damaged themselves, or failed.

    If a run failed as a whole, failures in it say nothing of their candidates.  Without the run, that cannot be known.
    """
    for row in connection.execute(select(measurements).where(which)).all():
        values = row._asdict()
        this = measurements.c.id == values["id"]
        if find_damage(measurements, values) or values["believed_us"] is None:
            connection.execute(delete(measurements).where(this))
        else:
            connection.execute(
                update(measurements).where(this).values(**sealed(measurements, **values | {"run_id": None}))
            )


def _abandon(connection: Connection, run_id: str) -> None:
    """Delete a run's events, and mark it as abandoned unless its state is final."""
    connection.execute(delete(events).where(events.c.run_id == run_id))
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
    if row is None or find_damage(runs, row._asdict()) or RunState(row.state).final:
        return
    values = sealed(runs, **row._asdict() | {"state": RunState.ABANDONED.value})
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(**values))
