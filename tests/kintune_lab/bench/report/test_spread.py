from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.bench.report.spread import geometric_mean, numbers, spread_of


def test_a_spread_says_what_it_is_of() -> None:
    assert str(spread_of([3.0, 1.0, 2.0])) == "2.00 (1.00 to 3.00)"
    assert str(spread_of([0.01234])) == "0.0123"
    assert str(spread_of([123456.0])) == "123456"
    assert spread_of([]) is None


def test_what_was_not_reached_is_not_averaged_away() -> None:
    assert geometric_mean([4.0, 1.0]) == pytest.approx(2.0)
    assert geometric_mean([4.0, 0.0]) == 0.0
    assert geometric_mean([]) is None


@given(st.lists(st.floats(0.1, 10), min_size=1), st.floats(0.1, 10))
def test_a_geometric_mean_scales(values: list[float], factor: float) -> None:
    mean = geometric_mean(values)
    assert mean is not None
    assert geometric_mean([value * factor for value in values]) == pytest.approx(mean * factor)


def test_only_finite_numbers_are_numbers() -> None:
    assert numbers([1, 2.5, None, "3", True, math.nan, math.inf]) == [1.0, 2.5]
