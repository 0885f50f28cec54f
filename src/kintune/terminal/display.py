"""Where progress is shown: a live picture on a terminal, one line now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from kintune.core.report import ProgressReport

__all__ = ["Display", "Silence", "open_display"]


class Display(Protocol):
    """Shows a job's progress until it is closed (`contextlib.closing` does that)."""

    def show(self, report: ProgressReport) -> None:
        """Bring the picture up to date."""

    def close(self) -> None:
        """Leave the last picture standing and free the terminal."""


class Silence:
    """A display that shows nothing."""

    def show(self, report: ProgressReport) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing was opened."""


def open_display(title: str, *, quiet: bool = False, stream: TextIO | None = None) -> Display:
    """The display that suits `stream` (standard error unless told): live on a terminal, plain lines elsewhere.

    rich, which takes a while to import, is imported only when there is a terminal to draw on.
    """
    if quiet:
        return Silence()
    stream = stream or sys.stderr
    if stream.isatty():
        from kintune.terminal.live import LiveDisplay

        return LiveDisplay(title, stream)
    from kintune.terminal.plain import PlainDisplay

    return PlainDisplay(title, stream)
