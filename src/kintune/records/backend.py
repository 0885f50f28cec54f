"""What a database system has of its own; everything else in this room is portable SQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from kintune.errors import RecordsError, StorageError, StorageFull
from kintune.records.integrity import Damage

__all__ = ["Backend", "insert_or_keep"]

_DISK_FULL = "53100"  # SQLSTATE of PostgreSQL
_INTEGRITY = "23"  # class of SQLSTATE: a constraint refused the row


class Backend:
    """A database server, which looks after its files and its damage itself."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.where = url.render_as_string(hide_password=True)
        """The records' place, as errors name it."""

    def connect(self, *, create: bool, verify: bool) -> Engine:
        """An engine for the database, which need not exist when it may be created (`create`).

        Raises:
            RecordsError: it cannot be used; with `verify` also when it is plain that something is missing.
        """
        try:
            return create_engine(self.url, pool_pre_ping=True)  # a server that was away is asked anew
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise RecordsError(f"{self.where}: no driver for this kind of database ({error}); install one") from error

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Held while the records are opened and, when new, created."""
        yield

    def options(self, *, writes: bool) -> dict[str, Any]:
        """Execution options of a connection whose transaction only reads (and sees one state), or also `writes`."""
        return {} if writes else {"isolation_level": "REPEATABLE READ"}

    def adopt(self, engine: Engine) -> None:
        """Called once the database is known to be ours, or empty, before tables are created."""

    def examine(self, connection: Connection, *, verify: bool) -> str | None:
        """Look for damage that rows cannot tell of; the answer is a line for people when something was lost.

        With `verify`, raises `RecordsError` when the database is not sound.
        """
        return None

    def structural_damage(self, connection: Connection) -> list[Damage]:
        """Everything that is wrong with the database as a whole."""
        return []

    def before_commit(self, connection: Connection) -> int:
        """The last thing done in every transaction that writes; which number it has, where they are counted."""
        return 0

    def after_commit(self, number: int) -> None:
        """The first thing done after every transaction that wrote, which has this number.  Never raises."""

    def explain(self, error: BaseException) -> RecordsError | StorageError:
        """What a driver's `error` means."""
        state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
        line = " ".join(str(error).split())
        if state == _DISK_FULL:
            return StorageFull(f"{self.where}: the server has no space left; free some and run the same command again")
        if state.startswith(_INTEGRITY):
            return RecordsError(f"{self.where}: refused a record: {line}")
        return StorageError(f"{self.where}: {line}")

    def close(self) -> None:
        """Give back what the backend itself holds."""


def insert_or_keep(connection: Connection, table: Table, *rows: Mapping[str, Any]) -> bool:
    """Insert the rows, at least one, but those whose unique key is there already; whether any was inserted."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return connection.execute(dialect.insert(table).on_conflict_do_nothing(), [dict(row) for row in rows]).rowcount > 0
