"""A bench's directory on disk: the record and the tables of each cell, so that an interrupted bench can be continued.

A cell has a directory `cells/ID` with `cell.json` (a `CellRecord`), `tables.json` (its observations) and the files of
its experiment.  `tables.json` is written before the record says DONE, and each file is replaced atomically, so a cell
is either done or repeated, whenever the process is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import msgspec

from kintune.core.device import Machine
from kintune.core.version import __version__
from kintune.errors import InputError
from kintune.files import write_whole
from kintune.hardware.cpu import inspect_machine
from kintune.wire.channel import UNREADABLE
from kintune_lab.experiment.experiment import Cell
from kintune_lab.experiment.tables import Scalar, Tables

__all__ = ["COMPILER", "BenchDirectory", "CellRecord", "CellState", "end_record", "start_record"]


COMPILER = "apache-tvm"
"""The compiler among a record's versions."""

_SCHEMA = 1
_PACKAGES = (COMPILER, "apache-tvm-ffi", "numpy", "xgboost-cpu", "torch")


class CellState(str, Enum):
    """The state of a cell.  RUNNING on disk without a bench process means that the bench was killed."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A cell as it was run.

    `error` is the class of what it failed with and `reason` its one line; `started` and `ended` are UTC, `seconds` is
    wall time; `load` has the machine's load averages over the minute before the cell began.
    """

    schema_version: int = _SCHEMA
    cell: Cell
    id: str
    state: CellState
    error: str = ""
    reason: str = ""
    started: str = ""
    ended: str = ""
    seconds: float | None = None
    load: float = 0.0
    machine: Machine
    versions: dict[str, str]


def start_record(cell: Cell) -> CellRecord:
    """Return the record of a cell that starts now on this machine."""
    return CellRecord(
        cell=cell,
        id=cell.id,
        state=CellState.RUNNING,
        started=_now(),
        load=round(os.getloadavg()[0], 2),
        machine=inspect_machine(),
        versions={"kintune": __version__, "python": platform.python_version(), **_installed()},
    )


def end_record(record: CellRecord, state: CellState, seconds: float, error: BaseException | None = None) -> CellRecord:
    """Return the record of the cell that ended now after `seconds`."""
    return msgspec.structs.replace(
        record,
        state=state,
        ended=_now(),
        seconds=round(seconds, 3),
        error=type(error).__name__ if error is not None else "",
        reason=" ".join(str(error).split()) if error is not None else "",
    )


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _installed() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


_RECORD = "cell.json"
_TABLES = "tables.json"
_LOCK = ".lock"

T = TypeVar("T")


class BenchDirectory:
    """The directory of a bench; it is created when the lock is taken."""

    def __init__(self, directory: Path) -> None:
        self.path = directory

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory's lock inside a `with` block.

        Raises:
            InputError: the directory cannot be made, or another process holds the lock.
        """
        path = self.path / _LOCK
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written to ({error.strerror}); name another directory with --output"
            ) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 20, 0).decode(errors="replace") or "unknown"
                raise InputError(
                    f"{self.path}: another bench is at work in it (process {holder}); "
                    "wait for it, or name another directory with --output"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def cell_directory(self, cell: Cell) -> Path:
        """The cell's directory."""
        return self.path / "cells" / cell.id

    def record(self, cell: Cell) -> CellRecord | None:
        """The cell's record, None if it never started.

        Raises:
            InputError: the record is damaged.
        """
        path = self.cell_directory(cell) / _RECORD
        if not path.exists():
            return None
        return _read(path, CellRecord)

    def is_done(self, cell: Cell) -> bool:
        """Whether the cell's observations are all there."""
        record = self.record(cell)
        return record is not None and record.state is CellState.DONE

    def has_tables(self, cell: Cell) -> bool:
        """Whether the cell is done, or has failed and yet observed something."""
        record = self.record(cell)
        if record is None or record.state not in (CellState.DONE, CellState.FAILED):
            return False
        return record.state is CellState.DONE or (self.cell_directory(cell) / _TABLES).exists()

    def tables(self, cell: Cell) -> dict[str, list[dict[str, Scalar]]]:
        """The tables of a cell that has some."""
        return _read(self.cell_directory(cell) / _TABLES, dict[str, list[dict[str, Scalar]]])

    def begin(self, record: CellRecord) -> Path:
        """Remove the files of an earlier attempt, write the record, and return the cell's empty directory."""
        place = self.cell_directory(record.cell)
        try:
            if place.exists():
                shutil.rmtree(place)
            work = place / "files"
            work.mkdir(parents=True)
        except OSError as error:
            raise InputError(f"{place}: cannot be made anew ({error.strerror or error})") from error
        self._write(record)
        return work

    def finish(self, record: CellRecord, tables: Tables | None = None) -> None:
        """Write the cell's last record, and what it observed."""
        if tables is not None:
            write_whole(self.cell_directory(record.cell) / _TABLES, msgspec.json.encode(tables))
        with contextlib.suppress(OSError):
            (self.cell_directory(record.cell) / "files").rmdir()  # unless something is in it
        self._write(record)

    def _write(self, record: CellRecord) -> None:
        text = msgspec.json.format(msgspec.json.encode(record).decode(), indent=2) + "\n"
        write_whole(self.cell_directory(record.cell) / _RECORD, text.encode())


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); remove {path.parent} to run it again") from error
    except UNREADABLE as error:
        raise InputError(f"{path}: is damaged ({error}); remove {path.parent} to run the cell again") from error
