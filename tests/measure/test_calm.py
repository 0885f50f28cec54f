from __future__ import annotations

from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kintune.measure.calm import Calm


class World:
    """A clock and a counter of switches; each measurement takes a second, and is given way in as often as told."""

    def __init__(self, *switches: int) -> None:
        self.now = 0.0
        self.count = 0
        self._planned: Iterator[int] = iter(switches)
        self.measured = 0

    def measure(self) -> int:
        self.now += 1.0
        self.count += next(self._planned)
        self.measured += 1
        return self.measured

    def calm(self) -> Calm:
        return Calm(lambda: self.count, lambda: self.now)


def test_a_calm_measurement_is_believed() -> None:
    world = World(5)
    calm = world.calm()
    assert calm.timed(world.measure) == 1
    assert calm.repeated == 0


def test_a_disturbed_one_is_done_again() -> None:
    world = World(500, 5)
    calm = world.calm()
    assert calm.timed(world.measure) == 2
    assert calm.repeated == 1


@pytest.mark.parametrize(("switches", "chosen"), [((900, 500, 700), 2), ((500, 900, 700), 1), ((900, 800, 100), 3)])
def test_where_it_is_never_calm_the_calmest_counts(switches: tuple[int, ...], chosen: int) -> None:
    world = World(*switches)
    assert world.calm().timed(world.measure) == chosen
    assert world.measured == 3


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=3))
def test_the_calmest_of_what_was_tried_is_returned(switches: list[int]) -> None:
    world = World(*switches)
    chosen = world.calm().timed(world.measure)
    assert switches[chosen - 1] == min(switches[: world.measured])


def test_a_short_measurement_is_not_condemned_for_a_single_switch() -> None:
    counts = iter((0, 1))
    calm = Calm(lambda: next(counts), lambda: 0.0)
    assert calm.timed(lambda: "result") == "result"
    assert calm.repeated == 0
