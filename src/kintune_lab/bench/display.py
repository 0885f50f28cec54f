"""Progress of a bench: a picture on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from kintune.terminal.formatting import clock, duration
from kintune.terminal.lasting_stream import lasting
from kintune.terminal.table import printable
from kintune_lab.bench.directory import CellRecord
from kintune_lab.experiment.experiment import Cell, CellProgress

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["BenchDisplay", "open_bench_display"]


class BenchDisplay:
    """Where the runner shows what it does; calls come in the order of the work.  This one shows nothing."""

    def begin(self, cell: Cell, finished: int, cells: int) -> None:
        """A cell begins; `finished` of `cells` are done or have failed."""

    def show(self, progress: CellProgress, elapsed_s: float, left_s: float | None) -> None:
        """The cell has come so far after `elapsed_s`; the whole bench needs `left_s` more, None while unknown."""

    def say(self, line: str) -> None:
        """Something that happens before the first cell."""

    def done(self, record: CellRecord) -> None:
        """The cell is done."""

    def failed(self, record: CellRecord) -> None:
        """The cell has failed."""

    def close(self) -> None:
        """Free the terminal; may be called more than once."""


class _Plain(BenchDisplay):
    """A line at the beginning and the end of each cell, and every half minute between."""

    def __init__(self, title: str, stream: TextIO, interval_s: float = 30.0) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._written_s = float("-inf")
        self.say(title)

    def begin(self, cell: Cell, finished: int, cells: int) -> None:
        self._written_s = float("-inf")
        self.say(f"cell {finished + 1} of {cells}: {cell.title}")

    def show(self, progress: CellProgress, elapsed_s: float, left_s: float | None) -> None:
        if elapsed_s - self._written_s >= self._interval_s:
            self._written_s = elapsed_s
            self.say(f"  {clock(elapsed_s)} {_state(progress)}{_left(left_s)}")

    def say(self, line: str) -> None:
        self._stream.write(f"{printable(line)}\n")
        self._stream.flush()

    def done(self, record: CellRecord) -> None:
        self.say(f"  done in {clock(record.seconds or 0.0)}")

    def failed(self, record: CellRecord) -> None:
        self.say(f"  {_failure(record)}")


class _Live(BenchDisplay):
    """A picture that is redrawn in place; what failed stays above it."""

    def __init__(self, title: str, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = title
        self._counted = ""
        self._share = 0.0
        self._cell = ""
        self._state = ""
        self._live = Live(
            console=Console(file=stream), get_renderable=self._picture, refresh_per_second=2, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._live.start()

    def begin(self, cell: Cell, finished: int, cells: int) -> None:
        self._cell, self._state = cell.title, "starting"
        self._share = finished / cells
        self._counted = f"{finished} of {cells} cells"

    def show(self, progress: CellProgress, elapsed_s: float, left_s: float | None) -> None:
        self._state = f"{clock(elapsed_s)} {_state(progress)}{_left(left_s)}"

    def say(self, line: str) -> None:
        self._state = line

    def done(self, record: CellRecord) -> None:
        self._state = f"done in {clock(record.seconds or 0.0)}"

    def failed(self, record: CellRecord) -> None:
        from rich.text import Text

        self._live.console.print(Text(printable(f"{record.cell.title}: {_failure(record)}"), style="red"))

    def close(self) -> None:
        self._live.stop()

    def _picture(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        rows: list[RenderableType] = [Text(printable(self._title), style="bold")]
        if self._counted:
            line = Table.grid(padding=(0, 1))
            line.add_row(ProgressBar(total=1.0, completed=self._share, width=40), Text(self._counted))
            rows.append(line)
        if self._cell:
            rows.append(Text(printable(self._cell), style="cyan"))
        rows.append(Text(printable(self._state)))
        return Group(*rows)


def open_bench_display(title: str, *, quiet: bool = False, stream: TextIO | None = None) -> BenchDisplay:
    """Returns a display on `stream` (default: standard error); if the stream breaks, the display goes silent."""
    if quiet:
        return BenchDisplay()
    stream = lasting(stream or sys.stderr)
    return _Live(title, stream) if stream.isatty() else _Plain(title, stream)


def _state(progress: CellProgress) -> str:
    share = "" if progress.done is None else f" ({progress.done:.0%})"
    return f"{progress.phase}{share}"


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f", about {duration(left_s)} left in all"


def _failure(record: CellRecord) -> str:
    return f"failed after {clock(record.seconds or 0.0)}: {record.error}: {record.reason}"
