"""A bench's directory: what was done of each cell, so that the same command goes on where it was killed.

A cell has a directory `cells/ID` with `cell.json` (a `CellRecord`), `tables.json` (what it observed) and whatever its
experiment leaves there.  `tables.json` is written before the record says that the cell is done, each file all at once,
so whoever is killed at any moment leaves a cell that is done or one that is repeated.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from kintune.errors import InputError
from kintune.files import write_whole
from kintune_lab.bench.record import CellRecord, CellState
from kintune_lab.experiment.cell import Cell
from kintune_lab.experiment.tables import Scalar, Tables

__all__ = ["BenchDirectory"]

_RECORD = "cell.json"
_TABLES = "tables.json"
_LOCK = ".lock"

T = TypeVar("T")


class BenchDirectory:
    """The directory of a bench; it is created when the lock is taken."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other benches out of the directory for the length of a `with` block.

        Raises InputError when the directory cannot be made, or when another process is at work in it.
        """
        path = self.directory / _LOCK
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(
                f"{self.directory}: cannot be written to ({error.strerror}); name another directory with --output"
            ) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 20, 0).decode(errors="replace") or "unknown"
                raise InputError(
                    f"{self.directory}: another bench is at work in it (process {holder}); "
                    "wait for it, or name another directory with --output"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(handle)

    def place(self, cell: Cell) -> Path:
        """The cell's directory."""
        return self.directory / "cells" / cell.id

    def record(self, cell: Cell) -> CellRecord | None:
        """What is known of the cell, None when it was never begun; raises InputError when that is damaged."""
        path = self.place(cell) / _RECORD
        if not path.exists():
            return None
        return _read(path, CellRecord)

    def is_done(self, cell: Cell) -> bool:
        """Whether the cell's observations are all there."""
        record = self.record(cell)
        return record is not None and record.state is CellState.DONE

    def tables(self, cell: Cell) -> dict[str, list[dict[str, Scalar]]]:
        """What a cell that is done observed."""
        return _read(self.place(cell) / _TABLES, dict[str, list[dict[str, Scalar]]])

    def begin(self, record: CellRecord) -> Path:
        """Throw away what an earlier attempt left, note that the cell is running, and return its empty directory."""
        place = self.place(record.cell)
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
        """Note how the cell ended; with `tables` if it is done."""
        if tables is not None:
            write_whole(self.place(record.cell) / _TABLES, msgspec.json.encode(tables))
        with contextlib.suppress(OSError):
            (self.place(record.cell) / "files").rmdir()  # unless something is in it
        self._write(record)

    def _write(self, record: CellRecord) -> None:
        text = msgspec.json.format(msgspec.json.encode(record).decode(), indent=2) + "\n"
        write_whole(self.place(record.cell) / _RECORD, text.encode())


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); remove {path.parent} to run it again") from error
    except msgspec.MsgspecError as error:
        raise InputError(f"{path}: is damaged ({error}); remove {path.parent} to run the cell again") from error
