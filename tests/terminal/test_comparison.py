from __future__ import annotations

import pytest

from kintune.core.report import BaselineVerdict, FastestBaseline, Latencies, LatencyForecast
from kintune.terminal.comparison import (
    describe_against,
    describe_estimate,
    describe_forecast,
    describe_medians,
    describe_result,
    describe_share,
    describe_untuned,
    gain_of,
)
from tests.support.reports import example_progress


def against(network_ms: float | None, baseline_ms: float = 1.74) -> FastestBaseline:
    found = FastestBaseline.of({"openvino": 9.0, "onnxruntime": baseline_ms}, network_ms)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("network_ms", "baseline_ms", "said"),
    [
        (1.32, 1.74, "1.32x as fast as onnxruntime (1.74 ms)"),
        (1.71, 1.74, "level with onnxruntime (1.74 ms)"),
        (1.77, 1.74, "level with onnxruntime (1.74 ms)"),
        (0.012, 0.016, "level with onnxruntime (16.0 us)"),
        (0.021, 0.016, "level with onnxruntime (16.0 us)"),
        (0.022, 0.016, "slower than onnxruntime: 1.38x its 16.0 us"),
        (0.010, 0.016, "1.60x as fast as onnxruntime (16.0 us)"),
        (2.0, 1.74, "slower than onnxruntime: 1.15x its 1.74 ms"),
        (0.05, 1.74, "faster than onnxruntime (1.74 ms)"),  # 35 times: no figure of merit
    ],
)
def test_what_was_won_against_the_fastest(network_ms: float, baseline_ms: float, said: str) -> None:
    assert describe_against(against(network_ms, baseline_ms)) == said


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict", "said"),
    [
        (0.88, 0.86, 0.90, "faster", "1.14x as fast as onnxruntime (1.74 ms)"),
        (0.88, 0.60, 0.95, "faster", "at least 1.05x as fast as onnxruntime (1.74 ms)"),
        (
            0.97,
            0.93,
            1.04,
            "uncertain",
            "0.93 to 1.04 of onnxruntime's 1.74 ms: the timings do not tell",
        ),
        (
            1.01,
            0.93,
            1.04,
            "uncertain",
            "0.93 to 1.04 of onnxruntime's 1.74 ms: the timings do not tell",
        ),
        (1.01, 0.98, 1.02, "level", "level with onnxruntime (1.74 ms)"),
        (1.30, 1.20, 1.35, "slower", "slower than onnxruntime: 1.30x its 1.74 ms"),
        (1.30, 1.10, 1.70, "slower", "slower than onnxruntime: 1.10x to 1.70x its 1.74 ms"),
    ],
)
def test_a_claim_rests_on_its_interval(ratio: float, low: float, high: float, verdict: str, said: str) -> None:
    fastest = FastestBaseline("onnxruntime", 1.74, ratio, low, high)
    assert (fastest.verdict, describe_against(fastest).removesuffix(" which is faster")) == (verdict, said)


def test_rounds_say_it_in_place_of_medians_and_the_reason_is_given() -> None:
    rounds = {"tuned": (1.0, 2.0, 3.0, 1.0, 2.0), "onnxruntime": (1.25, 2.5, 3.75, 1.25, 2.5)}
    runs = {"tuned": (2.5,), "onnxruntime": (2.5,)}
    latency = Latencies.of(runs, rounds)
    assert describe_result(latency) == "1.25x as fast as onnxruntime (2.50 ms)"
    assert "5 rounds in turns (0.80), not of the medians of all runs (1.00)" in describe_medians(latency)
    assert describe_medians(Latencies.of(rounds, rounds)) == ""
    assert describe_medians(Latencies.of(runs)) == ""


