"""Databases and their transactions; `DatabaseSystem` has what differs between PostgreSQL and SQLite."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TypeAlias

from sqlalchemy import URL, Connection, Engine, ExceptionContext, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from kintune.errors import OrderError, RecordsError, StorageError, StorageFull
from kintune.records.integrity import Damage, without_nul

__all__ = ["Clock", "Database", "DatabaseSystem", "insert_or_keep", "now"]

Clock: TypeAlias = Callable[[], str]
"""Returns the time of day, ISO 8601 in UTC; tests replace it."""

_DISK_FULL = "53100"  # SQLSTATE of PostgreSQL
_INTEGRITY = "23"  # class of SQLSTATE: a constraint refused the row


class DatabaseSystem:
    """A database server, which manages and checks its files itself."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self.where = url.render_as_string(hide_password=True)
        """The location of the records, as errors name it."""

    def connect(self, *, create: bool, verify: bool) -> Engine:
        """Returns an engine for the database; with `create`, a file of records need not exist yet.

        Raises:
            RecordsError: it cannot be used; with `verify`, also when a file is visibly cut short.
            StorageError: a file cannot be opened.
        """
        try:
            engine = create_engine(self.url, pool_pre_ping=True)  # reconnects to a server that was away
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise RecordsError(f"{self.where}: no driver for this kind of database ({error}); install one") from error
        event.listen(engine, "before_cursor_execute", _replace_nul, retval=True)
        return engine

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Returns a context that is held while the records are opened and, when new, created."""
        yield

    def options(self, *, writes: bool) -> dict[str, Any]:
        """Returns the options of a connection whose transaction only reads (and sees one state) or `writes`."""
        return {} if writes else {"isolation_level": "REPEATABLE READ"}

    def adopt(self, engine: Engine) -> None:
        """Prepares a database that is known to be empty, before tables are created."""

    def examine(self, connection: Connection, *, verify: bool) -> str | None:
        """Looks for damage that rows do not show; returns a line for people when something was lost.

        Raises:
            RecordsError: with `verify`, the database is not sound.
        """
        return None

    def structural_damage(self, connection: Connection) -> list[Damage]:
        """Returns the damage of the database as a whole."""
        return []

    def before_commit(self, connection: Connection) -> int:
        """Is called last in every transaction that writes; returns its number, where they are counted."""
        return 0

    def after_commit(self, number: int) -> None:
        """Is called first after every transaction that wrote, with its number; never raises."""

    def explain(self, error: BaseException) -> RecordsError | StorageError:
        """Returns the error of Kintune for a driver's `error`."""
        state = str(getattr(error, "sqlstate", None) or "")
        line = " ".join(str(error).split())
        if state == _DISK_FULL:
            return StorageFull(f"{self.where}: the server has no space left; free some and run the same command again")
        if state.startswith(_INTEGRITY):
            return RecordsError(f"{self.where}: refused a record: {line}")
        return StorageError(f"{self.where}: {line}")

    def close(self) -> None:
        """Closes the files that the system itself has open."""


class _Open:
    """The open transaction of a thread."""

    def __init__(self, connection: Connection, writes: bool) -> None:
        self.connection = connection
        self.writes = writes
        self.failure: RecordsError | StorageError | None = None


class Database:
    """A database in which every operation belongs to a transaction: the one its thread has open, or one of its own.

    A driver's error becomes a `RecordsError` or a `StorageError`, and ends the transaction in which it happened: even
    if the caller handles the error inside the block, nothing of that transaction is kept.
    """

    def __init__(self, system: DatabaseSystem, *, create: bool, verify: bool) -> None:
        self.system = system
        self.engine = system.connect(create=create, verify=verify)
        self._thread = threading.local()
        event.listen(self.engine, "handle_error", self._explain, retval=True)

    @property
    def _open(self) -> _Open | None:
        return getattr(self._thread, "open", None)

    def _explain(self, context: ExceptionContext) -> BaseException | None:
        if isinstance(context.original_exception, OverflowError):
            return RecordsError(f"{self.system.where}: a number is too large for a database; it has 64 bits at most")
        if context.sqlalchemy_exception is None and not isinstance(context.original_exception, UnicodeDecodeError):
            return None  # not the driver's: an interrupt, or a mistake of ours
        if context.is_pre_ping:
            return None  # outside of any transaction: the pool replaces a connection that is gone
        error = self.system.explain(context.original_exception)
        if self._open is not None:
            self._open.failure = error
        return error

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection in a transaction that commits when the block ends well; joins the one that is open, if any.

        Raises:
            OrderError: it is opened inside a snapshot.
            RecordsError: the database refuses a row, or an error of the driver has ended this transaction before.
            StorageError: the database cannot be written now; as above.
        """
        outer = self._open
        if outer is not None and not outer.writes:
            raise OrderError("records: nothing can be written inside snapshot(); use transaction()")
        with self._begin(writes=True) if outer is None else self._join(outer) as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection that sees one state of the records throughout; joins the transaction that is open, if any."""
        outer = self._open
        with self._begin(writes=False) if outer is None else self._join(outer) as connection:
            yield connection

    @contextmanager
    def _begin(self, *, writes: bool) -> Iterator[Connection]:
        number = 0
        with self.engine.connect().execution_options(**self.system.options(writes=writes)) as connection:
            opened = _Open(connection, writes)
            with connection.begin():
                self._thread.open = opened
                try:
                    yield connection
                    _check(opened)
                    if writes:
                        number = self.system.before_commit(connection)
                finally:
                    self._thread.open = None
        if writes:
            self.system.after_commit(number)

    @contextmanager
    def _join(self, outer: _Open) -> Iterator[Connection]:
        _check(outer)
        yield outer.connection

    def close(self) -> None:
        """Close all connections; the database can no longer be used."""
        self.engine.dispose()
        self.system.close()


def _replace_nul(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> tuple[str, Any]:
    """Replaces NUL characters in texts (`without_nul`)."""
    return statement, _without_nul(parameters)


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return without_nul(value)
    if isinstance(value, Mapping):
        return {name: _without_nul(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(_without_nul, value))
    return value


def insert_or_keep(connection: Connection, table: Table, *rows: Mapping[str, Any]) -> None:
    """Inserts the rows (at least one) whose unique key is new."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), [dict(row) for row in rows])


def now() -> str:
    """The time of day to the millisecond, such as `2026-01-31T12:00:00.000+00:00`."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _check(opened: _Open) -> None:
    """Raises the error that ended the transaction within its block."""
    if opened.failure is not None:
        raise opened.failure
