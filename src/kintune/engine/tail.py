"""What a process prints, line by line: to the log, and the last lines to whoever asks what went wrong."""

from __future__ import annotations

from collections import deque

from kintune.engine.run_log import RunLog

__all__ = ["Tail"]

_LINES = 20


class Tail:
    """The output of one process."""

    def __init__(self, name: str, log: RunLog) -> None:
        """`name` is how the log calls it."""
        self._name = name
        self._log = log
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._partial = b""

    @property
    def text(self) -> str:
        """The last lines."""
        return "\n".join(self._lines)

    def feed(self, data: bytes) -> None:
        """It has printed this; lines may come in pieces."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._note(line)

    def finish(self) -> None:
        """There will be no more: a line that was begun is one."""
        if self._partial:
            self._note(self._partial)
            self._partial = b""

    def _note(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        self._lines.append(text)
        self._log.write(self._name, text)
