from __future__ import annotations

from kintune_lab.bench.report.race import race_sections
from kintune_lab.experiment.section import LineChart


def result(model: str, seed: int, method: str, ms: float, ratio: float | None) -> dict[str, str | int | float | None]:
    return {
        "cell": f"{model}{seed}", "model": model, "seed": seed, "method": method, "trials": 64, "active_seconds": 100.0,
        "judged_ms": ms, "time_ratio": ratio, "quality_ratio": ratio,
    }  # fmt: skip


def test_a_race_shows_ratios_curves_stages_and_figures() -> None:
    results = [
        result("zoo:a", seed, method, ms, ratio)
        for seed in (0, 1)
        for method, ms, ratio in (("stock", 4.0 + seed, 1.0), ("ours", 3.0, 2.0))
    ]
    curve = [
        {**row, "turn": turn, "estimate_ms": 9.0, "active_seconds": 50.0 * turn} for row in results for turn in (1, 2)
    ]
    stages = [{**row, "stage": "build", "seconds": 5.0} for row in results]
    tables = {"results": results, "curve": curve, "stages": stages}
    sections = race_sections(tables, ["model", "seed"], reference="stock", time_goal=2.5, quality_goal=1.14)
    names = [chart.name for section in sections for chart in section.charts]
    assert names == ["search-efficiency", "search-quality", "latency-over-time-a", "latency-over-trials-a", "stages-a"]
    assert sections[0].grids[0].rows == (("a", "ours", "2", "2.00 (2.00 to 2.00)", "2.00 (2.00 to 2.00)"),)
    over_time = sections[1].charts[0]
    assert isinstance(over_time, LineChart)
    assert over_time.levels == {"stock at its end": 4.5}
    assert over_time.y_label == "sum of kernels, judged, ms"
    assert ("a", "stock", "2", "64.0 (64.0 to 64.0)", "100 (100 to 100)", "4.50 (4.00 to 5.00)") in sections[3].grids[
        0
    ].rows


def test_estimates_are_shown_as_such_where_nobody_judged() -> None:
    rows = [{"cell": "1", "model": "a", "seed": 0, "method": "stock", "active_seconds": 1.0, "estimate_ms": 2.0}]
    sections = race_sections(
        {"results": rows, "curve": rows}, ["model"], reference="stock", time_goal=None, quality_goal=None
    )
    chart = sections[1].charts[0]
    assert isinstance(chart, LineChart)
    assert chart.y_label == "estimated latency, ms"
    assert chart.levels == {}


def test_without_results_there_is_nothing_to_say() -> None:
    assert race_sections({}, [], reference="stock", time_goal=None, quality_goal=None) == []
