from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.bench.report.charts import (
    MEAN,
    curve_charts,
    geometric_mean,
    numbers,
    ratio_chart,
    ratio_grid,
    spread_of,
    stage_charts,
    step_band,
)


def test_a_spread_says_what_it_is_of() -> None:
    assert str(spread_of([3.0, 1.0, 2.0])) == "2.00 (1.00 to 3.00)"
    assert str(spread_of([0.01234])) == "0.0123"
    assert str(spread_of([123456.0])) == "123456"
    assert spread_of([]) is None


def test_what_was_not_reached_is_not_averaged_away() -> None:
    assert geometric_mean([4.0, 1.0]) == pytest.approx(2.0)
    assert geometric_mean([4.0, 0.0]) == 0.0
    assert geometric_mean([]) is None


@given(st.lists(st.floats(0.1, 10), min_size=1), st.floats(0.1, 10))
def test_a_geometric_mean_scales(values: list[float], factor: float) -> None:
    mean = geometric_mean(values)
    assert mean is not None
    assert geometric_mean([value * factor for value in values]) == pytest.approx(mean * factor)


def test_only_finite_numbers_are_numbers() -> None:
    assert numbers([1, 2.5, None, "3", True, math.nan, math.inf]) == [1.0, 2.5]


def test_turns_are_added_up_and_cells_count_by_their_median() -> None:
    rows = [
        {"cell": cell, "model": "zoo:a", "method": "ours", "stage": stage, "seconds": seconds}
        for cell, stage, seconds in [
            ("1", "build", 1.0), ("1", "build", 2.0), ("1", "select", 5.0), ("2", "build", 7.0), ("2", "select", None)
        ]
    ]  # fmt: skip
    (chart,) = stage_charts(rows, panels=["model"], groups=["method"])
    assert chart.parts == ("build", "select")
    assert chart.groups == {"ours": (5.0, 2.5)}


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


RUNS = st.lists(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0.1, 100)), min_size=1, max_size=30, unique_by=lambda p: p[0]),
    min_size=1,
    max_size=4,
)


def test_a_value_holds_until_the_next_one() -> None:
    band = step_band("a", [[(0.0, 9.0), (2.0, 5.0)], [(1.0, 7.0), (3.0, 3.0)]])
    assert band is not None
    assert band.x == (1.0, 2.0, 3.0)
    assert band.y == (8.0, 6.0, 4.0)
    assert band.low == (7.0, 5.0, 3.0)
    assert band.high == (9.0, 7.0, 5.0)


def test_one_run_has_no_band() -> None:
    band = step_band("a", [[(0.0, 9.0), (2.0, 5.0)]])
    assert band is not None
    assert band.low == ()


def test_of_an_empty_run_there_is_no_curve() -> None:
    assert step_band("a", [[(0.0, 9.0)], []]) is None
    assert step_band("a", []) is None


@given(RUNS)
def test_a_median_lies_in_its_band_and_begins_where_all_runs_have_begun(runs: list[list[tuple[float, float]]]) -> None:
    band = step_band("a", runs)
    assert band is not None
    assert band.x[0] == max(min(x for x, _ in run) for run in runs)
    assert list(band.x) == sorted(band.x)
    assert len(band.x) <= 160
    if len(runs) > 1:
        assert all(low <= y <= high for low, y, high in zip(band.low, band.y, band.high, strict=True))


@given(st.integers(161, 1000))
def test_long_curves_keep_their_end(points: int) -> None:
    band = step_band("a", [[(float(i), float(points - i)) for i in range(points)]])
    assert band is not None
    assert (len(band.x), band.x[-1], band.y[-1]) == (160, points - 1, 1.0)


def curve_row(
    cell: str, seed: int, method: str, seconds: float, ms: float | None
) -> dict[str, str | int | float | None]:
    return {"cell": cell, "model": "zoo:a", "seed": seed, "method": method, "t": seconds, "ms": ms}


def test_a_chart_for_each_model_and_a_line_for_each_method() -> None:
    rows = [
        curve_row("1", 0, "stock", 1, 9), curve_row("1", 0, "ours", 1, 8), curve_row("2", 1, "stock", 1, 7),
        curve_row("2", 1, "ours", 1, 6),
        curve_row("2", 1, "ours", 2, None), {**curve_row("3", 0, "ours", 1, 5), "model": "zoo:b"},
    ]  # fmt: skip
    charts = curve_charts(
        rows, x="t", y="ms", x_label="", y_label="", stem="c", title="T", panels=["model"], lines=["method"],
        levels={"a": 7.0}, reference="stock",
    )  # fmt: skip
    assert [(chart.name, chart.title) for chart in charts] == [("c-a", "T: a"), ("c-b", "T: b")]
    stock, ours = charts[0].series
    assert (stock.label, stock.role, stock.y, stock.low) == ("stock", "reference", (8.0,), (7.0,))
    assert (ours.label, ours.role, ours.y) == ("ours", "", (7.0,))
    assert charts[0].levels == {"stock at its end": 7.0}
    assert charts[1].levels == {}
    assert [chart.top for chart in charts] == [28.0, None]


@pytest.mark.parametrize("rows", [[], [curve_row("1", 0, "ours", 1, None)]])
def test_without_values_there_is_no_chart(rows: list[dict[str, str | int | float | None]]) -> None:
    assert curve_charts(
        rows, x="t", y="ms", x_label="", y_label="", stem="c", title="T", panels=["model"], lines=["method"]
    ) == []  # fmt: skip
