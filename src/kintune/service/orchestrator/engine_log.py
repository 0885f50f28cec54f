"""The engine's log, and the lines of one run in it."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from pathlib import Path

from kintune.errors import StorageError

__all__ = ["EngineLog", "lines_of"]
_MOST = 1 << 20  # bytes of a run's lines, the last ones
_MOST_READ = 64 << 20  # bytes, the last ones: the engine waits meanwhile
_LARGEST = 256 << 20
_OF_RUN = re.compile(r"\[job [^\]\s]+\] ?")


class EngineLog:
    """The log at a path, in which all runs have their lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def set_aside(self) -> None:
        """Begins a new log if this one has become large; one old one is kept.  Only while no engine writes.

        Raises:
            StorageError: the file cannot be renamed.
        """
        try:
            if self.size > _LARGEST:
                os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be set aside ({error.strerror})") from error

    @property
    def size(self) -> int:
        """The number of bytes; the lines of a run that begins now come after them."""
        with contextlib.suppress(OSError):
            return self.path.stat().st_size
        return 0

    def of(self, run: str, since: int = 0) -> bytes:
        """Returns the lines about a run after the first `since` bytes; of very many the last ones."""
        about, found, size = f"job {run}".encode(), deque[bytes](), 0
        with contextlib.suppress(OSError), self.path.open("rb") as file:  # a job does not fail for want of its log
            begin = self.size - _MOST_READ
            if begin > since:
                file.seek(begin)
                file.readline()
            else:
                file.seek(since)
            for line in file:
                if about in line:
                    found.append(line)
                    size += len(line)
                    while size > _MOST:
                        size -= len(found.popleft())
        return b"".join(found)


def lines_of(text: str) -> list[str]:
    """Returns the lines of a run's log as people read them: without the run's name, with which nearly all begin."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line[found.end() :] if (found := _OF_RUN.match(line)) else line for line in lines]
