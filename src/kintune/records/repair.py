"""Takes out what is damaged, so that the rest can be used and what is missing is measured again."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, select, update

from kintune.records.check import check
from kintune.records.checksum import Damage, find_damage, sealed
from kintune.records.database import Database
from kintune.records.runs import RunState
from kintune.records.schema import METADATA, events, measurements, meta, runs

__all__ = ["remove_damage"]


def remove_damage(database: Database) -> list[Damage]:
    """Remove every damaged row with all that depends on it; the answer is the damage that no removal can help.

    A run with a damaged event loses its events and is abandoned; measurements outlive the run that made them.
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
    """Delete rows, after those that name them."""
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
    """Let measurements forget the run that made them; those that are damaged themselves go, and so do failures.

    Without the run nobody knows whether all of it failed, which would say nothing of the candidates.
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
    """Forget a run's events; unless it was over, it is now."""
    connection.execute(delete(events).where(events.c.run_id == run_id))
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
    if row is None or find_damage(runs, row._asdict()) or RunState(row.state).final:
        return
    values = sealed(runs, **row._asdict() | {"state": RunState.ABANDONED.value})
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(**values))
