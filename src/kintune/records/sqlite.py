"""SQLite: the file of the records, and the mark beside it that counts commits.

The file has a write-ahead log, so that readers never wait, and `synchronous=FULL`, so that committed transactions
survive a loss of power.  Its `user_version` counts commits; the mark has the same number (`CommitMark`), so that a lost
log is noticed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, select, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from kintune.errors import RecordsError, StorageError, StorageFull
from kintune.records.database import DatabaseSystem
from kintune.records.integrity import Damage, row_id
from kintune.records.schema import METADATA

__all__ = ["CommitMark", "SQLiteFile", "SQLiteMemory"]

_WRITES = "kintune_writes"  # execution option: the transaction will write, and takes the write lock at its beginning
_MAGIC = b"SQLite format 3\0"
_HEADER = 100  # bytes of the file header
_EXAMINED_WHOLE = 64 << 20  # bytes: smaller files are checked whole when opened, which takes less than half a second
_WAY_OUT = "`kintune records check` says more; restore a copy, or move the file away to start anew"
_LENGTH = 30  # 20 digits, a space, 8 hex digits of CRC-32, a newline


class SQLiteMemory(DatabaseSystem):
    """Records in memory, gone when closed; for tests and experiments.  One thread at a time."""

    def __init__(self) -> None:
        super().__init__(URL.create("sqlite", database=":memory:"))

    def connect(self, *, create: bool, verify: bool) -> Engine:
        """An engine whose one connection is the database."""
        engine = create_engine(self.url, poolclass=StaticPool)
        _configure(engine, busy_seconds=0)
        return engine

    def options(self, *, writes: bool) -> dict[str, Any]:
        """Returns the option that has a writing transaction take the write lock at its beginning.

        Transactions that only read see one state in any case.
        """
        return {_WRITES: writes}

    def structural_damage(self, connection: Connection) -> list[Damage]:
        """Returns the damage that SQLite's own check of pages, indices and references finds."""
        found = connection.exec_driver_sql("PRAGMA integrity_check(100)").scalars()
        damages = [Damage("database", self.where, str(problem)) for problem in found if problem != "ok"]
        for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            damages.append(Damage(table, _key_of(connection, table, row), f"names a row of {parent} that is not there"))
        return damages

    def explain(self, error: BaseException) -> RecordsError | StorageError:
        """Returns the error of Kintune for SQLite's `error`, by its text, which is the same in all versions."""
        line = str(error)
        if "disk is full" in line:
            return StorageFull(f"{self.where}: no space left to write; free some and run the same command again")
        if "locked" in line or "busy" in line:
            return StorageError(f"{self.where}: another process keeps it locked; wait for that one, then try again")
        if "not a database" in line:
            return RecordsError(f"{self.where}: not a database; choose another file with --records")
        if "malformed" in line or isinstance(error, UnicodeDecodeError):  # the second: of what it is to say
            return RecordsError(f"{self.where}: the database is damaged ({line}); {_WAY_OUT}")
        if isinstance(error, sqlite3.IntegrityError):
            return RecordsError(f"{self.where}: refused a record: {line}")
        return StorageError(
            f"{self.where}: {line}; check the disk and the permissions, then run the same command again"
        )


def _key_of(connection: Connection, table: str, row: int) -> str:
    """Return a row's primary key, as it is written in `Damage`, from SQLite's `rowid` of it."""
    known = METADATA.tables.get(table)
    if known is None:
        return str(row)
    found = connection.execute(select(*known.primary_key).where(text("rowid = :row")), {"row": row}).one()
    return row_id(known, found._asdict())


