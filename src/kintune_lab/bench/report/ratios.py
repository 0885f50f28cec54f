"""Ratios by model: medians over seeds with their spread, and the geometric mean over models."""

from __future__ import annotations

from collections.abc import Sequence

from kintune_lab.bench.report.spread import geometric_mean, numbers, spread_of
from kintune_lab.experiment.panels import by, words
from kintune_lab.experiment.section import Bar, BarChart, Grid
from kintune_lab.experiment.tables import Row

__all__ = ["MEAN", "ratio_chart", "ratio_grid"]

MEAN = "geometric mean"
"""The group after the models."""


def ratio_chart(
    rows: Sequence[Row],
    column: str,
    *,
    groups: Sequence[str],
    series: str,
    name: str,
    title: str,
    value_label: str,
    goal: float | None = None,
) -> BarChart:
    """The ratios in `column` for each combination of values of `groups` and each value of the column `series`.

    A row whose ratio is missing counts as 0: what was not reached is no gain.
    """
    bars: list[Bar] = []
    means: list[Bar] = []
    for (label,), method_rows in by(rows, series).items():
        medians = []
        for key, group in by(method_rows, *groups).items():
            spread = spread_of(_ratios(group, column))
            if spread is not None:
                medians.append(spread.median)
                bars.append(Bar(words(groups, key), spread.median, spread.low, spread.high, str(label)))
        mean = geometric_mean(medians)
        if mean is not None and len(medians) > 1:
            means.append(Bar(MEAN, mean, series=str(label)))
    return BarChart(name, title, value_label, tuple(bars + means), baseline=1.0, goal=goal, log=True)


def ratio_grid(
    rows: Sequence[Row], columns: dict[str, str], *, groups: Sequence[str], series: str, group_title: str = "model"
) -> Grid:
    """The same ratios in figures: a row for each group and series, a column for each of `columns` (column: title)."""
    lines: list[tuple[str, ...]] = []
    medians: dict[tuple[str, str], list[float]] = {}
    for (*key, label), group in by(rows, *groups, series).items():
        figures = []
        for column in columns:
            ratios = _ratios(group, column)
            spread = spread_of(ratios)
            missed = ratios.count(0.0)
            medians.setdefault((str(label), column), []).append(spread.median if spread else 0.0)
            figures.append((str(spread) if spread else "") + (f"; {missed} not reached" if missed else ""))
        lines.append((words(groups, key), str(label), str(len(group)), *figures))
    for (label,), group in by(rows, series).items():
        if len(by(group, *groups)) > 1:
            means = [geometric_mean(medians[str(label), column]) for column in columns]
            lines.append((MEAN, str(label), str(len(group)), *("" if m is None else f"{m:.2f}" for m in means)))
    return Grid((group_title, "method", "runs", *columns.values()), tuple(lines))


def _ratios(rows: Sequence[Row], column: str) -> list[float]:
    return [(numbers([row.get(column)]) or [0.0])[0] for row in rows]