def test_an_untuned_network_that_is_far_slower_gives_no_figure() -> None:
    def said(*untuned_ms: float) -> str:
        rounds = {"tuned": (1.0,) * len(untuned_ms), "untuned": untuned_ms}
        return describe_result(Latencies.of(rounds, rounds))

    assert said(*[171.0] * 5) == "faster than untuned (171 ms)"
    assert said(*[3.0] * 5) == "3.00x as fast as untuned (3.00 ms)"
    assert said(0.8, 1.3, 1.2, 0.9, 1.1).endswith("the timings do not tell which is faster")
    assert gain_of(3.0) == "3.00x"
    assert gain_of(178.3) == "over 20x"


def test_the_share_of_what_the_fastest_takes() -> None:
    assert describe_share(against(1.32)) == "0.76 of onnxruntime's 1.74 ms"
    assert describe_share(against(None)) == "onnxruntime takes 1.74 ms"
    assert describe_against(against(None)) == ""
    assert against(None).verdict is None
    assert against(2.0).verdict is BaselineVerdict.SLOWER
    assert FastestBaseline.of({}, 1.0) is None


def test_a_result_is_told_against_others_or_else_against_untuned() -> None:
    def said(**times: float) -> str:
        return describe_result(Latencies.of({name: [time] for name, time in times.items()}))

    assert said(tuned=1.32, onnxruntime=1.74, openvino=1.9, untuned=9.0) == "1.32x as fast as onnxruntime (1.74 ms)"
    assert said(tuned=3.0, untuned=9.0) == "3.00x as fast as untuned (9.00 ms)"
    assert said(tuned=9.0, untuned=9.0) == "nothing was gained over the untuned network (9.00 ms)"
    assert said(tuned=9.0) == ""
    assert said(onnxruntime=1.0, untuned=2.0) == ""


def test_where_a_search_stands() -> None:
    fastest = FastestBaseline.of({"onnxruntime": 20.0}, 15.0)
    assert (
        describe_estimate(example_progress(fastest_baseline=fastest))
        == "estimated 15.0 ms, 0.75 of onnxruntime's 20.0 ms"
    )
    unknown = FastestBaseline.of({"onnxruntime": 20.0}, None)
    nothing = example_progress(best_ms=None, untuned_ms=None)
    assert describe_estimate(nothing) == "no latency known yet"
    assert describe_estimate(example_progress(best_ms=None, untuned_ms=None, trials_total=0)) == ""
    early = example_progress(best_ms=None, untuned_ms=None, fastest_baseline=unknown)
    assert describe_estimate(early) == "no latency known yet; onnxruntime takes 20.0 ms"


def test_without_others_the_untuned_network_is_what_there_is() -> None:
    assert describe_estimate(example_progress()) == "estimated 15.0 ms, 2.00x as fast as untuned (30.0 ms)"
    assert describe_estimate(example_progress(untuned_ms=None)) == "estimated 15.0 ms"
    assert describe_untuned(example_progress()) == "2.00x as fast as untuned (30.0 ms)"
    assert describe_untuned(example_progress(untuned_ms=None)) == ""


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "little_left", "said"),
    [
        (11.0, 16.0, False, "likely 11.0 ms to 16.0 ms at the end (0.55 to 0.80 of onnxruntime)"),
        (
            14.5,
            16.0,
            True,
            "likely 14.5 ms to 16.0 ms at the end (0.72 to 0.80 of onnxruntime); little is left to gain",
        ),
        (
            19.7,
            24.0,
            True,
            "likely 19.7 ms to 24.0 ms at the end (0.98 to 1.20 of onnxruntime); "
            "it is unlikely to be faster than onnxruntime",
        ),
    ],
)
def test_what_a_search_foretells(low_ms: float, high_ms: float, little_left: bool, said: str) -> None:
    fastest = FastestBaseline.of({"onnxruntime": 20.0}, 15.0)
    report = example_progress(fastest_baseline=fastest, forecast=LatencyForecast(low_ms, high_ms, little_left))
    assert describe_forecast(report) == said


def test_a_forecast_without_other_runtimes_and_none() -> None:
    assert describe_forecast(example_progress()) == ""
    report = example_progress(forecast=LatencyForecast(14.5, 16.0, little_left=True))
    assert describe_forecast(report) == "likely 14.5 ms to 16.0 ms at the end; little is left to gain"
