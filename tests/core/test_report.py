from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.paired_ratio import PairedRatio
from kintune.core.report import FastestBaseline, Latencies, RunReport, Spread
from tests.support.reports import example_report


def test_the_document_has_the_promised_keys() -> None:
    document = msgspec.to_builtins(example_report())
    promised = {
        "schema_version", "run_id", "model", "target", "options", "seeds", "versions", "trials", "reused_records",
        "seconds", "stage_seconds", "subgraphs", "curve", "latency_ms", "max_abs_error", "max_rel_error",
    }  # fmt: skip
    assert promised <= document.keys()
    assert {"name", "digest"} == document["model"].keys()
    assert {"select", "build", "profile", "update"} <= document["stage_seconds"].keys()
    assert {"name", "weight", "flops", "family", "trials", "best_us", "failures"} <= document["subgraphs"][0].keys()
    assert {"untuned", "tuned", "onnxruntime", "spread"} <= document["latency_ms"].keys()
    assert document["curve"][1] == [120.0, 256, 18.5]


def test_a_report_survives_json() -> None:
    report = example_report()
    assert msgspec.json.decode(msgspec.json.encode(report), type=RunReport) == report


def test_who_did_not_run_has_no_latency() -> None:
    latency = Latencies.of({"tuned": [2.0], "torch": []})
    assert latency.torch is None
    assert latency.gain is None
    assert set(latency.spread) == {"tuned"}


def test_rivals_are_ordered_by_speed() -> None:
    latency = Latencies.of({"tuned": [2.0], "onnxruntime": [3.0], "openvino": [1.0]})
    assert list(latency.rivals.items()) == [("openvino", 1.0), ("onnxruntime", 3.0)]


def test_percentiles_lie_between_neighbours() -> None:
    spread = Latencies.of({"tuned": [float(i) for i in range(11)]}).spread["tuned"]
    assert (spread.p10, spread.p90, spread.runs) == (1.0, 9.0, 11)


@given(st.lists(st.floats(min_value=1e-3, max_value=1e4), min_size=1, max_size=30))
def test_the_median_lies_within_the_spread_and_the_spread_within_the_runs(times: list[float]) -> None:
    latency = Latencies.of({"tuned": times})
    spread = latency.spread["tuned"]
    assert latency.tuned is not None
    tolerance = 1e-9 * max(times)
    ordered = [min(times), spread.p10, latency.tuned, spread.p90, max(times)]
    assert all(low <= high + tolerance for low, high in itertools.pairwise(ordered))


def test_gain_is_untuned_over_tuned() -> None:
    assert Latencies.of({"untuned": [3.0], "tuned": [1.5]}).gain == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("network_ms", "baseline_ms", "ratio"), [(0.2, 0.5, 0.4), (3.0, 2.0, 1.5), (None, 2.0, None), (1.0, 0.0, None)]
)
def test_a_ratio_is_known_where_both_have_a_latency(
    network_ms: float | None, baseline_ms: float, ratio: float | None
) -> None:
    found = FastestBaseline.of({"slow": baseline_ms + 1.0, "fast": baseline_ms}, network_ms)
    assert found is not None
    assert (found.name, found.ms, found.low, found.high) == ("fast", baseline_ms, None, None)
    assert found.ratio == (None if ratio is None else pytest.approx(ratio))
    assert FastestBaseline.of({}, network_ms) is None
    by_name = FastestBaseline.of({"a": 3.0, "b": 2.0, "c": 4.0}, network_ms)
    assert by_name is not None
    assert by_name.name == "b"


def test_what_was_timed_in_turns_counts_before_what_was_not() -> None:
    paired = {"fast": PairedRatio(0.7, 0.6, 0.9, 9), "slow": PairedRatio(0.1, 0.1, 0.1, 9)}
    found = FastestBaseline.of({"slow": 3.0, "fast": 2.0}, 1.0, paired)
    assert found == FastestBaseline("fast", 2.0, 0.7, 0.6, 0.9)
    assert FastestBaseline.of({"slow": 3.0, "fast": 2.0}, None, paired) == FastestBaseline("fast", 2.0)
    assert FastestBaseline.of({"other": 2.0}, 1.0, paired) == FastestBaseline("other", 2.0, 0.5)


def test_only_rounds_that_both_had_are_paired() -> None:
    samples = {"tuned": [1.0, 2.0], "onnxruntime": [4.0], "torch": [5.0], "openvino": []}
    rounds = {"tuned": [1.0, 2.0, 8.0], "onnxruntime": [2.0, 2.0], "openvino": [1.0], "torch": []}
    found = Latencies.of(samples, rounds)
    assert {name: ratio.rounds for name, ratio in found.paired.items()} == {"onnxruntime": 2}
    assert found.paired["onnxruntime"].ratio == 0.75
    assert found.spread["tuned"] == Spread(1.1, 1.9, 2)
    assert (found.openvino, found.torch) == (None, 5.0)
    assert Latencies.of(samples, {"onnxruntime": [2.0]}).paired == {}
