"""Exports of results for downloads: the `.kt` file as a wheel, or packed for onnxruntime or for C in one archive."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path

from kintune.errors import InputError, StorageError
from kintune.runtime.exports.c_library import export_c
from kintune.runtime.exports.onnx_operator import export_onnx
from kintune.runtime.exports.wheel import export_wheel

__all__ = ["ExportKind", "exported", "sweep_exports"]


class ExportKind(str, Enum):
    """For whom a result is exported, as `kintune export --to` has it."""

    C = "c"
    ONNX = "onnx"
    WHEEL = "wheel"


def sweep_exports(folder: Path, before: float) -> None:
    """Removes exports that were begun before then (seconds since 1970) and whose process has ended meanwhile."""
    for left in folder.glob("export-*"):
        with suppress(FileNotFoundError):
            if left.stat().st_mtime < before:
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def exported(executable: Path, kind: ExportKind, name: str, folder: Path) -> Iterator[Path]:
    """Yields one file with the export of an executable, a wheel or a zip; it is gone when the block ends.

    `name` is that of the model; `folder` is where it is made, on a disk that has room for it.

    Raises:
        InputError: the executable cannot be exported so.
        StorageError: the export cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = tempfile.TemporaryDirectory(prefix="export-", dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made ({error.strerror})") from error
    with place as path:
        yield _write(executable, kind, name, Path(path))


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
    try:
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
            for file in sorted(target.rglob("*")):
                if file.is_file():
                    packed.write(file, f"{target.name}/{file.relative_to(target)}")
    except OSError as error:
        raise StorageError(f"{archive}: cannot be written ({error.strerror})") from error
    return archive
