from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.measure.core_locality import APART_RATIO, CoreLocality

NEAR, FAR = 1.7, 3.1


class World:
    """Cores for which a handover costs this at each look, and then what it cost last."""

    def __init__(self, *ratios: float) -> None:
        self.ratios = ratios
        self.looks = 0
        self.now = 100.0
        self.naps = 0
        self.locality = CoreLocality(self._ratio, lambda: self.now, self._sleep)

    def _ratio(self) -> float:
        self.looks += 1
        return self.ratios[min(self.looks, len(self.ratios)) - 1]

    def _sleep(self, seconds: float) -> None:
        assert 0 < seconds < 0.1
        self.naps += 1
        self.now += seconds


def test_cores_that_are_together_are_looked_at_once() -> None:
    world = World(NEAR)
    assert all(world.locality.wait() for _ in range(5))
    assert (world.looks, world.naps) == (5, 0)


def test_cores_that_are_apart_are_waited_for() -> None:
    world = World(NEAR, NEAR, FAR, FAR, NEAR)
    assert [world.locality.wait() for _ in range(3)] == [True, True, True]
    assert world.naps == 2


def test_one_lucky_look_is_no_measure() -> None:
    world = World(0.9, NEAR, NEAR)
    assert all(world.locality.wait() for _ in range(3))
    assert world.naps == 0


def test_nobody_waits_for_longer_than_a_second() -> None:
    world = World(NEAR, NEAR, FAR)
    world.locality.wait()
    world.locality.wait()
    assert not world.locality.wait()
    assert world.now == pytest.approx(101.0, abs=0.1)


def test_who_waited_in_vain_waits_no_more_until_the_cores_were_together() -> None:
    world = World(NEAR, NEAR, FAR)
    world.locality.wait()
    world.locality.wait()
    for _ in range(20):
        assert not world.locality.wait()
    assert world.now < 104.0
    before = world.now
    world.ratios = (NEAR,)
    assert world.locality.wait()
    assert world.now == before
    world.ratios = (FAR,)
    assert not world.locality.wait()
    assert world.now > before + 0.9


def test_cores_that_never_come_together_count_as_together() -> None:
    """Cores of several groups, on a machine of which all is one's own."""
    world = World(FAR)
    assert world.locality.wait()
    assert world.naps == 0


@given(st.lists(st.floats(0.5, 100.0), min_size=1, max_size=50), st.integers(1, 10))
def test_together_is_what_is_near_the_least_so_far(ratios: list[float], times: int) -> None:
    world = World(*ratios)
    for _ in range(times):
        together = world.locality.wait()
        seen = (*ratios[: world.looks], *ratios[-1:] * (world.looks > len(ratios)))
        last = ratios[min(world.looks, len(ratios)) - 1]
        assert together == (last <= APART_RATIO * sorted(seen)[:2][-1])


def told(*seconds: float) -> Callable[[], float]:
    left = list(seconds)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.tvm
def test_the_least_of_some_looks_counts() -> None:
    from kintune.measure.core_locality import CoreLatency

    assert CoreLatency(told(9e-6, 2e-6), told(50e-6, 9e-6, 6e-6)).ratio() == pytest.approx(3.0)


@pytest.mark.tvm
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_handing_on_costs_something(threads: int) -> None:
    from kintune.measure.core_locality import core_latency

    ratio = core_latency(threads, 1 << 18).ratio()
    assert 0 < ratio < float("inf")  # how much depends on what else runs
