"""The store: opens, checks and closes the records."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import msgspec
from sqlalchemy import Connection, func, insert, select

from kintune.core.version import __version__
from kintune.errors import RecordsError
from kintune.records.blobs import Blobs
from kintune.records.database import Clock, Database, now
from kintune.records.devices import DeviceRecords
from kintune.records.integrity import Damage, sealed
from kintune.records.location import are_there, database_system_at, default_location
from kintune.records.measurements import Measurements
from kintune.records.migrations import schema_of, upgrade
from kintune.records.models import Models
from kintune.records.repair import check, remove_damage
from kintune.records.runs import Events, Runs
from kintune.records.schema import FORMAT, METADATA, SCHEMA_VERSION, meta
from kintune.records.workloads import Workloads

__all__ = ["RecordCounts", "Store"]


class RecordCounts(msgspec.Struct, frozen=True):
    """How many rows there are."""

    blobs: int
    device_types: int
    workloads: int
    sketches: int
    measurements: int
    runs: int
    events: int
    model_versions: int
    machine_facts: int


class Store:
    """The records: `blobs`, `devices`, `workloads`, `measurements`, `runs`, `events` and `models`.

    Every operation is atomic by itself; those inside `with store.transaction():` are atomic together, and each sees
    what earlier ones wrote.  An exception that leaves the block undoes all of them.  After any error, the store can
    still be used.  Committed transactions have reached the disk.

    One process writes; a second writer waits until the first one's transaction is over.  Any number may read.  Threads
    of a process may share a store (each has its own transactions), except one in memory.

    `notice` is a line for people when opening found that committed transactions were lost, else None.
    """

    def __init__(self, database: Database, clock: Clock = now, notice: str | None = None) -> None:
        self._database = database
        self.notice = notice
        self.blobs = Blobs(database)
        self.devices = DeviceRecords(database, clock)
        self.workloads = Workloads(database, self.blobs)
        self.measurements = Measurements(database, clock)
        self.runs = Runs(database, clock)
        self.events = Events(database)
        self.models = Models(database, clock)

    @classmethod
    def open(
        cls,
        location: str | Path | None = None,
        *,
        create: bool = True,
        verify: bool = True,
        busy_seconds: float = 60.0,
        clock: Clock = now,
    ) -> Store:
        """Open the records at a path, a database URL, or ":memory:"; by default where `default_location()` says.

        New records are made when there are none, unless `create` is False; those of an older version are brought to
        this one's tables, for good.  A writer waits `busy_seconds` for another.  `verify` False opens even a database
        known to be damaged, to look at what is left of it.

        Raises:
            RecordsError: it is a directory, not a database, not of Kintune, damaged, cut short, or written by a newer
                version.
            StorageError: it cannot be read and written.
        """
        system = database_system_at(default_location() if location is None else location, busy_seconds)
        database = Database(system, create=create, verify=verify)
        try:
            with system.opening():
                with database.snapshot() as connection:
                    found = schema_of(connection, system.where)
                    notice = system.examine(connection, verify=verify)
                if found is None and not create:
                    raise RecordsError(notice or f"{system.where}: holds no records; `kintune tune` creates them")
                if found is None:
                    system.adopt(database.engine)
                    _create(database)
                elif found != SCHEMA_VERSION:
                    upgrade(database)
        except BaseException:
            database.close()
            raise
        return cls(database, clock, notice)

    @staticmethod
    def default_location() -> str:
        """`$KINTUNE_RECORDS` if set, else `records.sqlite` in the user's data directory."""
        return default_location()

    @staticmethod
    def are_at(location: str) -> bool:
        """Whether there may be records at a location: a file exists, or it is the URL of a database."""
        return are_there(location)

    @property
    def where(self) -> str:
        """The location of the records, for people: a path, or a URL without its password."""
        return self._database.system.where

    def transaction(self) -> AbstractContextManager[Connection]:
        """Returns a context whose writes are kept together or not at all; an inner one belongs to the outer one."""
        return self._database.transaction()

    def snapshot(self) -> AbstractContextManager[Connection]:
        """Returns a context whose reads all see the same state, even if others write meanwhile."""
        return self._database.snapshot()

    def counts(self) -> RecordCounts:
        """How many rows there are of each kind."""
        with self._database.snapshot() as connection:
            tables = (table for table in METADATA.sorted_tables if table is not meta)
            return RecordCounts(
                **{
                    table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
                    for table in tables
                }
            )

    def check(self) -> list[Damage]:
        """Returns all damage of the records; reads all of them."""
        return check(self._database)

    def remove_damage(self) -> list[Damage]:
        """Removes every damaged row and the rows that depend on it; returns the damage that is left.

        A run with a damaged event loses its events and, if it is not over, is abandoned.  When a run is removed, its
        times stay and its failures go.
        """
        return remove_damage(self._database)

    def close(self) -> None:
        """Close the records; they can no longer be used."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _create(database: Database) -> None:
    with database.transaction() as connection:
        METADATA.create_all(connection)
        said = {"format": FORMAT, "schema_version": str(SCHEMA_VERSION), "written_by": __version__}
        for key, value in said.items():
            connection.execute(insert(meta).values(**sealed(meta, key=key, value=value)))
