from __future__ import annotations

from kintune_lab.bench.report.ratios import MEAN, ratio_chart, ratio_grid


def row(model: str, method: str, ratio: float | None) -> dict[str, str | float | None]:
    return {"model": model, "method": method, "time_ratio": ratio}


ROWS = [
    row("a", "op", 1.0), row("a", "op", 4.0), row("a", "op", 2.0), row("b", "op", 8.0),
    row("a", "hash", 3.0), row("b", "hash", None),
]  # fmt: skip


def test_points_are_medians_and_the_mean_is_over_models() -> None:
    chart = ratio_chart(ROWS, "time_ratio", groups=["model"], series="method", name="n", title="", value_label="")
    points = {(bar.group, bar.series): (bar.low, bar.value, bar.high) for bar in chart.bars}
    assert points["a", "op"] == (1.0, 2.0, 4.0)
    assert points["b", "op"] == (8.0, 8.0, 8.0)
    assert points[MEAN, "op"] == (None, 4.0, None)


def test_what_was_not_reached_counts_as_nothing_gained() -> None:
    chart = ratio_chart(ROWS, "time_ratio", groups=["model"], series="method", name="n", title="", value_label="")
    values = {(bar.group, bar.series): bar.value for bar in chart.bars}
    assert values["b", "hash"] == 0.0
    assert values[MEAN, "hash"] == 0.0
    grid = ratio_grid(ROWS, {"time_ratio": "time"}, groups=["model"], series="method")
    assert ("b", "hash", "1", "0; 1 not reached") in grid.rows
    assert (MEAN, "op", "4", "4.00") in grid.rows


def test_a_single_model_has_no_mean() -> None:
    chart = ratio_chart(ROWS[:3], "time_ratio", groups=["model"], series="method", name="n", title="", value_label="")
    assert [bar.group for bar in chart.bars] == ["a"]
