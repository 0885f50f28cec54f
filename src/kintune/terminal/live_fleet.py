"""Several runs as a table that is redrawn in place; the last one stays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kintune.core.report import ProgressReport
from kintune.terminal import phrases
from kintune.terminal.quantities import clock, duration, milliseconds, times

__all__ = ["LiveFleet", "fleet_picture"]

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
    """The whole picture."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("model")
    for name in ("trials", "time", "left", "latency", "gain"):
        table.add_column(name, justify="right")
    table.add_column("now")
    for name, report in zip(names, reports, strict=True):
        if report is None:
            table.add_row(name, "", "", "", "", "", Text("waiting for its turn", style="dim"))
            continue
        table.add_row(
            name,
            f"{report.trials} of {report.trials_total}" if report.trials_total else str(report.trials),
            clock(report.elapsed_s),
            "" if report.time_left_s is None else duration(report.time_left_s),
            "" if report.best_ms is None else milliseconds(report.best_ms),
            "" if report.gain is None else times(report.gain),
            Text(phrases.stage(report), style="cyan"),
        )
    return Group(Text(title, style="bold"), table)
