"""Transactions: where they begin, how they end, and what a driver's errors become."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TypeAlias

from sqlalchemy import Connection, ExceptionContext, event

from kintune.errors import OrderError, RecordsError, StorageError
from kintune.records.backend import Backend

__all__ = ["Clock", "Database", "now"]


class _Open:
    """The transaction a thread is in."""

    def __init__(self, connection: Connection, writes: bool) -> None:
        self.connection = connection
        self.writes = writes
        self.failure: RecordsError | StorageError | None = None


class Database:
    """A database in which every operation belongs to a transaction: the one its thread has open, or one of its own.

    A driver's error becomes a `RecordsError`, and ends the transaction in which it happened: whatever the caller does
    with the error, nothing of that transaction is kept, and the next one starts clean.
    """

    def __init__(self, backend: Backend, *, create: bool, verify: bool) -> None:
        self.backend = backend
        self.engine = backend.connect(create=create, verify=verify)
        self._thread = threading.local()
        event.listen(self.engine, "handle_error", self._explain, retval=True)

    @property
    def _open(self) -> _Open | None:
        return getattr(self._thread, "open", None)

    def _explain(self, context: ExceptionContext) -> BaseException | None:
        if context.sqlalchemy_exception is None:
            return None  # not the driver's: an interrupt, or a mistake of ours
        if context.is_pre_ping:
            return None  # nobody's transaction: a connection that is gone is replaced
        error = self.backend.explain(context.original_exception)
        if self._open is not None:
            self._open.failure = error
        return error

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection in a transaction that commits when the block ends well; joins the one that is open, if any."""
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
        with self.engine.connect().execution_options(**self.backend.options(writes=writes)) as connection:
            opened = _Open(connection, writes)
            with connection.begin():
                self._thread.open = opened
                try:
                    yield connection
                    _check(opened)
                    if writes:
                        number = self.backend.before_commit(connection)
                finally:
                    self._thread.open = None
        if writes:
            self.backend.after_commit(number)

    @contextmanager
    def _join(self, outer: _Open) -> Iterator[Connection]:
        _check(outer)
        yield outer.connection

    def close(self) -> None:
        """Close all connections; the database can no longer be used."""
        self.engine.dispose()
        self.backend.close()


def _check(opened: _Open) -> None:
    """Raise what ended the transaction before its block did."""
    if opened.failure is not None:
        raise opened.failure


Clock: TypeAlias = Callable[[], str]
"""The time of day, ISO 8601 in UTC; an argument, so that tests can tell the time."""


def now() -> str:
    """The time of day to the millisecond, such as `2026-01-31T12:00:00.000+00:00`."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
