from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.profile import Profile, ProfiledCall
from kintune.core.report import Latencies, Spread
from kintune.core.uncertainty import describe_ms, is_restless, uncertain_calls, uncertain_latency


def call(title: str, us: float, kernel: str = "") -> ProfiledCall:
    return ProfiledCall(place=0, kernel=kernel or title, title=title, us=us)


def profile(*calls: ProfiledCall, run_ms: float | None = None) -> Profile:
    kernels_ms = sum(each.us for each in calls) / 1e3
    run_ms = kernels_ms if run_ms is None else run_ms
    return Profile(
        executable="m.kt", model="m", cpu="", threads=1, shapes={}, runs=10, run_ms=run_ms, p10_ms=run_ms,
        p90_ms=run_ms, kernels_ms=kernels_ms, gap_ms=run_ms - kernels_ms, copies=0, copied_bytes=0, peak=None,
        prefix="", calls=calls, onnxruntime=None, timeline=(),
    )  # fmt: skip


def test_a_call_that_takes_far_longer_in_the_network_is_named() -> None:
    found = profile(call("Conv.53", 32_000), call("Conv.52", 13_200), call("Conv.1", 900))
    alone_us = {"Conv.53": 240.0, "Conv.52": 245.0, "Conv.1": 850.0}
    assert uncertain_calls(found, 14.0, alone_us) == [
        "Conv.53 takes 32 ms here and 240 us alone",
        "Conv.52 takes 13.2 ms here and 245 us alone",
    ]


def test_a_kernel_is_known_with_packed_weights_as_well() -> None:
    found = profile(call("Conv", 9000, "kernel_3_prepacked_bf16_0_1"))
    assert uncertain_calls(found, None, {"kernel_3": 240.0}) == ["Conv takes 9 ms here and 240 us alone"]


def test_many_are_counted() -> None:
    found = profile(*(call(f"c{number}", 5000) for number in range(5)))
    lines = uncertain_calls(found, None, dict.fromkeys([f"c{number}" for number in range(5)], 10.0))
    assert (len(lines), lines[-1]) == (4, "2 more operators take over 4 times as long here as alone")


@pytest.mark.parametrize(
    ("run_ms", "kernels_ms", "said"),
    [
        (66.0, 14.0, "a run takes 66 ms, and its kernels 14 ms where they were timed alone"),
        (20.0, 14.0, ""),
        (0.06, 0.02, ""),  # some microseconds of overhead
        (66.0, None, ""),
        (66.0, 0.0, ""),
    ],
)
def test_a_network_far_above_its_kernels(run_ms: float, kernels_ms: float | None, said: str) -> None:
    assert uncertain_calls(profile(call("c", 1.0), run_ms=run_ms), kernels_ms, {}) == ([said] if said else [])


@given(st.lists(st.floats(1.0, 1e5), min_size=1, max_size=8), st.floats(1.0, 3.9))
def test_what_is_in_proportion_says_nothing(times_us: list[float], slower: float) -> None:
    calls = [call(f"c{number}", us) for number, us in enumerate(times_us)]
    alone = {each.title: each.us / slower for each in calls}
    total_ms = sum(times_us) / 1e3
    assert uncertain_calls(profile(*calls), total_ms / min(slower, 2.0), alone) == []


def test_restless_runs_and_gains_below_their_spread_are_said() -> None:
    rounds = {"tuned": (2.4, 6.9, 8.9, 2.5, 3.0), "onnxruntime": (5.0, 5.0, 5.0, 5.0, 5.0)}
    restless, ratio = uncertain_latency(Latencies.of(rounds, rounds))
    assert restless.startswith("3 ms: 8 of 10 runs took 2.44 ms to 8.1 ms")
    assert (
        ratio == "of onnxruntime's time it takes 0.48 to 1.78 by 5 rounds in turns, which do not tell which is faster"
    )
    calm = {"tuned": (3.0, 3.1, 3.0, 3.0, 3.0), "onnxruntime": (5.0, 5.0, 5.0, 5.0, 5.0)}
    assert uncertain_latency(Latencies.of(calm, calm)) == []
    assert uncertain_latency(Latencies()) == []


@given(st.floats(0.01, 1e3), st.floats(0.0, 0.49))
def test_a_spread_below_half_of_the_median_is_calm(median_ms: float, share: float) -> None:
    assert not is_restless(Spread(median_ms, median_ms * (1 + share), 10), median_ms)
    assert is_restless(Spread(median_ms * 0.9, median_ms * 1.6, 10), median_ms)
    assert not is_restless(Spread(0.0, 10 * median_ms, 1), median_ms), "one run has no spread"


@pytest.mark.parametrize(("ms", "said"), [(4180.0, "4.18 s"), (32.5, "32.5 ms"), (0.24, "240 us")])
def test_units_follow_the_size(ms: float, said: str) -> None:
    assert describe_ms(ms) == said
