"""Where the time went."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kintune_lab.bench.report.spread import numbers
from kintune_lab.experiment.panels import by, slug, words
from kintune_lab.experiment.section import StackedChart
from kintune_lab.experiment.tables import Row

__all__ = ["stage_charts"]


def stage_charts(rows: Sequence[Row], *, panels: Sequence[str], groups: Sequence[str]) -> list[StackedChart]:
    """A chart for each combination of values of the columns `panels`, with a bar for each of `groups`.

    `rows` are those of the table `stages`: `stage` and `seconds`, any number a cell and method; they are added up by
    cell, and cells count by their median.
    """
    charts = []
    for key, panel_rows in by(rows, *panels).items():
        stages = tuple(str(stage) for (stage,) in by(panel_rows, "stage"))
        bars = {
            words(groups, values): tuple(_typical(group, stage) for stage in stages)
            for values, group in by(panel_rows, *groups).items()
        }
        panel = words(panels, key)
        charts.append(
            StackedChart(
                name=f"stages-{slug(panel)}",
                title=f"Where the time went: {panel}" if panel else "Where the time went",
                value_label="seconds",
                parts=stages,
                groups=bars,
            )
        )
    return charts


def _typical(rows: Sequence[Row], stage: str) -> float:
    """The median over cells of the seconds that a stage took in all."""
    totals = [
        sum(numbers(row.get("seconds") for row in run if row.get("stage") == stage))
        for run in by(rows, "cell", "method").values()
    ]
    return statistics.median(totals) if totals else 0.0
