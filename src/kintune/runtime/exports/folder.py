"""Writes the folder of an export, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from kintune.errors import InputError
from kintune.files import expanded

__all__ = ["write_folder"]


def write_folder(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Have `fill` write into a folder beside `folder`, which then takes its place; returns its absolute path.

    Raises:
        InputError: the folder is not empty, is something else, or cannot be written.
    """
    folder = Path(os.path.abspath(expanded(folder)))
    _check_empty(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
            made = Path(temporary) / "export"
            made.mkdir()
            fill(made)
            os.rename(made, folder)  # an empty folder is replaced, another one is refused
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder


def _check_empty(folder: Path) -> None:
    try:
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise InputError(f"{folder} is not a directory; name another place")
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty; name another place, or empty it")
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error.strerror or error}") from error
