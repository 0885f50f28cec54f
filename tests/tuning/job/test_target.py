"""The baselines of a job, and the target that depends on them."""

from __future__ import annotations

import math

import pytest

from kintune.core.config import DEFAULT_TRIALS, Options
from kintune.core.report import FastestBaseline, ProgressReport
from kintune.core.stage_requests import BaselineItem
from kintune.core.stage_results import BaselineLatencies
from kintune.terminal.comparison import describe_estimate
from kintune.tuning.job.target import BaselinesAndTarget

BOTH = BaselineLatencies(
    ({"onnxruntime": (9.0, 2.0, 1.0, 9.0, 9.0), "openvino": (1.5,)}, {"onnxruntime": (4.0,), "openvino": (8.0,)})
)
UNTUNED_US = (10_000.0, 40_000.0)


@pytest.mark.parametrize(
    ("until", "target_us"),
    [
        ("3", (3000.0, 3000.0)),
        ("onnxruntime*0.5", (1000.0, 2000.0)),
        ("fastest", (1500.0, 4000.0)),
        ("untuned*0.1", (1000.0, 4000.0)),
        ("torch", None),
        (None, None),
    ],
)
def test_each_combination_of_shapes_has_a_target_of_its_own(
    until: str | None, target_us: tuple[float, ...] | None
) -> None:
    baselines = BaselinesAndTarget(until)
    baselines.observe(BOTH)
    found = baselines.target_us(UNTUNED_US)
    assert found == (None if target_us is None else pytest.approx(target_us))
    if target_us is not None:
        assert baselines.is_met(target_us, UNTUNED_US)
        assert not baselines.is_met((target_us[0], target_us[1] + 1), UNTUNED_US)


def test_an_unknown_latency_meets_no_target() -> None:
    baselines = BaselinesAndTarget("untuned*0.1")
    assert not baselines.is_met((math.inf,), (math.inf,))
    assert not baselines.is_met((1.0,), (math.inf,))
    assert not BaselinesAndTarget("5").is_met((math.inf,), (1.0,))
    assert not BaselinesAndTarget("5").is_met((), ())
    assert not BaselinesAndTarget(None).is_met((1.0,), (1.0,))


def test_before_the_baselines_are_timed_their_target_is_not_known() -> None:
    assert BaselinesAndTarget("fastest").target_us((1.0,)) is None


def test_whoever_failed_is_named_in_a_line_and_nothing_else_is_said() -> None:
    baselines = BaselinesAndTarget("onnxruntime*0.9")
    found = BaselineLatencies(({"onnxruntime": (1.0,)},), {"openvino": "killed by SIGSEGV"}, {"torch": "not installed"})
    assert baselines.observe(found) == ["openvino was not timed before tuning: killed by SIGSEGV"]
    assert baselines.limited(Options(until="onnxruntime*0.9")) == Options(until="onnxruntime*0.9")


def test_a_target_that_cannot_be_known_is_told_and_another_limit_holds() -> None:
    baselines = BaselinesAndTarget("openvino*0.9")
    lines = baselines.observe(None, "killed by SIGKILL")
    assert lines == [
        "other runtimes were not timed before tuning: killed by SIGKILL",
        "the search could not end at 0.9 of openvino: that is not known",
    ]
    assert baselines.limited(Options(until="openvino*0.9")).trials == DEFAULT_TRIALS
    assert baselines.limited(Options(until="openvino*0.9", minutes=1.0)).trials is None
    absent = BaselinesAndTarget("fastest")
    (line,) = absent.observe(BaselineLatencies(({},), absent={"openvino": "not installed: pip install it"}))
    assert line.endswith("(openvino: not installed: pip install it)")


def test_nothing_is_limited_before_it_is_known_to_be_needed() -> None:
    baselines = BaselinesAndTarget("fastest")
    baselines.wanted = BaselineItem(())
    assert baselines.limited(Options(until="fastest")).trials is None


def test_progress_is_shown_against_the_fastest_of_all_shapes_together() -> None:
    baselines = BaselinesAndTarget("3")
    report = ProgressReport(stage="select", best_ms=3.0)
    assert baselines.shown(report, UNTUNED_US).fastest_baseline is None
    baselines.observe(BOTH)
    shown = baselines.shown(report, UNTUNED_US)
    assert shown.baselines == {"onnxruntime": 6.0, "openvino": 9.5}
    assert shown.fastest_baseline == FastestBaseline("onnxruntime", 6.0, 0.5)
    assert shown.target_ms is None
    assert baselines.shown(report, UNTUNED_US[:1]).target_ms == pytest.approx(3.0)


def test_a_network_that_runs_partly_elsewhere_meets_no_target() -> None:
    """Its estimate leaves out what runs in onnxruntime, while baselines run all of it."""
    for until in ("5", "onnxruntime*0.9"):
        baselines = BaselinesAndTarget(until)
        baselines.partial = True
        (line,) = baselines.observe(BOTH)
        assert line.endswith("estimates leave out what runs in onnxruntime")
        assert not baselines.is_met((1.0, 1.0), UNTUNED_US)
        assert baselines.limited(Options(until=until)).trials == DEFAULT_TRIALS
    shown = baselines.shown(ProgressReport(stage="select", best_ms=3.0), UNTUNED_US)
    assert shown.partial
    assert shown.fastest_baseline == FastestBaseline("onnxruntime", 6.0, None)
    assert describe_estimate(shown) == "estimated 3.00 ms without what runs in onnxruntime, onnxruntime takes 6.00 ms"
