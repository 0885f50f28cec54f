"""Files of the front on their way to a process elsewhere, in parts."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from kintune.errors import InputError
from kintune.wire.staging import staged_name
from kintune.workers.fleet.messages import Bring, Clear

__all__ = ["StagingDirectory", "file_parts", "sweep"]


_PART = 1 << 20  # bytes of a file that go over the connection at once


def file_parts(process: int, paths: Sequence[str]) -> Iterator[Bring | Clear]:
    """The messages that bring these files, and no others, to where the process finds them; read as they are taken.

    A file that cannot be read is left out; the process that looks for it fails.
    """
    yield Clear(process)
    for path in paths:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            size, offset = os.fstat(file.fileno()).st_size, 0
            while (data := file.read(_PART)) or offset == 0:
                yield Bring(process, path, offset, size, data)
                if not data:
                    break
                offset += len(data)


_PREFIX = "kintune-staging-"


_SPARE = 64 << 20  # bytes that are left free on the disk


class StagingDirectory:
    """A directory for the files of one process."""

    def __init__(self) -> None:
        """Make it.

        Raises:
            OSError: it cannot be made.
        """
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))

    def take(self, part: Bring) -> None:
        """Keep a part of a file; parts come in order.

        Raises:
            InputError: it cannot be kept; the message says why.
        """
        file = self.path / staged_name(part.path)
        try:
            if part.offset == 0:
                free = shutil.disk_usage(self.path).free - _SPARE
                if part.size > free:
                    raise InputError(
                        f"{Path(part.path).name} is too large for this machine: it has {part.size / 1e6:.0f} MB, and "
                        f"{max(0, free) / 1e6:.0f} MB are free in {self.path.parent}"
                    )
            with file.open("wb" if part.offset == 0 else "ab") as copy:
                copy.write(part.data)
        except (OSError, ValueError) as error:
            raise InputError(f"{part.path[-80:]!r} cannot be kept: {error}") from error

    def empty(self) -> None:
        """Forget all files."""
        for file in self.path.iterdir():
            file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove it with its files."""
        shutil.rmtree(self.path, ignore_errors=True)


def sweep() -> None:
    """Remove the directories of agents that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)
