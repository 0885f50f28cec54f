"""How long validations take by estimate."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage_requests import ValidationContext
from kintune.validate import thread_choice
from kintune.validate.baseline_protocol import BaselineTurn
from kintune.validate.estimate import estimate_validation_s
from kintune.validate.interleaved import QUICK_SECONDS, TURN_SECONDS, WARM_SECONDS, time_interleaved
from kintune.validate.thread_choice import counts_to_try, estimate_choice_s
from kintune.validate.validation_run import SLOW_UNTUNED_SECONDS

CONDITIONS = ValidationContext(threads=2)


@pytest.mark.parametrize(
    ("tuned_ms", "untuned_ms", "baselines", "took_s"),
    [
        (17.09, 3920.71, 0, 7.0),
        (3.6, 174.92, 0, 13.9),
        (35.46, 16667.5, 0, 22.7),
        (36.12, 6949.3, 0, 11.6),
        (18.68, 4530.2, 0, 10.5),
        (2.76, 42.9, 1, 6.3),
        (230.46, 28126.02, 1, 70.5 - 28.1),  # the run of the untuned network is no longer made
    ],
)
def test_an_estimate_is_near_what_validations_took(
    tuned_ms: float, untuned_ms: float, baselines: int, took_s: float
) -> None:
    """The seconds are of validations that ran on 2026-11-22 and 23, on two cores, when no threads were chosen."""
    conditions = msgspec.structs.replace(CONDITIONS, threads=1)
    told = estimate_validation_s(conditions, tuned_s=tuned_ms / 1e3, untuned_s=untuned_ms / 1e3, baselines=baselines)
    assert took_s / 1.4 < told < took_s * 1.4


seconds = st.floats(1e-6, 1e3)


@given(seconds, seconds, st.floats(1, 10), st.integers(0, 3))
def test_who_is_slower_takes_longer(tuned_s: float, untuned_s: float, times: float, baselines: int) -> None:
    def told(tuned_s: float, baselines: int = baselines) -> float:
        return estimate_validation_s(CONDITIONS, tuned_s=tuned_s, untuned_s=untuned_s, baselines=baselines)

    assert told(tuned_s) <= told(tuned_s * times) * (1 + 1e-9)
    if baselines or untuned_s <= SLOW_UNTUNED_SECONDS:
        assert told(tuned_s) < told(tuned_s, baselines + 1)


def test_an_untuned_network_that_is_cut_off_takes_no_longer_than_that() -> None:
    told = [
        estimate_validation_s(CONDITIONS, tuned_s=0.01, untuned_s=untuned_s, baselines=0)
        for untuned_s in (60.0, 6000.0)
    ]
    assert told[0] == told[1]


class Clock:
    """A clock, and a process whose runs take so many seconds of it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def process(self, name: str, run_s: float) -> Running:
        return Running(name, run_s, self)


@dataclass
class Running:
    name: str
    run_s: float
    clock: Clock

    def turn(self, turn: BaselineTurn, seconds: float) -> tuple[float, ...]:
        """Untimed runs for a while, and then timed ones until there are enough, or a turn is over."""
        self.clock.now += max(turn.warm_seconds, self.run_s)
        runs = min(float(turn.runs), max(1.0, turn.seconds / self.run_s))
        self.clock.now += runs * self.run_s
        return (self.run_s * 1e3,)


@given(
    st.floats(1e-3, 3.0),
    st.floats(1e-3, 100.0),
    st.integers(0, 3),
    st.integers(1, 6),
    st.sampled_from([0.5, 5.0, 30.0]),
    st.integers(1, 3),
)
def test_turns_take_as_long_as_they_do(
    tuned_s: float, untuned_s: float, baselines: int, rounds: int, race_seconds: float, threads: int
) -> None:
    conditions = ValidationContext(
        threads=threads, rounds=rounds, min_rounds=min(rounds, 2), race_seconds=race_seconds, runs=3
    )
    told = estimate_validation_s(conditions, tuned_s=tuned_s, untuned_s=untuned_s, baselines=baselines)
    once_s = min(untuned_s, conditions.untuned_seconds)
    once_s = 0.0 if once_s > SLOW_UNTUNED_SECONDS and baselines else once_s
    runs_s = [tuned_s] * (1 + baselines) + ([once_s] if once_s < QUICK_SECONDS else [])
    before_s = once_s + 1.0 + sum(1.0 + run_s for run_s in runs_s)  # one second to start each
    before_s += 1.0 + tuned_s if baselines else 0.0  # the reference
    if threads > 1:
        before_s += estimate_choice_s(threads, tuned_s) + 2 * (1.0 + tuned_s)
    clock = Clock()
    time_interleaved([clock.process(str(n), max(run_s, 1e-9)) for n, run_s in enumerate(runs_s)], conditions, clock)
    one_round = sum(max(WARM_SECONDS, run_s) + min(3 * run_s, max(TURN_SECONDS, run_s)) for run_s in runs_s)
    assert told == pytest.approx(before_s + clock.now - 1000.0, abs=one_round / 2 + 1e-3)


@pytest.mark.parametrize("threads", [1, 2, 4, 6])
@pytest.mark.parametrize("run_s", [1e-4, 0.02, 1.0, 5.0])
def test_the_choice_of_threads_times_every_kernel_with_each_number(threads: int, run_s: float) -> None:
    counts = counts_to_try(threads)
    assert counts == {1: (1,), 2: (1, 2), 4: (1, 2, 4), 6: (1, 2, 4, 6)}[threads]
    turn_s = run_s + max(run_s, min(thread_choice._RUNS * run_s, thread_choice._SECONDS))
    compared_s = max(thread_choice._COMPARED_SECONDS, 4 * run_s)
    wanted = thread_choice._ROUNDS * len(counts) * turn_s + compared_s
    assert estimate_choice_s(threads, run_s) == (pytest.approx(wanted) if threads > 1 else 0.0)
