from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.comparison.verdict import BEST, ComparisonVerdict, FileResult, against, compare_times, summarise

LATENCIES = st.floats(1e-3, 1e4)


@pytest.mark.parametrize(
    ("ours", "other", "verdict"),
    [
        (0.97, 1.0, ComparisonVerdict.WON),
        (0.99, 1.0, ComparisonVerdict.LEVEL),
        (1.019, 1.0, ComparisonVerdict.LEVEL),
        (1.021, 1.0, ComparisonVerdict.LOST),
        (0.014, 0.010, ComparisonVerdict.LEVEL),  # 4 us
        (0.016, 0.010, ComparisonVerdict.LOST),
    ],
)
def test_small_differences_are_none(ours: float, other: float, verdict: ComparisonVerdict) -> None:
    assert compare_times(ours, other) is verdict


@given(LATENCIES, LATENCIES)
def test_who_wins_does_not_lose_the_other_way(ours: float, other: float) -> None:
    if compare_times(ours, other) is ComparisonVerdict.WON:
        assert compare_times(other, ours) is not ComparisonVerdict.WON


def results() -> list[FileResult]:
    return [
        FileResult("slow", 4.0, {"onnxruntime": 2.0, "openvino": 5.0}, whole=True),
        FileResult("fast", 1.0, {"onnxruntime": 2.0}, whole=True),
        FileResult("partly", 1.0, {"onnxruntime": 1.0}),
        FileResult("refused", None, {"onnxruntime": 3.0}, failure="LSTM"),
    ]


def test_all_files_make_a_summary() -> None:
    summary = summarise(results())
    assert (summary.files, summary.results, summary.whole) == (4, 3, 2)
    assert summary.failed == {"refused": "LSTM"}
    onnxruntime, openvino, best = summary.against
    assert (onnxruntime.other, openvino.other, best.other) == ("onnxruntime", "openvino", BEST)
    assert (onnxruntime.files, onnxruntime.whole) == (3, 2)
    assert onnxruntime.mean == pytest.approx(1.0)
    assert onnxruntime.mean_whole == pytest.approx(math.sqrt(2.0 * 0.5))
    assert (onnxruntime.worst, onnxruntime.worst_file) == (2.0, "slow")
    assert (onnxruntime.won, onnxruntime.level, onnxruntime.lost) == (("fast",), ("partly",), ("slow",))
    assert (openvino.won, openvino.files) == (("slow",), 1)
    assert best.lost == ("slow",)


def test_without_another_runtime_nothing_is_compared() -> None:
    assert against([FileResult("a", 1.0, {})], "onnxruntime") is None
    assert summarise([FileResult("a", 1.0, {})]).against == ()
    assert summarise([]).files == 0


@given(st.lists(st.tuples(LATENCIES, LATENCIES), min_size=1))
def test_every_file_has_one_verdict_and_the_mean_is_between(times: list[tuple[float, float]]) -> None:
    named = [FileResult(str(n), ours, {"onnxruntime": other}) for n, (ours, other) in enumerate(times)]
    found = against(named, "onnxruntime")
    assert found is not None
    assert sorted((*found.won, *found.level, *found.lost)) == sorted(result.name for result in named)
    ratios = [ours / other for ours, other in times]
    assert min(ratios) * (1 - 1e-9) <= found.mean <= max(ratios) * (1 + 1e-9)
    assert found.worst == max(ratios)
