from __future__ import annotations

import pytest

from kintune.core.device import Peak
from kintune.core.report import FastestBaseline
from kintune.core.workload import Subgraph
from kintune.records import MeasurementTally, WorkloadRecord
from kintune.tuning.forecast import Forecast, forecast, shares_reached

PEAK = Peak(gflops=100.0, gbytes_per_s=10.0, threads=2, read_gbytes_per_s=10.0)
CONV = Subgraph("conv", "new", 2, 1e8, "conv2d", "conv2d", True, bytes=1e5)
SOFTMAX = Subgraph("softmax", "soft", 1, 1e3, "softmax", "softmax", False, bytes=1e5)


def past(*shares: float, operator: str = "conv2d") -> tuple[list[WorkloadRecord], dict[str, MeasurementTally]]:
    """Workloads of 1e8 FLOPs that reached these shares of the peak."""
    workloads, tallies = [], {}
    for number, share in enumerate(shares):
        digest = f"{operator} {number}"
        workloads.append(WorkloadRecord(digest, digest, operator, operator, 1e8, ""))
        tallies[digest] = MeasurementTally(digest, "here", "tvm", 64, 60, 1e8 / 1e3 / PEAK.gflops / share)
    return workloads, tallies


def test_operators_do_as_well_as_they_did() -> None:
    workloads, tallies = past(0.5, 0.5, 0.5, 0.5)
    more, of_more = past(0.1, 0.1, operator="depthwise")
    shares, judged_by = shares_reached([*workloads, *more], {**tallies, **of_more}, PEAK)
    assert judged_by == 6
    assert shares["conv2d"] == pytest.approx((0.5, 0.5))
    assert "depthwise" not in shares  # too few
    found = forecast([CONV], {}, shares, judged_by, PEAK)
    assert (found.low_ms, found.high_ms) == pytest.approx((3.0, 5.28), abs=0.003)


def test_without_past_runs_there_is_a_wide_guess() -> None:
    shares, judged_by = shares_reached([], {}, PEAK)
    assert (shares, judged_by) == ({}, 0)
    found = forecast([CONV, SOFTMAX], {}, shares, judged_by, PEAK)
    assert 1.5 < found.low_ms < 2.0 < 6.0 < found.high_ms < 9.0


def test_what_was_measured_takes_what_it_took() -> None:
    tally = MeasurementTally("new", "here", "tvm", 64, 60, 1500.0)
    found = forecast([CONV], {"new": tally}, {}, 1, PEAK)
    assert (found.low_ms, found.high_ms) == pytest.approx((2 * 0.9 * 1.5, 2 * 1.32 * 1.5), abs=0.003)


def test_what_was_hardly_tried_tells_nothing() -> None:
    workloads, tallies = past(0.5)
    few = {name: MeasurementTally(name, "here", "tvm", 2, 2, 1000.0) for name in tallies}
    assert shares_reached(workloads, few, PEAK) == ({}, 0)


def test_moving_bytes_takes_its_time() -> None:
    found = forecast([SOFTMAX], {}, {}, 0, PEAK)
    assert (found.low_ms, found.high_ms) == pytest.approx((0.01, 0.0396), abs=0.003)


def test_no_program_is_faster_than_the_memory() -> None:
    wide = Subgraph("dense", "d", 1, 1e6, "dense", "dense", True, bytes=1e8)
    assert forecast([wide], {}, {}, 0, PEAK).low_ms == pytest.approx(10.0, abs=0.001)


# Those of a network for a wake word on a Zen 5, of which tuning made 6.1 us
ZEN5 = Peak(gflops=555.0, gbytes_per_s=55.0, threads=2, read_gbytes_per_s=60.0)
WAKE = [
    Subgraph("copy", "copy", 1, 0.0, "elementwise", "", False, bytes=12.3e3),
    Subgraph("wide", "wide", 1, 3.93e5, "dense", "", True, bytes=794e3, weight_bytes=786e3),
    Subgraph("next", "next", 1, 3.3e4, "dense", "", True, bytes=67.1e3, weight_bytes=66e3),
    Subgraph("last", "last", 1, 257.0, "dense", "", False, bytes=1.03e3, weight_bytes=516.0),
]


def test_weights_that_stay_in_the_cache_are_not_read_from_memory() -> None:
    cool = forecast(WAKE, {}, {}, 0, ZEN5, cool_bytes=16_000_000)
    assert 0.002 < cool.low_ms < 0.0061 < cool.high_ms < 0.03
    for too_small in (0, 500_000):
        assert forecast(WAKE, {}, {}, 0, ZEN5, too_small).low_ms > 0.014  # as memory gives 875 KB


def test_caches_are_no_slower_than_the_memory() -> None:
    """Of a device whose memory is fast beside its arithmetic."""
    fast = Peak(gflops=10.0, gbytes_per_s=100.0, threads=2, read_gbytes_per_s=100.0)
    cool, cold = (forecast(WAKE, {}, {}, 0, fast, size) for size in (16_000_000, 0))
    assert cool.low_ms == pytest.approx(cold.low_ms)


def test_a_call_and_each_kernel_take_some_time() -> None:
    none = Subgraph("view", "view", 10, 0.0, "elementwise", "", False, bytes=8.0)
    found = forecast([none], {}, {}, 0, ZEN5)
    assert 0.0007 < found.low_ms < 0.001 < 0.004 < found.high_ms < 0.01


def test_gains_are_against_the_baseline() -> None:
    assert Forecast(2.0, 4.0, 0).gains is None
    assert Forecast(2.0, 4.0, 0, FastestBaseline("onnxruntime", 6.0)).gains == (1.5, 3.0)
