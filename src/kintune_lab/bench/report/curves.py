"""Curves of latency: how far a search was after so much time or so many trials, over several seeds."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Mapping, Sequence

from kintune_lab.bench.report.spread import numbers
from kintune_lab.experiment.panels import by, slug, varying, words
from kintune_lab.experiment.section import LineChart, Series
from kintune_lab.experiment.tables import Row

__all__ = ["curve_charts", "step_band"]

_POINTS = 160
"""At most so many points a curve: plots are committed, and a screen has no more to show."""

_IN_SIGHT = 4.0
"""How many times slower than the level that matters a search may be and still be seen; untuned ones are far above."""

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
