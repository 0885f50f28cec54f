"""The engine's log, and the lines of one run in it."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from kintune.errors import StorageError
from kintune.workers.engine.process_log import ProcessLog

__all__ = ["EngineLog", "lines_of"]
_MOST = 1 << 20  # bytes of a run's lines, the last ones
_MOST_READ = 64 << 20  # bytes, the last ones
_LARGEST = 256 << 20
_OF_RUN = re.compile(r"\[job [^\]\s]+\] ?")


class EngineLog(ProcessLog):
    """The log at a path, in which all runs have their lines.  When it has become large it is set aside, and a new one
    begun; one old one is kept.
    """

    def __init__(self, path: Path) -> None:
        """Opens the log.

        Raises:
            StorageError: it cannot be written.
        """
        try:
            super().__init__(path)
        except OSError as error:
            raise StorageError(f"{path}: cannot be written ({error.strerror})") from error
        self.path = path
        self._old = path.with_name(f"{path.name}.1")
        self._before = 0  # bytes of logs that were set aside since

    def write(self, who: str, *lines: str) -> None:
        """Append lines, to a new log if this one has become large."""
        if self._file is not None and _size(self.path) > _LARGEST:
            self._set_aside()
        super().write(who, *lines)

    @property
    def size(self) -> int:
        """The number of bytes, of logs set aside as well; the lines of a run that begins now come after them."""
        return self._before + _size(self.path)

    def of(self, run: str, since: int = 0) -> bytes:
        """Returns the lines about a run after the first `since` bytes; of very many the last ones."""
        about, found, size = f"job {run}".encode(), deque[bytes](), 0
        begin = max(since, self.size - _MOST_READ)
        lines = self._lines(begin)
        if begin > since:
            next(lines, b"")  # it is cut
        for line in lines:
            if about in line:
                found.append(line)
                size += len(line)
                while size > _MOST:
                    size -= len(found.popleft())
        return b"".join(found)

    def _lines(self, since: int) -> Iterator[bytes]:
        for path, before in ((self._old, self._before - _size(self._old)), (self.path, self._before)):
            with contextlib.suppress(OSError), path.open("rb") as file:  # a job does not fail for want of its log
                file.seek(max(0, since - before))
                yield from file

    def _set_aside(self) -> None:
        size = _size(self.path)
        with contextlib.suppress(OSError):  # the log grows on, and the next line tries again
            os.replace(self.path, self._old)
            self.close()
            self._before += size
            self._file = self.path.open("ab", buffering=0)


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def lines_of(text: str) -> list[str]:
    """Returns the lines of a run's log as people read them: without the run's name, with which nearly all begin."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line[found.end() :] if (found := _OF_RUN.match(line)) else line for line in lines]
