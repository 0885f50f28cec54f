from __future__ import annotations

from typing import Any

import pytest

from kintune.scheduler.resources import Placement
from kintune.service.orchestrator.events import EventTally
from kintune.service.portal.charts import curve_options, gantt_options
from kintune.service.portal.others import tallied
from kintune.service.web.live_state import LiveStage

HOST, GPU = Placement("local", 1), Placement(None, 0, 0, "gpu", exclusive=True)


def bars(options: dict[str, Any]) -> list[tuple[str, str, float, float]]:
    """(kind, row, begin, end) of each bar."""
    return [
        (series["name"], begin["value"][1], begin["value"][0], end["value"][0])
        for series in options["series"]
        for begin, end in [series["data"]]
    ]


@pytest.mark.parametrize(
    ("latencies", "lines", "kind"),
    [((9.0, 3.0), {}, "value"), ((900.0, 3.0), {}, "log"), ((9.0,), {"onnxruntime": 0.1}, "log"), ((), {}, "value")],
)
def test_the_axis_begins_at_zero_unless_latencies_are_far_apart(
    latencies: tuple[float, ...], lines: dict[str, float], kind: str
) -> None:
    curve = [(float(second), latency) for second, latency in enumerate(latencies)]
    assert curve_options({"net": curve}, lines)["yAxis"]["type"] == kind


def test_rivals_and_targets_are_lines_across() -> None:
    (series,) = curve_options({"net": [(0.0, 9.0)]}, {"onnxruntime": 8.0, "target": 5.0})["series"]
    assert [(mark["name"], mark["yAxis"]) for mark in series["markLine"]["data"]] == [
        ("onnxruntime", 8.0),
        ("target", 5.0),
    ]


def test_stages_are_bars_cut_off_where_the_picture_begins_and_now() -> None:
    stages = [
        LiveStage("a", "profile-1", "profile", GPU, 600.0, 990.0),
        LiveStage("", "build-1", "build", HOST, 980.0, None),
        LiveStage("a", "build-0", "build", HOST, 100.0, 200.0),
    ]
    options = gantt_options(stages, 1000.0, 300.0)
    assert bars(options) == [("build", "local", -20.0, 0.0), ("profile", "gpu", -300.0, -10.0)]
    assert options["series"][0]["data"][0]["name"] == "build of another job"


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (EventTally(1, 0), "1 measurement, none disturbed"),
        (EventTally(64, 3), "64 measurements, 3 of them timed again because something else had used its cores"),
    ],
)
def test_disturbed_measurements_are_told_in_words(tally: EventTally, said: str) -> None:
    assert tallied(tally) == said


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        ({}, {}),
        ({"target": 5.0}, {}),
        ({"onnxruntime": 12.3}, {"max": 14.0}),
        ({"onnxruntime": 0.2, "target": 0.04}, {"min": 0.036}),
        ({"onnxruntime": 400.0}, {"max": 450.0}),
    ],
)
def test_a_line_beyond_the_curve_is_on_the_chart(lines: dict[str, float], ends: dict[str, float]) -> None:
    axis = curve_options({"net": [(0.0, 9.0), (1.0, 6.0)]}, lines)["yAxis"]
    assert {name: axis[name] for name in ("min", "max") if name in axis} == ends
