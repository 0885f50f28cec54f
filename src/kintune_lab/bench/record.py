"""What is known of a cell that was run: how it ended, when, on what machine and with which versions."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from enum import Enum
from importlib.metadata import PackageNotFoundError, version

import msgspec

from kintune.core.device import Machine
from kintune.core.version import __version__
from kintune.hardware.cpu import inspect_machine
from kintune_lab.experiment.cell import Cell

__all__ = ["COMPILER", "CellRecord", "CellState", "begun", "ended"]

COMPILER = "apache-tvm"
"""The compiler among a record's versions."""

_SCHEMA = 1
_PACKAGES = (COMPILER, "apache-tvm-ffi", "numpy", "xgboost-cpu", "torch")


class CellState(str, Enum):
    """How far a cell is.  RUNNING on disk without a bench at work means that the bench was killed."""

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


def begun(cell: Cell) -> CellRecord:
    """The record of a cell that begins now, on this machine."""
    return CellRecord(
        cell=cell,
        id=cell.id,
        state=CellState.RUNNING,
        started=_now(),
        load=round(os.getloadavg()[0], 2),
        machine=inspect_machine(),
        versions={"kintune": __version__, "python": platform.python_version(), **_installed()},
    )


def ended(record: CellRecord, state: CellState, seconds: float, error: BaseException | None = None) -> CellRecord:
    """The same cell, over now after `seconds`."""
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
