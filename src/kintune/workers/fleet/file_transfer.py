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
from kintune.wire.staging import depot_name
from kintune.workers.fleet.messages import Bring, Clear

__all__ = ["StagingDirectory", "parcel", "sweep"]


_PART = 1 << 20  # bytes of a file that go over the line at once


def parcel(process: int, paths: Sequence[str]) -> Iterator[Bring | Clear]:
    """These files and no others are to be where the process finds them.  They are read as the parts are taken.

    One that cannot be read does not come; who looks for it will say so.
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


_PREFIX = "kintune-depot-"


_SPARE = 64 << 20  # bytes that are left free on the disk


class StagingDirectory:
    """A directory for the files of one process."""

    def __init__(self) -> None:
        """Raises OSError where none can be made."""
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))

    def take(self, part: Bring) -> None:
        """Keep a part of a file; parts come in order.

        Raises:
            InputError: it cannot be kept; the message says why.
        """
        file = self.path / depot_name(part.path)
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
        """Nothing is left of it."""
        shutil.rmtree(self.path, ignore_errors=True)


def sweep() -> None:
    """Remove what agents have left that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(path, ignore_errors=True)
