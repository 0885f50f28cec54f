"""Exports of results for downloads: the `.kt` file as a wheel, or packed for onnxruntime or for C in one archive.

They are made when somebody asks for them, and kept for an hour.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import zipfile
from contextlib import suppress
from enum import Enum
from pathlib import Path
from weakref import WeakValueDictionary

from kintune.errors import InputError, StorageError
from kintune.runtime.exports.c_library import export_c
from kintune.runtime.exports.onnx_operator import export_onnx
from kintune.runtime.exports.wheel import export_wheel
from kintune.service.access import Forbidden, Visitor

__all__ = ["ExportKind", "Exports"]
_AT_ONCE = 2
_KEPT_S, _DAY_S = 3600.0, 86400.0


class ExportKind(str, Enum):
    """For whom a result is exported, as `kintune export --to` has it."""

    C = "c"
    ONNX = "onnx"
    WHEEL = "wheel"


class Exports:
    """Exports in a folder, each kept until nobody has asked for it for an hour.

    Those of one user may take as much as his uploads may.  At most two are made at a time.  Who waits for one takes no
    thread.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._using = threading.Lock()

    async def get(self, visitor: Visitor, executable: Path, kind: ExportKind, name: str) -> Path:
        """Returns the file with the export of an executable, a wheel or a zip, for a visitor.

        The executable is called by its digest, as in the blob store; `name` is that of the model.

        Raises:
            Forbidden: the exports that are kept for the visitor take too much already.
            InputError: the executable cannot be exported so.
            StorageError: the export cannot be written.
        """
        place = self._folder / f"kept-{visitor.user}-{executable.name}-{kind.value}-{name}"
        lock = self._locks.setdefault(place.name, asyncio.Lock())
        async with lock:  # it is made once, however many ask for it
            if (kept := await asyncio.to_thread(self._kept, place)) is not None:
                return kept
            async with self._turns:
                await asyncio.to_thread(self._check_room, visitor)
                return await asyncio.to_thread(self._make, executable, kind, name, place)

    def sweep(self, now: float) -> None:
        """Removes exports that nobody has asked for lately, and what processes that were killed have left.

        `now` is in seconds since 1970.
        """
        for pattern, age in (("kept-*", _KEPT_S), ("export-*", _DAY_S)):
            for left in self._folder.glob(pattern):
                with self._using, suppress(FileNotFoundError):
                    if left.stat().st_mtime < now - age:
                        shutil.rmtree(left, ignore_errors=True)

    def _kept(self, place: Path) -> Path | None:
        """The file of an export that is there, which then stays for another hour."""
        with self._using:
            try:
                os.utime(place)
            except FileNotFoundError:
                return None
            return next(place.iterdir(), None)

    def _check_room(self, visitor: Visitor) -> None:
        with self._using:
            sizes = [file.stat().st_size for file in self._folder.glob(f"kept-{visitor.user}-*/*")]
        if sum(sizes) > visitor.quota.storage_mb << 20:
            used, most = sum(sizes) / (1 << 20), visitor.quota.storage_mb
            raise Forbidden(
                f"the exports that were made for you take {used:.1f} of the {most} MB that may be kept; each is "
                "removed within two hours after it was last asked for"
            )

    def _make(self, executable: Path, kind: ExportKind, name: str, place: Path) -> Path:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            begun = tempfile.TemporaryDirectory(prefix="export-", dir=self._folder, ignore_cleanup_errors=True)
            with begun as path:
                made = _write(executable, kind, name, Path(path))
                whole = Path(path, "whole")
                whole.mkdir()
                made.rename(whole / made.name)
                whole.rename(place)
        except OSError as error:
            raise StorageError(f"the export cannot be written ({error.strerror or error})") from error
        return place / made.name


def _write(executable: Path, kind: ExportKind, name: str, place: Path) -> Path:
    source = place / f"{name}.kt"  # exports are named after their file
    try:
        os.link(executable, source)
    except OSError:  # on another file system
        shutil.copyfile(executable, source)
    target = place / f"{name}-{kind.value}"
    try:
        if kind is ExportKind.WHEEL:
            return export_wheel(source, target)
        if kind is ExportKind.ONNX:
            export_onnx(source, target)
        else:
            export_c(source, target)
    except InputError as error:  # where it lies here is nobody's affair
        raise InputError(str(error).replace(f"{source}: ", "")) from error
    archive = place / f"{target.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for file in sorted(target.rglob("*")):
            if file.is_file():
                packed.write(file, f"{target.name}/{file.relative_to(target)}")
    return archive
