"""Displays for terminals that redraw in place, of one run and of several; the last state stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kintune.core.report import BaselineVerdict, ProgressReport
from kintune.terminal.comparison import describe_estimate, describe_forecast, describe_untuned, gain_of, share_of
from kintune.terminal.formatting import (
    clock,
    describe_effort,
    describe_failures,
    describe_interference,
    describe_stage,
    duration,
    milliseconds,
)
from kintune.terminal.table import printable

__all__ = ["LiveDisplay", "LiveFleet", "fleet_picture", "picture"]


_SOON_S = 1.0  # what is left at least, until something new is known


class LiveDisplay:
    """Draws on a terminal, at most once per `interval_s` seconds of run time unless the stage changes.

    In long stages it draws every `tick_s` seconds, so that times go on; with None it does not.  `now` tells seconds.
    """

    def __init__(
        self,
        title: str,
        stream: TextIO,
        interval_s: float = 0.2,
        tick_s: float | None = 1.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._interval_s = interval_s
        self._now = now
        self._drawn: ProgressReport | None = None
        self._last: tuple[ProgressReport, float] | None = None
        self._live = Live(
            console=Console(file=stream), auto_refresh=tick_s is not None, refresh_per_second=1 / (tick_s or 1.0),
            redirect_stdout=False, redirect_stderr=False, get_renderable=self._picture,
        )  # fmt: skip
        self._live.start(refresh=True)

    def show(self, report: ProgressReport) -> None:
        """Redraw if it is due."""
        self._last = report, self._now()
        drawn = self._drawn
        if drawn is None or report.stage != drawn.stage or report.elapsed_s - drawn.elapsed_s >= self._interval_s:
            self._drawn = report
            self._live.refresh()

    def close(self) -> None:
        """Draw the last report and stop."""
        self._live.stop()

    def _picture(self) -> RenderableType:
        if self._last is None:
            return Text(printable(self._title), style="bold")
        report, shown = self._last
        return picture(self._title, _later(report, self._now() - shown))


def _later(report: ProgressReport, seconds: float) -> ProgressReport:
    """The report some seconds after it was made, if nothing new is known."""
    left = report.time_left_s
    if left is not None:
        left = max(left - seconds, min(left, _SOON_S))
    return msgspec.structs.replace(report, elapsed_s=report.elapsed_s + seconds, time_left_s=left)


def picture(title: str, report: ProgressReport) -> RenderableType:
    """Render the report of one run."""
    rows: list[RenderableType] = [Text(printable(title), style="bold")]
    rows.append(_effort(report))
    if said := describe_estimate(report):
        rows.append(Text(printable(said), style="green" if _is_ahead(report) else ""))
    if said := describe_forecast(report):
        rows.append(Text(printable(said)))
    rows.append(Text(printable(describe_stage(report)), style="cyan"))
    if report.fastest_baseline is not None and (said := describe_untuned(report)):
        rows.append(Text(printable(said), style="dim"))
    if said := describe_failures(report):
        rows.append(Text(printable(said), style="yellow" if report.failures else "dim"))
    if said := describe_interference(report.trials, report.disturbed):
        rows.append(Text(printable(said), style="yellow"))
    if report.families:
        rows.append(_family_table(report))
    return Group(*rows)


def _is_ahead(report: ProgressReport) -> bool:
    """Whether the network is faster than other runtimes, or, where none was timed, than untuned."""
    if (fastest := report.fastest_baseline) is not None:
        return fastest.verdict is BaselineVerdict.FASTER
    return (report.gain or 0) > 1


def _effort(report: ProgressReport) -> RenderableType:
    """Render trials and times, after a progress bar where the end is known."""
    said = Text(printable(describe_effort(report)))
    if report.trials_total:
        done = report.trials / report.trials_total
    elif report.time_left_s is not None:
        done = report.elapsed_s / max(report.elapsed_s + report.time_left_s, 1e-9)
    else:
        return said
    line = Table.grid(padding=(0, 1))
    line.add_row(ProgressBar(total=1.0, completed=min(done, 1.0), width=40), said)
    return line


def _family_table(report: ProgressReport) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("family")
    for name in ("subgraphs", "trials", "best gain"):
        table.add_column(name, justify="right")
    for family in report.families:
        table.add_row(Text(printable(family.key)), str(family.subgraphs), str(family.trials), gain_of(family.best_gain))
    return table


_INTERVAL_S = 0.2


class LiveFleet:
    """Draws on a terminal, at most five times a second unless a stage changes."""

    def __init__(self, title: str, names: Sequence[str], stream: TextIO) -> None:
        self._title = title
        self._names = names
        self._reports: list[ProgressReport | None] = [None] * len(names)
        self._drawn_at = float("-inf")
        self._live = Live(
            fleet_picture(title, names, self._reports), console=Console(file=stream), auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._live.start()

    def show(self, number: int, report: ProgressReport) -> None:
        """Redraw if it is due."""
        before = self._reports[number]
        self._reports[number] = report
        now = time.monotonic()
        if before is None or before.stage != report.stage or now - self._drawn_at >= _INTERVAL_S:
            self._draw(now)

    def close(self) -> None:
        """Draw the last reports and stop."""
        self._draw(time.monotonic())
        self._live.stop()

    def _draw(self, now: float) -> None:
        self._live.update(fleet_picture(self._title, self._names, self._reports), refresh=True)
        self._drawn_at = now


def fleet_picture(title: str, names: Sequence[str], reports: Sequence[ProgressReport | None]) -> RenderableType:
    """Render the last reports of all runs as a table; None for a run that has not begun.

    Where other runtimes were timed, a column has the share of what the fastest of them takes.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("model")
    is_compared = any(report is not None and report.fastest_baseline is not None for report in reports)
    for name in ("trials", "time", "left", "latency", "of fastest" if is_compared else "gain"):
        table.add_column(name, justify="right")
    table.add_column("now")
    for name, report in zip(names, reports, strict=True):
        if report is None:
            table.add_row(Text(printable(name)), "", "", "", "", "", Text("waiting for its turn", style="dim"))
            continue
        table.add_row(
            Text(printable(name)),
            f"{report.trials} of {report.trials_total}" if report.trials_total else str(report.trials),
            clock(report.elapsed_s),
            "" if report.time_left_s is None else duration(report.time_left_s),
            "" if report.best_ms is None or report.partial else milliseconds(report.best_ms),
            _against(report, is_compared),
            Text(printable(describe_stage(report)), style="cyan"),
        )
    return Group(Text(printable(title), style="bold"), table)


def _against(report: ProgressReport, is_compared: bool) -> str:
    """The share of what the fastest other runtime takes, or else what was gained over untuned."""
    if not is_compared:
        return "" if report.gain is None else gain_of(report.gain)
    fastest = report.fastest_baseline
    return "" if fastest is None else share_of(fastest)
