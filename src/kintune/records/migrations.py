"""Migrations: records of an older schema are upgraded to this version's tables when they are opened.

A step changes the tables of one schema into those of the next.  All steps that are missing run in one transaction: the
records are of the new schema afterwards, or as they were.  There is no way back; an older Kintune refuses records that
a newer one has upgraded.  A step uses no table of `schema`, since these change with later versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from sqlalchemy import Connection, inspect, select, text, update

from kintune.core.candidate import digest_of
from kintune.core.version import __version__
from kintune.errors import RecordsError
from kintune.records.database import Database
from kintune.records.integrity import sealed, verified
from kintune.records.schema import FORMAT, NEIGHBOURS, SCHEMA_VERSION, meta

__all__ = ["STEPS", "schema_of", "upgrade"]

_Step: TypeAlias = Callable[[Connection], None]


def _name_the_writer(connection: Connection) -> None:
    """Schema 2: `meta` names the version of Kintune that made the tables, so that a refusal can say what to install."""
    key, value = "written_by", __version__
    checksum = digest_of(b"meta", msgspec.msgpack.encode([key, value]))
    connection.execute(
        text("INSERT INTO meta (key, value, checksum) VALUES (:key, :value, :checksum)"),
        {"key": key, "value": value, "checksum": checksum},
    )


def _name_decisions(connection: Connection) -> None:
    """Schema 3: sketches may have decisions with names, which an earlier Kintune cannot read; no table changes.

    Measurements of earlier programs stay as they are: `kintune.transfer.upgrade` converts them when it is asked to.
    """
    del connection


STEPS: Mapping[int, _Step] = {1: _name_the_writer, 2: _name_decisions}
"""The steps, by the schema version that each starts from."""


def schema_of(connection: Connection, where: str) -> int | None:
    """Returns the version of the records' tables in a database; None if there is no table at all.

    Raises:
        RecordsError: it holds other tables, or those of a newer version.
    """
    tables = {name for name in inspect(connection).get_table_names() if not name.startswith(NEIGHBOURS)}
    if not tables:
        return None
    said = _said(connection) if meta.name in tables else {}
    if said.get("format") != FORMAT:
        raise RecordsError(f"{where}: a database, but not one of Kintune; choose another with --records")
    version = said.get("schema_version", "?")
    if version.isdecimal() and (int(version) == SCHEMA_VERSION or int(version) in STEPS):
        return int(version)
    writer = said.get("written_by", "")
    by, to = (f"Kintune {writer}", f" to version {writer}") if writer else ("another version of Kintune", "")
    raise RecordsError(
        f"{where}: written by {by} (its schema is {version}, this one reads {SCHEMA_VERSION}); "
        f"update Kintune{to}, or choose another file with --records"
    )


def upgrade(database: Database) -> None:
    """Brings older records to `SCHEMA_VERSION`; those that another process has upgraded meanwhile stay as they are.

    Raises:
        RecordsError: they are damaged where a step changes them.
        StorageError: they cannot be written.
    """
    with database.transaction() as connection:
        # On a server, this locks the row against other processes that upgrade; SQLite has one writer at a time anyway.
        connection.execute(select(meta).where(meta.c.key == "schema_version").with_for_update()).one()
        found = schema_of(connection, database.system.where)
        if found is None or found == SCHEMA_VERSION:
            return
        for version in range(found, SCHEMA_VERSION):
            STEPS[version](connection)
        changes: Mapping[str, str] = {"schema_version": str(SCHEMA_VERSION), "written_by": __version__}
        for key, value in changes.items():
            connection.execute(update(meta).where(meta.c.key == key).values(**sealed(meta, key=key, value=value)))


def _said(connection: Connection) -> dict[str, str]:
    """Returns the content of `meta`; empty when its columns are not ours."""
    if {column["name"] for column in inspect(connection).get_columns(meta.name)} != set(meta.columns.keys()):
        return {}
    return {row["key"]: row["value"] for row in verified(meta, connection.execute(select(meta)))}
