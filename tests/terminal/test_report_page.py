"""The page of a report: complete, self-contained, and safe whatever names a model has."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from kintune.core.config import Metric, Options
from kintune.core.report import CombinationReport, CurvePoint, Latencies, StopReason, SubgraphReport
from kintune.terminal.curve_picture import curve_svg
from kintune.terminal.report_page import report_page
from tests.core.test_failure_report import FAILURE, REPORTS
from tests.support.profiles import PROFILE
from tests.support.reports import example_report

_VOID = {"meta", "line", "path", "rect", "br"}


class Balanced(HTMLParser):
    """Fails where elements are not closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """An element without content."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_a_page_is_whole_and_by_itself(report: object) -> None:
    page = report_page(report).decode()  # type: ignore[arg-type]
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert not re.search(r"https?:|src=|<script|@import|url\(|<link", page)
    assert "prefers-color-scheme: dark" in page


def test_the_headline_says_what_was_won() -> None:
    page = report_page(example_report()).decode()
    assert '<h1>resnet18: 15.0 ms, <span class="faster">1.08x as fast as onnxruntime (16.2 ms)</span></h1>' in page
    slower = example_report(latency_ms=Latencies.of({"tuned": [15.5], "onnxruntime": [12.7]}))
    assert '<span class="slower">slower than onnxruntime' in report_page(slower).decode()


def test_what_was_compiled_is_not_said_to_be_tuned() -> None:
    page = report_page(example_report(reason=StopReason.COMPILED, latency_ms=Latencies.of({}))).decode()
    assert "<h1>resnet18: compiled, without measuring anything; its stages took 12:34</h1>" in page
    assert "not timed as a whole" not in page


def test_an_error_that_a_budget_limits_is_not_held_against_the_tolerance() -> None:
    options = msgspec.structs.replace(example_report().options, precision="bf16", max_error=0.02)
    report = example_report(
        options=options, within_tolerance=None, max_abs_error=0.5, max_rel_error=0.1, norm_error=0.012
    )
    subgraphs = (msgspec.structs.replace(report.subgraphs[0], precision="bf16"), *report.subgraphs[1:])
    report = msgspec.structs.replace(report, subgraphs=subgraphs)
    page = report_page(report).decode()
    assert "within" not in page
    assert "Error of its outputs: 0.012 of their norm, of 0.02 that is allowed" in page
    metric = Metric("<b>", "top1", "", 0.01, 0.75)
    page = report_page(
        msgspec.structs.replace(report, score=0.745, options=msgspec.structs.replace(options, metric=metric))
    ).decode()
    assert "Its score by &lt;b&gt;:top1 is 0.745" in page


def test_it_tells_of_operators_failures_and_versions() -> None:
    page = report_page(example_report(notes=("mind the gap",))).decode()
    assert page.index("<td>conv2d</td>") < page.index("<td>dense</td>")  # by the time that they take
    for told in ("build timed out", "run failed", "kintune 0.1.0", "trials 1000", "mind the gap", "torch was not"):
        assert told in page


def test_options_that_were_chosen_are_told() -> None:
    options = Options(trials=8, precision="auto", max_error=0.02, onnxruntime=False, kin=False, atol=0.5)
    page = report_page(example_report(options=options)).decode()
    told = "without records of other workloads, tolerances 0.001 (relative) and 0.5 (absolute)"
    assert f"{told}, nothing runs in onnxruntime, precision auto, error of at most 0.02" in page
    assert "precision" not in report_page(example_report(options=Options(trials=8))).decode()


def test_each_combination_of_shapes_has_a_row() -> None:
    latency = Latencies.of({"tuned": [1.5], "onnxruntime": [3.0]})
    each = [
        CombinationReport({"ids": (1, length)}, 1.0, latency, 1e-6, 1e-6, within_tolerance=True) for length in (32, 64)
    ]
    page = report_page(example_report(combinations=tuple(each))).decode()
    assert "<td>ids=1x64</td><td>1.50 ms</td><td>onnxruntime, 3.00 ms</td><td>0.50 of that</td><td>1.0e-06</td>" in page


def test_of_a_failure_it_says_why() -> None:
    page = report_page(FAILURE).decode()
    assert "JobFailed: nothing could be measured" in page
    assert "net.kt was not written" in page
    assert "crashed" in page


def test_names_are_texts() -> None:
    evil = "<script>alert(1)</script>\"'&"
    report = example_report(notes=(evil,), skipped={evil: evil}, versions={evil: evil}, output=evil)
    report = msgspec.structs.replace(
        report,
        subgraphs=(SubgraphReport(evil, 1, 1.0, evil, 1, 1.0, {evil: 1}),),
        baselines_before_ms={evil: 10.0},
    )
    assert "<script" not in report_page(report).decode()


def heights(picture: str) -> list[float]:
    return [float(y) for y in re.findall(r'<line x1="70" x2="640" y1="([\d.]+)"[^>]*stroke-dasharray', picture)]


def test_a_faster_runtime_is_a_lower_line() -> None:
    curve = [CurvePoint(0.0, 0, 30.0), CurvePoint(60.0, 100, 15.0)]
    fast, slow = heights(curve_svg(curve, {"fast": 12.0, "slow": 28.0}))
    assert fast > slow


@pytest.mark.parametrize(
    "curve",
    [
        [CurvePoint(0.0, 0, 3.0)],
        [CurvePoint(0.0, 0, 1e-4), CurvePoint(1e-3, 1, 1e-4)],
        [CurvePoint(0.0, 0, 5000.0), CurvePoint(1e6, 10**6, 0.01)],
        [CurvePoint(float(n), n, 10.0 / (n + 1)) for n in range(2000)],
    ],
)
def test_any_curve_is_drawn_within_the_picture(curve: list[CurvePoint]) -> None:
    picture = curve_svg(curve, {"a": 1.0, "b": 1.0, "c": 1.01, "d": 0.99})
    numbers = [float(text) for text in re.findall(r'\by\d?="(-?[\d.]+)"', picture)]
    assert all(0 <= number <= 400 for number in numbers)
    assert "nan" not in picture


def test_without_a_point_there_is_no_picture() -> None:
    assert curve_svg([], {"a": 1.0}) == ""


def test_it_speaks_of_the_users_nodes_and_shows_the_profile() -> None:
    subgraphs = (
        SubgraphReport("fused_conv2d7_add", 4, 2.3e8, "conv2d", 900, 820.0, titles=("layer3/conv2 + BN + Relu",)),
    )
    page = report_page(example_report(subgraphs=subgraphs, profile=PROFILE)).decode()
    assert "layer3/conv2 + BN + Relu" in page
    assert "fused_conv2d7_add" not in page
    assert "Where the time goes, inside the network" in page
    assert "layer3/conv2 (Conv) + Add + Relu: 400 us" in page  # in the picture
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
