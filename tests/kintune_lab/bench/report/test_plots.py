from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.bench.report.plots import draw, spread_out
from kintune_lab.experiment.section import Bar, BarChart, Chart, LineChart, Series, StackedChart

CHARTS: list[Chart] = [
    LineChart(
        "lines", "Latency <over> time", "s", "ms",
        (
            Series("stock", (0.0, 10.0), (9.0, 3.0), role="reference"),
            Series("ours & theirs", (0.0, 5.0), (8.0, 2.0), (7.0, 1.0), (9.0, 3.0)),
        ),
        {"stock at its end": 3.0}, log_y=True,
    ),
    BarChart("bars", "Ratios", "x", (Bar("a", 2.0, 1.0, 3.0, "op"), Bar("b", 0.0, 0.0, 0.9, "op")), 1.0, 2.5, log=True),
    StackedChart("stack", "Stages", "s", ("build", "select"), {"ours": (5.0, 1.0), "stock": (9.0, 0.0)}),
    LineChart("empty", "Nothing", "s", "ms", (), log_y=True),
    BarChart("none", "Nothing", "x", ()),
    StackedChart("zero", "Nothing", "s", ("build",), {"ours": (0.0,)}),
]  # fmt: skip


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_drawing_is_well_formed_small_and_needs_nothing_from_elsewhere(chart: Chart) -> None:
    drawing = draw(chart)
    ElementTree.fromstring(drawing.file)
    ElementTree.fromstring(drawing.inline)
    assert len(drawing.file) < 60_000
    assert set(re.findall(r"https?://([^/\"]+)", drawing.inline)) <= {"www.w3.org"}
    assert chart.title.replace("<", "&lt;").replace(">", "&gt;") in drawing.inline


@pytest.mark.parametrize("chart", [CHARTS[0], CHARTS[1]], ids=lambda chart: chart.name)
def test_a_dollar_is_no_formula(chart: LineChart | BarChart) -> None:
    titled = msgspec.structs.replace(chart, title=r"a $\frac$ b")
    inline = draw(titled).inline
    assert r"a $\frac$ b" in inline
    assert "mathdefault" not in inline  # which ticks of a logarithmic axis would show


def test_the_same_chart_gives_the_same_bytes() -> None:
    assert draw(CHARTS[0]) == draw(CHARTS[0])


def test_an_inline_image_takes_the_colours_of_its_page() -> None:
    inline = draw(CHARTS[2]).inline
    assert "currentColor" in inline
    assert "var(--grid)" in inline
    assert not re.search(r"(fill|stroke): (#ffffff|#1f2328|#c9d1d9)", inline)
    assert "#fffffe" in inline


def test_images_on_one_page_do_not_share_ids() -> None:
    ids = [set(re.findall(r'id="([^"]+)"', draw(chart).inline)) for chart in CHARTS[:3]]
    assert not (ids[0] & ids[1] | ids[1] & ids[2] | ids[0] & ids[2])
    inline = draw(CHARTS[0]).inline
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', inline)) <= ids[0]


@given(st.lists(st.floats(0, 1), max_size=12).map(sorted))
def test_labels_do_not_touch(heights: list[float]) -> None:
    placed = spread_out(heights, 0.05)
    assert len(placed) == len(heights)
    assert all(second - first >= 0.05 - 1e-9 for first, second in pairwise(placed))
    assert all(height <= 1.0 for height in placed)
