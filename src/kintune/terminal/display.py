"""Displays of the progress of one run and of several: live on a terminal, lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol, TextIO, cast

from kintune.core.report import WAITING, ProgressReport
from kintune.core.stage_results import StageName
from kintune.terminal.comparison import describe_estimate, describe_forecast
from kintune.terminal.formatting import (
    describe_effort,
    describe_failures,
    describe_interference,
    describe_stage,
)
from kintune.terminal.lasting_stream import lasting
from kintune.terminal.table import printable

__all__ = ["Display", "FleetDisplay", "PlainDisplay", "QuietDisplay", "open_display", "open_fleet_display"]


class Display(Protocol):
    """Shows a job's progress until it is closed (`contextlib.closing` does that)."""

    def show(self, report: ProgressReport) -> None:
        """Show this report."""

    def close(self) -> None:
        """Leave the last state on the terminal, and stop."""


class QuietDisplay:
    """Shows no progress; only says once for whom it waits, since that may take hours."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def show(self, report: ProgressReport) -> None:
        """Write a line the first time that the run waits for another process."""
        if self._stream is not None and report.phase.startswith(WAITING):
            self._stream.write(f"{printable(report.phase)}\n")
            self._stream.flush()
            self._stream = None

    def close(self) -> None:
        """Nothing was opened."""


_TICK_S = 1.0


def open_display(
    title: str, *, quiet: bool = False, verbose: bool = False, stream: TextIO | None = None, ticking: bool = True
) -> Display:
    """Return a display on `stream` (default: standard error): live on a terminal, plain lines elsewhere.

    A `verbose` one has a line for every report, a `quiet` one only says for whom it waits.  With `ticking`, the times
    on a terminal go on between reports.  If the stream breaks, the display goes silent.  rich takes long to import, so
    it is imported only for a terminal.
    """
    if (stream := stream or sys.stderr) is None:
        return QuietDisplay(None)
    stream = lasting(stream)
    if quiet:
        return QuietDisplay(stream)
    if verbose:
        return PlainDisplay(title, stream, interval_s=0.0)
    if stream.isatty():
        from kintune.terminal.live import LiveDisplay

        return LiveDisplay(title, stream, tick_s=_TICK_S if ticking else None)
    return PlainDisplay(title, stream)


_INTERVAL_S = 10.0

_ROUTINE = frozenset({StageName.SELECT, StageName.BUILD, StageName.PROFILE, StageName.UPDATE})


class PlainDisplay:
    """Writes lines to `stream`, at least `interval_s` seconds of run time apart except at milestones.

    A milestone is the start of a stage that happens once, a new phase, the first time of other runtimes, the first
    estimated latency, or the first forecast.
    """

    def __init__(self, title: str, stream: TextIO, interval_s: float = _INTERVAL_S) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._written_s = float("-inf")
        self._last: ProgressReport | None = None
        self._unwritten = False
        self._write(title)

    def show(self, report: ProgressReport) -> None:
        """Write a line if one is due."""
        due = report.elapsed_s - self._written_s >= self._interval_s or self._is_milestone(report)
        self._last = report
        self._unwritten = not due
        if due:
            self._write_report(report)

    def close(self) -> None:
        """Write the last report if it was held back."""
        if self._last is not None and self._unwritten:
            self._write_report(self._last)
            self._unwritten = False

    def _is_milestone(self, report: ProgressReport) -> bool:
        last = self._last
        if last is None:
            return True
        new_stage = report.stage != last.stage and not {report.stage, last.stage} <= _ROUTINE
        new_phase = bool(report.phase) and report.phase != last.phase
        return new_stage or new_phase or _known(report) != _known(last)

    def _write_report(self, report: ProgressReport) -> None:
        said = (
            describe_effort(report),
            describe_estimate(report),
            describe_forecast(report),
            describe_stage(report),
            describe_failures(report),
            describe_interference(report.trials, report.disturbed),
        )
        self._write("; ".join(part for part in said if part))
        self._written_s = report.elapsed_s

    def _write(self, line: str) -> None:
        self._stream.write(f"{printable(line)}\n")
        self._stream.flush()


def _known(report: ProgressReport) -> tuple[bool, bool, bool]:
    """Whether an estimate, the times of other runtimes, and a forecast are there."""
    return report.best_ms is not None, report.fastest_baseline is not None, report.forecast is not None


class FleetDisplay(Protocol):
    """Shows the progress of numbered runs until it is closed."""

    def show(self, number: int, report: ProgressReport) -> None:
        """Show this report."""

    def close(self) -> None:
        """Leave the last state on the terminal, and stop."""


class _QuietFleet:
    def __init__(self, stream: TextIO | None) -> None:
        self._display = QuietDisplay(stream)

    def show(self, number: int, report: ProgressReport) -> None:
        self._display.show(report)

    def close(self) -> None:
        """Nothing was opened."""


class _PrefixedStream:
    """Writes to a stream, each line after a name; has the methods that `PlainDisplay` calls."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(f"{self._name}: {text}")

    def flush(self) -> None:
        self._stream.flush()


class _PlainFleet:
    def __init__(self, title: str, names: Sequence[str], stream: TextIO, interval_s: float) -> None:
        names = [printable(name) for name in names]
        stream.write(f"{printable(title)}\n")
        width = max(len(name) for name in names)
        streams = [cast("TextIO", _PrefixedStream(name.ljust(width), stream)) for name in names]
        self._displays = [PlainDisplay("waiting for its turn", each, interval_s) for each in streams]

    def show(self, number: int, report: ProgressReport) -> None:
        self._displays[number].show(report)

    def close(self) -> None:
        for display in self._displays:
            display.close()


def open_fleet_display(
    title: str,
    names: Sequence[str],
    *,
    quiet: bool = False,
    verbose: bool = False,
    stream: TextIO | None = None,
) -> FleetDisplay:
    """Return a display of several runs on `stream` (default: standard error), as `open_display` does for one."""
    if (stream := stream or sys.stderr) is None:
        return _QuietFleet(None)
    stream = lasting(stream)
    if quiet:
        return _QuietFleet(stream)
    if stream.isatty() and not verbose:
        from kintune.terminal.live import LiveFleet

        return LiveFleet(title, names, stream)
    return _PlainFleet(title, names, stream, 0.0 if verbose else _INTERVAL_S)
