"""The records of a comparison as one small file a CPU: they teach later runs, and cannot be collected again."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kintune.core.measurement_protocol import DeviceType
from kintune.records import Store, export_records, import_records

__all__ = ["collect_records", "cpu_name", "keep_records"]

_PREFIX, _SUFFIX = "records-", ".jsonl.gz"


def keep_records(database: Path, directory: Path) -> None:
    """Export the records in the file `database` to a file in `directory` that is named after the CPU, and delete it.

    Nothing is written where nothing was measured.

    Raises:
        StorageError: the file cannot be written.
    """
    with Store.open(str(database), create=False) as store:
        devices = store.devices.list()
        if devices and store.counts().measurements:
            export_records(store, directory / _file_of(cpu_name(devices[0])))
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


def collect_records(directory: Path, cells: Sequence[Path]) -> list[str]:
    """Join what the cells kept to one file a CPU in `directory`; returns the names of these files.

    Raises:
        RecordsError: a cell's file is damaged.
        StorageError: a file cannot be written.
    """
    found: dict[str, list[Path]] = {}
    for cell in cells:
        for path in sorted(cell.glob(_file_of("*"))):
            found.setdefault(path.name, []).append(path)
    for name, paths in found.items():
        with (
            tempfile.TemporaryDirectory(prefix="kintune-records-") as work,
            Store.open(str(Path(work, "all.sqlite"))) as store,
        ):
            for path in paths:
                import_records(store, path)
            export_records(store, directory / name)
    return list(found)


def cpu_name(device: DeviceType) -> str:
    """A name for files of a device's CPU: what it calls itself, and what the compiler calls its kind.

    For example `amd-epyc-9r14-znver4`: many CPUs do not say which kind they are.
    """
    kind = json.loads(device.target).get("mcpu", "")
    plain = re.sub(r"\((r|tm)\)|\b(processor|cpu)\b|\d+-core|@.*", " ", f"{device.model.lower()}")
    return re.sub(r"[^a-z0-9]+", "-", f"{plain} {kind}").strip("-") or "cpu"


def _file_of(name: str) -> str:
    return f"{_PREFIX}{name}{_SUFFIX}"
