from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.measure.interference import MAX_FRUITLESS, PAUSES_S, InterferenceFilter, waited_s


class World:
    """A world in which the n-th measurement takes a second, of which it waits this share for its cores."""

    def __init__(self, *shares: float) -> None:
        self.shares = shares
        self.measured = 0
        self.waited = self.now = 100.0
        self.pauses: list[float] = []

    def measure(self) -> int:
        self.waited += self.shares[self.measured]
        self.now += 1.0
        self.measured += 1
        return self.measured

    def filter(self) -> InterferenceFilter:
        return InterferenceFilter(lambda: self.waited, lambda: self.now, self.pauses.append)


def test_an_undisturbed_measurement_is_believed() -> None:
    world = World(0.0)
    interference = world.filter()
    assert interference.timed(world.measure) == 1
    assert interference.repeated == 0
    assert world.pauses == []


def test_a_disturbed_one_is_done_again() -> None:
    world = World(0.5, 0.001)
    interference = world.filter()
    assert interference.timed(world.measure) == 2
    assert interference.repeated == 1
    assert len(world.pauses) == 1  # whoever interferes may be gone by then


@given(st.lists(st.floats(0.2, 2.0), min_size=3, max_size=3, unique=True))
def test_where_it_is_always_disturbed_the_least_disturbed_counts(shares: list[float]) -> None:
    world = World(*shares)
    interference = world.filter()
    assert shares[interference.timed(world.measure) - 1] == min(shares)
    assert interference.repeated == 2


def test_pauses_that_never_help_are_left_out_until_it_is_undisturbed_again() -> None:
    world = World(*[0.5] * 60, *[0.0] * 60, *[0.5] * 3)
    interference = world.filter()
    for _ in range(20):
        interference.timed(world.measure)
    assert world.measured == 60  # the least disturbed of three still counts
    assert world.pauses == [*PAUSES_S] * MAX_FRUITLESS
    for _ in range(60):
        interference.timed(world.measure)
    interference.timed(world.measure)
    assert world.pauses == [*PAUSES_S] * (MAX_FRUITLESS + 1)


@given(st.lists(st.booleans(), max_size=60))
def test_load_that_comes_and_goes_is_waited_for(busy: list[bool]) -> None:
    world = World(*itertools.chain.from_iterable((0.0, *([0.5] * 3 if b else [0.0])) for b in busy))
    interference = world.filter()
    for _ in range(2 * len(busy)):
        interference.timed(world.measure)
    assert len(world.pauses) == 2 * sum(busy)


def test_threads_that_end_meanwhile_are_no_gain() -> None:
    world = World(-1.0)  # what they had waited is no longer counted
    assert world.filter().waiting(world.measure) == (0.0, 1)


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel does not keep it")
def test_who_shares_a_core_waits_for_it() -> None:
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    other = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"],
        stdout=subprocess.PIPE,
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        os.sched_setaffinity(0, [core])
        waited, deadline = waited_s(), time.monotonic() + 60
        while waited_s() - waited < 0.05 and time.monotonic() < deadline:
            pass
        assert waited_s() - waited >= 0.05
    finally:
        os.sched_setaffinity(0, before)
        other.kill()
        other.communicate()


def test_a_measurement_that_a_cpu_quota_has_stopped_is_done_again() -> None:
    world, stops = World(0.0, 0.0), iter([0, 1, 1, 1])
    interference = InterferenceFilter(
        lambda: world.waited, lambda: world.now, world.pauses.append, throttled=lambda: next(stops)
    )
    assert interference.timed(world.measure) == 2
    assert interference.repeated == 1
    assert len(world.pauses) == 1  # by then the next period may have begun


def test_of_a_time_that_a_quota_has_stopped_nothing_is_known() -> None:
    world, stops = World(0.25), iter([7, 8])
    interference = InterferenceFilter(
        lambda: world.waited, lambda: world.now, world.pauses.append, throttled=lambda: next(stops)
    )
    waiting, _ = interference.waiting(world.measure)
    assert waiting == 1.25
