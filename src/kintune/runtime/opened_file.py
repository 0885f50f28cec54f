"""Keeps the file of an executable open, so that it stays the same one even if another file takes its path."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from kintune.runtime.stored_zip import copy_file, opened
from kintune_runtime.signature import Key
from kintune_runtime.source import Source, located

__all__ = ["OpenedFile"]


class OpenedFile:
    """The file that was found at a path, or contents in memory; opened at `place` for as long as this object lives.

    `path` is for messages.
    """

    def __init__(self, source: Source, private: bool = False, trusted: Key | None = None) -> None:
        """Open it; with `private`, copy it into memory; with `trusted`, what was copied must be signed with that key.

        Raises:
            InputError: it is missing, no file, or cannot be read; it is not signed with the trusted key, or altered.
            RunError: no memory is left.
        """
        with located(source, private, trusted) as (place, name):
            self.path = Path(name)
            file = opened(self.path, place)
        weakref.finalize(self, file.close)
        self.place = f"/proc/self/fd/{file.fileno()}"

    @classmethod
    def of(cls, source: Source | OpenedFile) -> OpenedFile:
        """The file, opened, unless it is so already."""
        return source if isinstance(source, OpenedFile) else cls(source)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what it holds to another path, whole or not at all.

        Raises:
            InputError: there is something that is no file.
            StorageError: it cannot be written there.
        """
        with open(self.place, "rb") as source:
            copy_file(source, path)
