"""Foreign databases for callers that are free of the compiler: the work is done in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TypeVar

import msgspec

from kintune.errors import EngineError, InputError
from kintune.integrations.tuning_database import Exported, TuningDatabase

__all__ = ["export_metaschedule", "read_metaschedule"]

Result = TypeVar("Result")


def export_metaschedule(directory: str | os.PathLike[str], database: TuningDatabase) -> Exported:
    """Write a stock MetaSchedule database; see `kintune.integrations.metaschedule.export_database`."""
    return _aside("export", directory, msgspec.msgpack.encode(database), Exported)


def read_metaschedule(directory: str | os.PathLike[str]) -> TuningDatabase:
    """Read a stock MetaSchedule database; see `kintune.integrations.metaschedule.read_database`."""
    return _aside("read", directory, b"", TuningDatabase)


def _aside(operation: str, directory: str | os.PathLike[str], payload: bytes, result: type[Result]) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", "kintune.integrations.metaschedule", operation, os.fspath(directory)],
        input=payload,
        capture_output=True,
        env={**os.environ, "TVM_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise EngineError(f"{operation} of {directory}: the process ended with exit code {done.returncode}: {last}")
    refusal, answer = msgspec.msgpack.decode(done.stdout, type=tuple[str, msgspec.Raw])
    if refusal:
        raise InputError(refusal)
    return msgspec.msgpack.decode(answer, type=result)