class SQLiteFile(SQLiteMemory):
    """Records in one file (with its log and mark beside it), shared by one writer at a time and any number of readers.

    `busy_seconds` is how long a writer waits for another.
    """

    def __init__(self, path: Path, busy_seconds: float) -> None:
        DatabaseSystem.__init__(self, URL.create("sqlite", database=str(path)))
        self.where = str(path)
        self._path = path
        self._busy_seconds = busy_seconds
        self._mark: CommitMark | None = None
        self._marked: int | None = None  # what the mark told when the file was opened

    def connect(self, *, create: bool, verify: bool) -> Engine:
        """Returns an engine for the file, after checks of the file that change nothing.

        Raises:
            RecordsError: it is a directory or not a database, is missing without `create`, or with `verify` is cut
                short.
            StorageError: it cannot be read or written.
        """
        path = self._path
        try:
            if path.is_dir():
                raise RecordsError(f"{path}: a directory; name a file with --records")
            exists = path.exists()
            if exists:
                self._inspect(verify=verify)
            elif not create:
                raise RecordsError(f"{path}: no such file; `kintune tune` creates it, --records names another")
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._mark = CommitMark(path.with_name(path.name + "-mark"))
            if not exists:
                self._mark.write(0)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StorageError(f"{path}: cannot be opened ({reason}); name another file with --records") from error
        engine = create_engine(self.url)
        _configure(engine, self._busy_seconds)
        return engine

    def _inspect(self, *, verify: bool) -> None:
        """Refuse a file that is not a database, may not be read and written, or (with `verify`) is cut short."""
        path = self._path
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(_HEADER)
        if header[: len(_MAGIC)] != _MAGIC[: len(header)]:
            raise RecordsError(f"{path}: not a database; choose another file with --records")
        if not os.access(path, os.W_OK):
            raise StorageError(
                f"{path}: may not be written; change its permissions or name another file with --records"
            )
        log = path.with_name(path.name + "-wal")
        if not verify or size == 0 or (log.exists() and log.stat().st_size):
            return  # a new file, or one whose log holds newer pages than the header tells of
        page = int.from_bytes(header[16:18], "big")
        expected = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
        if len(header) < _HEADER or size < expected:
            told = f" of {expected}" if expected else ""
            raise RecordsError(f"{path}: cut short ({size} bytes{told} are left); {_WAY_OUT}")

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Returns a context in which no other process opens or creates the file.

        Others may write to it meanwhile.  So the mark is read before the file: its number is at most the file's.
        """
        if self._mark is None:
            yield
            return
        with self._mark.locked():
            self._marked = self._mark.read()
            yield

    def adopt(self, engine: Engine) -> None:
        """Switch the file to a write-ahead log, which SQLite keeps as a property of the file.

        Raises:
            StorageError: the file system does not allow it.
        """
        with contextlib.closing(engine.raw_connection()) as connection:
            try:
                mode = connection.cursor().execute("PRAGMA journal_mode=WAL").fetchone()[0]
            except sqlite3.Error as error:
                raise self.explain(error) from error
        if mode != "wal":
            raise StorageError(f"{self.where}: this file system cannot hold it safely; name another with --records")

    def examine(self, connection: Connection, *, verify: bool) -> str | None:
        """Compare the commits counted in the file with the mark; returns a line for people when some were lost.

        With `verify`, a small file, or one that lost commits, is checked as a whole.

        Raises:
            RecordsError: that check finds damage.
        """
        marked = self._marked
        lost = max(0, (marked or 0) - self._count(connection))
        if verify and (lost or self._path.stat().st_size <= _EXAMINED_WHOLE):
            damages = self.structural_damage(connection)
            if damages:
                first = " ".join(damages[0].problem.split())
                raise RecordsError(f"{self.where}: the database is damaged ({first}); {_WAY_OUT}")
        if not lost:
            return None
        return (
            f"{self.where}: the last {lost} of {marked} transactions are gone (its log was cut short or damaged, or an "
            "older copy was put in its place); what is left is sound, and what is missing will be measured again"
        )

    def before_commit(self, connection: Connection) -> int:
        """Count the transaction in the file; returns its number."""
        number = self._count(connection) + 1
        connection.exec_driver_sql(f"PRAGMA user_version={number}")
        return number

    def after_commit(self, number: int) -> None:
        """Write the number of commits to the mark."""
        if self._mark:
            self._mark.write(number)

    def _count(self, connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())

    def close(self) -> None:
        """Close the mark."""
        if self._mark:
            self._mark.close()
            self._mark = None


def _configure(engine: Engine, busy_seconds: float) -> None:
    """Let SQLAlchemy begin the transactions instead of the driver, and set the options of each connection."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        connection.isolation_level = None
        connection.text_factory = _decode
        connection.create_function("lower", 1, _lower, deterministic=True)
        for pragma in (f"busy_timeout={int(busy_seconds * 1000)}", "foreign_keys=ON", "synchronous=FULL"):
            try:
                connection.cursor().execute(f"PRAGMA {pragma}")
            except UnicodeDecodeError as error:  # the driver cannot read what SQLite says of the damage
                raise sqlite3.DatabaseError("the database disk image is malformed") from error

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _decode(text: bytes) -> str:
    """Decode a text; bad bytes are replaced and do not raise, so that the checksum finds the damage."""
    return text.decode("utf-8", "replace")


def _lower(text: object) -> object:
    """Return a text in small letters, of all alphabets; SQLite's own function changes ASCII letters only."""
    return text.lower() if isinstance(text, str) else text


class CommitMark:
    """The file `path`, created when missing, with the number of commits; a smaller one in the database shows a loss."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> int | None:
        """The number of commits last noted; None when there is none, or the file itself is damaged."""
        line = os.pread(self._file, _LENGTH + 1, 0)
        digits = line[:20]
        return int(digits) if line == _line(digits) and digits.isdigit() else None

    def write(self, commits: int) -> None:
        """Note that `commits` transactions are committed.  An older mark remains when it cannot be written."""
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _line(b"%020d" % commits), 0)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes that open the same records waiting meanwhile."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; the mark remains."""
        os.close(self._file)


def _line(digits: bytes) -> bytes:
    return b"%s %08x\n" % (digits, zlib.crc32(digits))
