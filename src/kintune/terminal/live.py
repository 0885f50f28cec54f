"""Progress as a picture that is redrawn in place; the last one stays."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kintune.core.report import ProgressReport
from kintune.terminal import phrases
from kintune.terminal.quantities import times

__all__ = ["LiveDisplay", "picture"]


class LiveDisplay:
    """Draws on a terminal, at most once per `interval_s` seconds of run time unless the stage changes."""

    def __init__(self, title: str, stream: TextIO, interval_s: float = 0.2) -> None:
        self._title = title
        self._interval_s = interval_s
        self._drawn: ProgressReport | None = None
        self._last: ProgressReport | None = None
        self._live = Live(
            Text(title, style="bold"), console=Console(file=stream), auto_refresh=False, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        self._live.start()

    def show(self, report: ProgressReport) -> None:
        """Redraw if it is due."""
        self._last = report
        drawn = self._drawn
        if drawn is None or report.stage != drawn.stage or report.elapsed_s - drawn.elapsed_s >= self._interval_s:
            self._draw(report)

    def close(self) -> None:
        """Draw the last report and stop."""
        if self._last is not None and self._last is not self._drawn:
            self._draw(self._last)
        self._live.stop()

    def _draw(self, report: ProgressReport) -> None:
        self._live.update(picture(self._title, report), refresh=True)
        self._drawn = report


def picture(title: str, report: ProgressReport) -> RenderableType:
    """The whole picture of one report."""
    rows: list[RenderableType] = [Text(title, style="bold")]
    rows.append(_effort(report))
    rows.append(Text(phrases.latency(report), style="green" if (report.gain or 0) > 1 else ""))
    rows.append(Text(phrases.stage(report), style="cyan"))
    if said := phrases.failures(report):
        rows.append(Text(said, style="yellow" if report.failures else "dim"))
    if said := phrases.others(report.trials, report.disturbed):
        rows.append(Text(said, style="yellow"))
    if report.families:
        rows.append(_family_table(report))
    return Group(*rows)


def _effort(report: ProgressReport) -> RenderableType:
    """What was done and what is left, behind a bar where the end can be told."""
    said = Text(phrases.effort(report))
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
        table.add_row(family.key, str(family.subgraphs), str(family.trials), times(family.best_gain))
    return table
