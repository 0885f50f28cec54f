"""The report on races: ratios against the reference, latency curves, stage times and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from kintune_lab.bench.report.charts import curve_charts, numbers, ratio_chart, ratio_grid, spread_of, stage_charts
from kintune_lab.experiment.section import Grid, LineChart, ReportSection
from kintune_lab.experiment.tables import Row, Tables, by, varying, words

__all__ = ["race_sections"]

_FIGURES = {
    "trials": "trials",
    "active_seconds": "seconds",
    "prepare_seconds": "preparing, not charged",
    "judged_ms": "sum of kernels, ms",
    "network_ms": "network, ms",
    "seconds_to_quality": "seconds to the reference's latency",
}


def race_sections(
    tables: Tables, options: Iterable[str], *, reference: str, time_goal: float | None, quality_goal: float | None
) -> list[ReportSection]:
    """Sections of the tables `results`, `curve` and `stages` of races.

    `options` are those of the experiment; `reference` is the label of the method that the others are compared with, and
    the goals are what the ratios are to reach.
    """
    results = list(tables.get("results", ()))
    if not results:
        return []
    panels = ["model", *varying(results, options, besides=("model", "seed"))]
    rivals = [row for row in results if row.get("method") != reference]
    return [
        _ratios(rivals, panels, reference, time_goal, quality_goal),
        _curves(list(tables.get("curve", ())), results, panels, reference),
        ReportSection(
            "Where the time went",
            ("Seconds by stage, added up over each run; medians over seeds.",),
            charts=tuple(stage_charts(list(tables.get("stages", ())), panels=panels, groups=["method"])),
        ),
        ReportSection("Figures", ("Medians; in brackets the smallest and the largest.",), (_figures(results, panels),)),
    ]


def _ratios(
    rows: Sequence[Row], panels: Sequence[str], reference: str, time_goal: float | None, quality_goal: float | None
) -> ReportSection:
    columns = {"time_ratio": "time to quality", "quality_ratio": "quality at equal time"}
    return ReportSection(
        f"Against {reference}",
        (
            f"Time to quality is the seconds of {reference} over those until the same latency was reached; a run that "
            f"never reached it counts as 0.  Quality is the latency of {reference} over ours after equal seconds.  All "
            "latencies are the judge's.  Medians over seeds; lines and brackets go from the smallest to the largest.",
        ),
        (ratio_grid(rows, columns, groups=panels, series="method"),),
        (
            ratio_chart(
                rows,
                "time_ratio",
                groups=panels,
                series="method",
                name="search-efficiency",
                title="Search efficiency",
                value_label=f"seconds of {reference} / seconds to its latency",
                goal=time_goal,
            ),
            ratio_chart(
                rows,
                "quality_ratio",
                groups=panels,
                series="method",
                name="search-quality",
                title="Search quality",
                value_label=f"latency of {reference} / latency at equal time",
                goal=quality_goal,
            ),
        ),
    )


def _curves(curve: Sequence[Row], results: Sequence[Row], panels: Sequence[str], reference: str) -> ReportSection:
    """Latency over time and over trials; re-measured where there are such times."""
    judged = any(numbers([row.get("judged_ms")]) for row in curve)
    final = {
        words(panels, key): spread.median
        for key, rows in by([row for row in results if row.get("method") == reference], *panels).items()
        if (spread := spread_of(numbers(row.get("judged_ms") for row in rows)))
    }
    y, y_label = ("judged_ms", "sum of kernels, judged, ms") if judged else ("estimate_ms", "estimated latency, ms")
    levels = final if judged else None

    def charts(x: str, x_label: str, stem: str, title: str) -> list[LineChart]:
        return curve_charts(
            curve,
            x=x,
            y=y,
            x_label=x_label,
            y_label=y_label,
            stem=stem,
            title=title,
            panels=panels,
            lines=["method"],
            levels=levels,
            reference=reference,
            log_x=True,  # a method that is tens of times faster would be a line at the left edge
        )

    over_time = charts("active_seconds", "seconds of search", "latency-over-time", "Latency over time")
    over_trials = charts("trials", "trials", "latency-over-trials", "Latency over trials")
    pairs = [chart for pair in zip_longest(over_time, over_trials) for chart in pair if chart is not None]
    return ReportSection(
        "Latency over time and over trials",
        ("Lines are medians over seeds, bands go from the smallest to the largest.",),
        charts=tuple(pairs),
    )


def _figures(results: Sequence[Row], panels: Sequence[str]) -> Grid:
    shown = {column: title for column, title in _FIGURES.items() if any(numbers([r.get(column)]) for r in results)}
    rows = []
    for (*key, method), group in by(results, *panels, "method").items():
        spreads = [spread_of(numbers(row.get(column) for row in group)) for column in shown]
        rows.append((words(panels, key), str(method), str(len(group)), *("" if s is None else str(s) for s in spreads)))
    return Grid(("model", "method", "runs", *shown.values()), tuple(rows))
