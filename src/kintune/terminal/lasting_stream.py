"""A stream that may break, such as a terminal that is closed: its writers continue after an error."""

from __future__ import annotations

from typing import TextIO, cast

__all__ = ["LastingStream", "lasting"]


def lasting(stream: TextIO) -> TextIO:
    """Returns a stream that passes on what is written to `stream` for as long as that works."""
    return cast("TextIO", LastingStream(stream))


class LastingStream:
    """Has the methods of a text stream that displays call; after the first error it discards everything."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_broken = False

    @property
    def encoding(self) -> str:
        """The encoding of the stream."""
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        """Write the text, or discard it."""
        if not self._is_broken:
            try:
                self._stream.write(text)
            except (OSError, ValueError):  # the second: it was closed in this process
                self._is_broken = True
        return len(text)

    def flush(self) -> None:
        """Flush the stream, unless it is broken."""
        if not self._is_broken:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._is_broken = True

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def fileno(self) -> int:
        """The number of its file."""
        return self._stream.fileno()
