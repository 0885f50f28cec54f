"""The log file of a run: what its processes print, and notes of the engine.  Nothing reaches the terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

__all__ = ["ProcessLog", "Tail"]


class ProcessLog:
    """Appends lines, each under the name of who wrote it; without a path it discards them."""

    def __init__(self, path: Path | None) -> None:
        self._file: BinaryIO | None = None if path is None else path.open("ab", buffering=0)

    def write(self, who: str, *lines: str) -> None:
        """Append lines.  When that fails, the log is closed and the run goes on without it."""
        if self._file is None:
            return
        try:
            self._file.write("".join(f"[{who}] {line}\n" for line in lines).encode(errors="replace"))
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the file; what is written later is discarded."""
        if self._file is not None:
            self._file.close()
            self._file = None


_LINES = 60  # Python prints a line for each frame when native code crashes
_LINE = 1 << 14  # bytes; a longer line is split
_LOGGED = 1 << 23  # bytes that the log takes of one process


class Tail:
    """The output of one process.  Beyond a limit of bytes, the log takes only the last lines."""

    def __init__(self, name: str, log: ProcessLog) -> None:
        """`name` is how the log calls it."""
        self._name = name
        self._log = log
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._partial = b""
        self._share = _LOGGED

    @property
    def text(self) -> str:
        """The last lines."""
        return "\n".join(self._lines)

    def feed(self, data: bytes) -> None:
        """Take what the process has printed; lines may come in pieces."""
        if self._share <= 0 and len(data) > _LINE:
            self._partial, data = b"", data[-_LINE:]  # the rest would neither be logged nor kept
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LINE:
            lines.append(self._partial)
            self._partial = b""
        self._note(lines)

    def finish(self) -> None:
        """The output has ended: log an unfinished line and, if the limit was exceeded, the last lines."""
        if self._partial:
            self._note([self._partial])
            self._partial = b""
        if self._share <= 0:
            self._log.write(self._name, "its last words:", *self._lines)

    def _note(self, lines: Sequence[bytes]) -> None:
        parts = (line[begin : begin + _LINE] for line in lines for begin in range(0, max(len(line), 1), _LINE))
        texts = [part.decode(errors="replace").rstrip() for part in parts]
        self._lines.extend(texts)
        if texts and self._share > 0:
            self._log.write(self._name, *texts)
            self._share -= sum(len(self._name) + len(text) + 4 for text in texts)
            if self._share <= 0:
                self._log.write(self._name, "it has printed too much; only its last words will be logged")
