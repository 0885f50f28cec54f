from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kintune.core.profile import Profile, ProfiledCall
from kintune.core.report import FastestBaseline, Latencies, Spread
from kintune.core.uncertainty import (
    describe_ms,
    is_restless,
    uncertain_calls,
    uncertain_comparison,
    uncertain_latency,
)


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


@given(st.lists(st.tuples(st.floats(1.0, 500.0), st.floats(0.0, 100.0)), min_size=1, max_size=6), st.floats(0.0, 10.0))
def test_a_call_is_out_of_proportion_by_its_ratio_its_share_and_its_microseconds(
    times: list[tuple[float, float]], run_ms: float
) -> None:
    """Over four times its time alone, over a twentieth of a run longer, and over 20 microseconds; the worst first."""
    calls = [call(f"c{number}", us) for number, (us, _) in enumerate(times)]
    alone = {each.title: us for each, (_, us) in zip(calls, times, strict=True)}
    far = [
        (alone[each.title] - each.us, each.title)
        for each in calls
        if alone[each.title] > 0
        and each.us > 4 * alone[each.title]
        and each.us - alone[each.title] > max(20.0, 0.05 * run_ms * 1e3)
    ]
    lines = uncertain_calls(profile(*calls, run_ms=run_ms), None, alone)
    named = [line.partition(" ")[0] for line in lines[:3]]
    assert sorted(named) == sorted(title for _, title in sorted(far)[:3])
    assert len(lines) == min(len(far), 3) + (len(far) > 3)


@example(40, 0.1, 0.4)
@example(40, 0.1, 0.51)
@example(3, 0.01, 0.055)
@given(st.integers(1, 40), st.floats(0.001, 1.0), st.floats(0.001, 3.0))
def test_a_run_is_far_above_its_kernels_by_twice_and_what_calls_may_cost(
    calls: int, kernels_ms: float, run_ms: float
) -> None:
    """Ten microseconds a call, and fifty at least, are what calling them may take."""
    found = profile(*(call(f"c{number}", 1.0) for number in range(calls)), run_ms=run_ms)
    far = run_ms > 2 * kernels_ms and run_ms > kernels_ms + max(0.05, 0.01 * calls)
    assert bool(uncertain_calls(found, kernels_ms, {})) == far


@pytest.mark.parametrize(
    ("ms", "said"),
    [(1000.0, "1 s"), (999.0, "999 ms"), (1.0, "1 ms"), (0.999, "999 us"), (0.0123456, "12.3 us"), (12345.0, "12.3 s")],
)
def test_a_unit_begins_with_its_first_one(ms: float, said: str) -> None:
    assert describe_ms(ms) == said


def test_a_level_result_says_how_much_and_an_open_one_which() -> None:
    level = FastestBaseline("onnxruntime", 100.0, 1.0, 0.95, 1.2)
    assert uncertain_comparison(level, 7).endswith(
        "0.95 to 1.20 by 7 rounds in turns, which do not tell which is faster"
    )
    faster = FastestBaseline("onnxruntime", 100.0, 0.9, 0.5, 0.98)
    assert uncertain_comparison(faster, 7).endswith("which do not tell how much")
    assert uncertain_comparison(FastestBaseline("torch", 100.0), 7) == "torch: not known"


def test_a_spread_of_just_half_of_the_median_is_calm() -> None:
    assert not is_restless(Spread(1.0, 1.5, 10), 1.0)
    assert is_restless(Spread(1.0, 1.501, 10), 1.0)
    assert is_restless(Spread(1.0, 1.501, 2), 1.0)


@pytest.mark.parametrize(
    ("us", "alone_us", "run_ms", "far"),
    [
        (40.0, 10.0, 0.1, False),
        (40.1, 10.0, 0.1, True),
        (50_005.0, 1.0, 1000.0, True),
        (50_000.0, 1.0, 1000.0, False),
        (21.0, 1.0, 0.1, False),
        (21.1, 1.0, 0.1, True),
        (50.0, None, 0.1, False),
        (50.0, 0.0, 0.1, False),
    ],
)
def test_a_call_is_far_beyond_each_of_its_limits(us: float, alone_us: float | None, run_ms: float, far: bool) -> None:
    alone = {} if alone_us is None else {"c": alone_us}
    assert bool(uncertain_calls(profile(call("c", us), run_ms=run_ms), None, alone)) == far


def test_the_time_alone_is_told_in_its_unit() -> None:
    (line,) = uncertain_calls(profile(call("c", 29_960.0)), None, {"c": 2996.0})
    assert line == "c takes 30 ms here and 3 ms alone"
