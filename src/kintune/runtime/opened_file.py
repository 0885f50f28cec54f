"""Keeps the file of an executable open, so that it stays the same one even if another file takes its path."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kintune.errors import InputError, RunError
from kintune.runtime.stored_zip import copy_file, opened

__all__ = ["OpenedFile"]


class OpenedFile:
    """The file that was found at `path`; it can be opened at `place` for as long as this object lives."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open it.

        Raises:
            InputError: it is missing, no file, or cannot be read.
        """
        self.path = Path(path)
        file = opened(self.path)
        weakref.finalize(self, file.close)
        self.place = f"/proc/self/fd/{file.fileno()}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """In the block, errors that name `place` name `path` instead."""
        try:
            yield
        except (InputError, RunError) as error:
            raise type(error)(str(error).replace(self.place, str(self.path))) from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what it holds to another path, whole or not at all.

        Raises:
            InputError: there is something that is no file.
            StorageError: it cannot be written there.
        """
        with open(self.place, "rb") as source:
            copy_file(source, path)
