from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.bench.report.curves import curve_charts, step_band

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


def row(cell: str, seed: int, method: str, seconds: float, ms: float | None) -> dict[str, str | int | float | None]:
    return {"cell": cell, "model": "zoo:a", "seed": seed, "method": method, "t": seconds, "ms": ms}


def test_a_chart_for_each_model_and_a_line_for_each_method() -> None:
    rows = [
        row("1", 0, "stock", 1, 9), row("1", 0, "ours", 1, 8), row("2", 1, "stock", 1, 7), row("2", 1, "ours", 1, 6),
        row("2", 1, "ours", 2, None), {**row("3", 0, "ours", 1, 5), "model": "zoo:b"},
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


@pytest.mark.parametrize("rows", [[], [row("1", 0, "ours", 1, None)]])
def test_without_values_there_is_no_chart(rows: list[dict[str, str | int | float | None]]) -> None:
    assert curve_charts(
        rows, x="t", y="ms", x_label="", y_label="", stem="c", title="T", panels=["model"], lines=["method"]
    ) == []  # fmt: skip
