"""Progress of several runs at once: a line a model on a terminal, lines with the model's name elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol, TextIO

from kintune.core.report import ProgressReport
from kintune.terminal.plain import PlainDisplay

__all__ = ["FleetDisplay", "open_fleet_display"]


class FleetDisplay(Protocol):
    """Shows the progress of numbered runs until it is closed."""

    def show(self, number: int, report: ProgressReport) -> None:
        """Bring the picture up to date."""

    def close(self) -> None:
        """Leave the last picture standing and free the terminal."""


class _Silence:
    def show(self, number: int, report: ProgressReport) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing was opened."""


class _Named:
    """A stream that begins each line with a name; as much of a stream as displays need."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(f"{self._name}: {text}")

    def flush(self) -> None:
        self._stream.flush()


class _PlainFleet:
    def __init__(self, title: str, names: Sequence[str], stream: TextIO) -> None:
        stream.write(f"{title}\n")
        width = max(len(name) for name in names)
        self._displays = [PlainDisplay("waiting for its turn", _Named(n.ljust(width), stream)) for n in names]  # type: ignore[arg-type]

    def show(self, number: int, report: ProgressReport) -> None:
        self._displays[number].show(report)

    def close(self) -> None:
        for display in self._displays:
            display.close()


def open_fleet_display(
    title: str, names: Sequence[str], *, quiet: bool = False, stream: TextIO | None = None
) -> FleetDisplay:
    """The display that suits `stream` (standard error unless told): live on a terminal, plain lines elsewhere."""
    if quiet:
        return _Silence()
    stream = stream or sys.stderr
    if stream.isatty():
        from kintune.terminal.live_fleet import LiveFleet

        return LiveFleet(title, names, stream)
    return _PlainFleet(title, names, stream)
