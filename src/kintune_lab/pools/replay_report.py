"""The report on replayed searches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from kintune.core.quantiles import quantile
from kintune_lab.experiment.section import Grid, LineChart, ReportSection, Series
from kintune_lab.experiment.tables import Row, Tables, by, slug, varying, words

__all__ = ["replay_sections"]

_POINTS = 48  # of a curve


def replay_sections(tables: Tables) -> list[ReportSection]:
    """One section for each network, and for each size of its pool and of the budget where there are several."""
    rows = tables.get("reached", ())
    told = ("model", *varying(rows, ("samples", "threads", "trials_per_subgraph")))
    curves = by(tables.get("replay", ()), *told)
    return [_section(words(told, key), part, curves.get(key, [])) for key, part in by(rows, *told).items()]


def _section(title: str, reached: Sequence[Row], curve: Sequence[Row]) -> ReportSection:
    runs = len(by(reached, "cell", "run"))
    text = (
        f"{runs} searches of each strategy on the same measured programs. Quality is the speed that the best programs "
        "found so far give the network, relative to the best programs of the pool.",
        "Trials are medians over searches with the smallest and the largest; a search that did not get there counts as "
        "infinitely long.",
    )
    return ReportSection(f"Replay: {title}", text, (_grid(reached),), (_chart(curve, title),))


def _grid(rows: Sequence[Row]) -> Grid:
    qualities = sorted({_number(row, "quality") for row in rows})
    first = {quality: _median(rows, str(rows[0]["method"]), quality) for quality in qualities}
    lines = []
    for (method,), part in by(rows, "method").items():
        figures = []
        for quality in qualities:
            trials = sorted(_trials(part, quality))
            middle = _median(rows, str(method), quality)
            gain = first[quality] / middle if math.isfinite(middle) else math.nan
            ratio = "" if math.isnan(gain) or method == rows[0]["method"] else f"; {gain:.2f}x"
            figures.append(f"{_whole(middle)} ({_whole(trials[0])} to {_whole(trials[-1])}){ratio}")
        lines.append((str(method), *figures))
    return Grid(("trials to reach", *(f"{100 * quality:.0f} %" for quality in qualities)), tuple(lines))


def _chart(rows: Sequence[Row], title: str) -> LineChart:
    longest = max((_number(row, "trials") for row in rows), default=0.0)
    grid = [longest * (at + 1) / _POINTS for at in range(_POINTS)]
    series = []
    for (method,), part in by(rows, "method").items():
        searches = [_at(run, grid) for run in by(part, "cell", "run").values()]
        columns = [sorted(values) for values in zip(*searches, strict=True)]
        begun = next((at for at, values in enumerate(columns) if statistics.median(values) > 0), len(columns))
        kept = columns[begun:]
        if kept:
            series.append(
                Series(
                    label=str(method),
                    x=tuple(grid[begun:]),
                    y=tuple(100 * statistics.median(values) for values in kept),
                    low=tuple(100 * quantile(values, 0.25) for values in kept),
                    high=tuple(100 * quantile(values, 0.75) for values in kept),
                )
            )
    name = f"replay-{slug(title)}"
    return LineChart(name, f"Quality over trials, {title}", "trials", "% of the pool's best", tuple(series))


def _at(run: Sequence[Row], grid: Sequence[float]) -> list[float]:
    """The quality after each number of trials of the grid; 0 while a subgraph has no program."""
    points = sorted((_number(row, "trials"), _number(row, "quality")) for row in run)
    found, at, now = [], 0, 0.0
    for trials in grid:
        while at < len(points) and points[at][0] <= trials:
            now = max(now, points[at][1])
            at += 1
        found.append(now)
    return found


def _median(rows: Sequence[Row], method: str, quality: float) -> float:
    return statistics.median(_trials([row for row in rows if row["method"] == method], quality))


def _trials(rows: Sequence[Row], quality: float) -> list[float]:
    return [_number(row, "trials", math.inf) for row in rows if row["quality"] == quality]


def _number(row: Row, column: str, missing: float = 0.0) -> float:
    value = row.get(column)
    return float(value) if isinstance(value, (int, float)) else missing


def _whole(trials: float) -> str:
    return f"{trials:.0f}" if math.isfinite(trials) else "never"
