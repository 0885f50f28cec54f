from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.device import Peak
from kintune.core.workload import Subgraph
from kintune.tuning.end_forecast import EARLIEST_S, Widths, foretell_end, gains_so_far, least_ms

CURVE = ((10.0, 0, 8.0), (30.0, 100, 4.0), (60.0, 200, 3.0))
WIDTHS = Widths(gained=0.5, doubling=0.0, slower=0.2)


def test_nothing_is_foretold_in_the_first_minute() -> None:
    assert foretell_end(CURVE, 10.0 + EARLIEST_S - 1, 600.0) is None
    assert foretell_end(CURVE, 10.0 + EARLIEST_S, 600.0) is not None
    assert foretell_end((), 600.0, 600.0) is None


def test_the_last_doubling_and_those_to_come_are_told() -> None:
    gain, doublings = gains_so_far(CURVE, 90.0, 80.0)
    assert gain == pytest.approx(math.log(4 / 3))
    assert doublings == pytest.approx(1.0)
    gain, doublings = gains_so_far(CURVE, 190.0, 0.0)
    assert (gain, doublings) == (0.0, 0.0)


def test_the_gain_of_the_first_programs_is_not_expected_again() -> None:
    assert gains_so_far(((0.0, 0, 1e4), (50.0, 20, 10.0)), 70.0, 70.0)[0] == pytest.approx(math.log(2))


def test_the_range_follows_the_gains() -> None:
    found = foretell_end(CURVE, 90.0, 80.0, widths=WIDTHS)
    assert found is not None
    assert found.low_ms == pytest.approx(3.0 * math.sqrt(3 / 4))
    assert found.high_ms == pytest.approx(3.0 * math.exp(0.2))


def test_little_is_left_where_the_last_doubling_gained_little() -> None:
    rising = foretell_end(CURVE, 90.0, 80.0)
    flat = foretell_end(CURVE, 190.0, 180.0)
    assert rising is not None
    assert flat is not None
    assert (rising.little_left, flat.little_left) == (False, True)


def test_nothing_is_below_the_peak() -> None:
    found = foretell_end(CURVE, 90.0, 80.0, floor_ms=2.9, widths=WIDTHS)
    assert found is not None
    assert found.low_ms == 2.9
    above = foretell_end(CURVE, 90.0, 80.0, floor_ms=20.0, widths=WIDTHS)  # a peak that was measured too low
    assert above is not None
    assert above.low_ms <= above.high_ms


@given(st.floats(60.0, 1e5), st.floats(0.0, 1e5), st.floats(0.0, 1e5))
def test_more_time_never_promises_less(spent: float, left: float, more: float) -> None:
    near, far = (foretell_end(CURVE, 10.0 + spent, seconds) for seconds in (left, left + more))
    assert near is not None
    assert far is not None
    assert far.low_ms <= near.low_ms <= near.high_ms == far.high_ms


def test_what_a_network_takes_at_least_is_its_arithmetic() -> None:
    conv = Subgraph("conv", "c", 2, 1e8, "conv2d", "conv2d", True, least_flops=5e7)
    relu = Subgraph("relu", "r", 5, 0.0, "relu", "relu", False)
    assert least_ms([conv, relu], Peak(100.0, 10.0, 2)) == pytest.approx(2 * 5e7 / 100e9 * 1e3)
