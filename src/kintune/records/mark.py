"""How many transactions a database file had committed, noted beside it.

SQLite's write-ahead log ends, by design, at its first frame that is not intact.  A log that was cut short or damaged
later is therefore read as if its last transactions had never been: nothing in the database tells.  The mark tells.  It
is written after each commit and never flushed by force, so it may lag behind the database, which is harmless; it is
never ahead of it unless committed transactions were lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CommitMark"]

_LENGTH = 30  # 20 digits, a space, 8 hex digits of CRC-32, a newline


class CommitMark:
    """The file `path`, made when missing; raises `OSError` when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def read(self) -> int | None:
        """The number of commits last noted; None when there is none, or the file itself is damaged."""
        line = os.pread(self._file, _LENGTH + 1, 0)
        digits = line[:20]
        return int(digits) if line == _line(digits) and digits.isdigit() else None

    def write(self, commits: int) -> None:
        """Note that `commits` transactions are committed.  An older mark remains when it cannot be written."""
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _line(b"%020d" % commits), 0)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes that open the same records waiting meanwhile."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; the mark remains."""
        os.close(self._file)


def _line(digits: bytes) -> bytes:
    return b"%s %08x\n" % (digits, zlib.crc32(digits))
