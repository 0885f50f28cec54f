"""Charts of the report: latency curves, ratios and stage times, as medians over seeds with their range."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kintune_lab.experiment.section import Bar, BarChart, Grid, LineChart, Series, StackedChart
from kintune_lab.experiment.tables import Row, Scalar, by, slug, varying, words

__all__ = [
    "MEAN",
    "SampleSpread",
    "curve_charts",
    "geometric_mean",
    "numbers",
    "ratio_chart",
    "ratio_grid",
    "spread_of",
    "stage_charts",
    "step_band",
]


class SampleSpread(msgspec.Struct, frozen=True):
    """The median of `count` values, the smallest and the largest of them."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        middle = _digits(self.median)
        return middle if self.count < 2 else f"{middle} ({_digits(self.low)} to {_digits(self.high)})"


def spread_of(values: Sequence[float]) -> SampleSpread | None:
    """The spread of `values`; None if there are none."""
    if not values:
        return None
    return SampleSpread(statistics.median(values), min(values), max(values), len(values))


def geometric_mean(values: Sequence[float]) -> float | None:
    """The geometric mean of `values`; None if there are none, 0 if one is not positive."""
    if not values:
        return None
    if min(values) <= 0:
        return 0.0
    return math.exp(statistics.fmean(math.log(value) for value in values))


def numbers(values: Iterable[Scalar]) -> list[float]:
    """The finite numbers among `values`."""
    return [
        float(value)
        for value in values
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    ]


def _digits(value: float) -> str:
    """Three significant digits, without an exponent where that is readable."""
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


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
    """Return ratios as a table: a row for each group and series, a column for each of `columns` (column: title)."""
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


_POINTS = 160
"""The most points of a curve: plots are committed, and a screen can show no more."""

_IN_SIGHT = 4.0
"""A chart ends at this many times the level of the reference; untuned networks are far above it."""

Steps = Sequence[tuple[float, float]]


def step_band(label: str, runs: Sequence[Steps], role: str = "") -> Series | None:
    """The median of several runs, each a list of (x, y) where `y` holds from `x` on, with the smallest and largest.

    It begins where every run has a value.  A run that has ended stays where it was.  None when a run is empty.
    """
    ordered = [sorted(run) for run in runs]
    if not ordered or not all(ordered):
        return None
    begin = max(run[0][0] for run in ordered)
    places = sorted({begin} | {x for run in ordered for x, _ in run if x >= begin})
    if len(places) > _POINTS:
        stride = (len(places) - 1) / (_POINTS - 1)
        places = [places[round(index * stride)] for index in range(_POINTS)]
    columns = [[_at(run, x) for run in ordered] for x in places]
    several = len(ordered) > 1
    return Series(
        label=label,
        x=tuple(places),
        y=tuple(statistics.median(column) for column in columns),
        low=tuple(min(column) for column in columns) if several else (),
        high=tuple(max(column) for column in columns) if several else (),
        role=role,
    )


def curve_charts(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    x_label: str,
    y_label: str,
    stem: str,
    title: str,
    panels: Sequence[str],
    lines: Sequence[str],
    levels: Mapping[str, float] | None = None,
    reference: str = "",
    log_x: bool = False,
) -> list[LineChart]:
    """A chart for each combination of values of the columns `panels`, a line for each of `lines`, a run for each cell.

    Rows without `x` or `y` are left out, and where `log_x` those at 0.  `levels` are horizontal lines by the panel's
    words; `reference` is the label of the line that the others are compared with.
    """
    shown = [row for row in rows if numbers([row.get(x)]) and numbers([row.get(y)])]
    if log_x:
        shown = [row for row in shown if _point(row, x, y)[0] > 0]
    named = varying(shown, lines) or list(lines[:1])
    charts = []
    for key, group in by(shown, *panels).items():
        panel = words(panels, key)
        series = []
        for values, run_rows in by(group, *named).items():
            runs = [[_point(row, x, y) for row in run] for run in by(run_rows, "cell", "method").values()]
            label = words(named, values)
            if band := step_band(label, runs, "reference" if label == reference else ""):
                series.append(band)
        level = (levels or {}).get(panel)
        charts.append(
            LineChart(
                name=f"{stem}-{slug(panel)}",
                title=f"{title}: {panel}" if panel else title,
                x_label=x_label,
                y_label=y_label,
                series=tuple(series),
                levels={} if level is None else {f"{reference} at its end": level},
                log_x=log_x,
                log_y=True,
                top=None if level is None else _IN_SIGHT * level,
            )
        )
    return charts


def _point(row: Row, x: str, y: str) -> tuple[float, float]:
    (first,), (second,) = numbers([row.get(x)]), numbers([row.get(y)])
    return first, second


def _at(run: Steps, x: float) -> float:
    """What held at `x`, which is not before the run's first point; of several points at one place the last."""
    return run[bisect.bisect_right([place for place, _ in run], x) - 1][1]
