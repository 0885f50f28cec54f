from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.report import ProgressReport
from kintune.terminal.formatting import clock, count, counted, describe_effort, duration, milliseconds, times


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.85, "850 us"),
        (0.0042, "4.20 us"),
        (1.0, "1.00 ms"),
        (15.46, "15.5 ms"),
        (127.0, "127 ms"),
        (2100.0, "2.10 s"),
    ],
)
def test_a_latency_has_three_digits_and_a_fitting_unit(value: float, said: str) -> None:
    assert milliseconds(value) == said


@pytest.mark.parametrize(("seconds", "said"), [(0, "00:00"), (192.4, "03:12"), (3792, "1:03:12"), (-1, "00:00")])
def test_a_clock_shows_hours_only_when_there_are_some(seconds: float, said: str) -> None:
    assert clock(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(40, "40 s"), (89.9, "90 s"), (90, "2 min"), (720, "12 min"), (12000, "3 h 20 min"), (7200, "2 h")],
)
def test_a_duration_is_as_coarse_as_its_size_allows(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0, "FLOP", "0 FLOP"),
        (999, "", "999"),
        (11689512, "", "11.7 M"),
        (3.64e9, "FLOP", "3.64 GFLOP"),
        (1e21, "", "1000000 P"),
    ],
)
def test_a_count_has_a_decimal_prefix(value: float, unit: str, said: str) -> None:
    assert count(value, unit) == said


def test_one_thing_is_not_called_several() -> None:
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    report = ProgressReport(stage="", trials=1, elapsed_s=5.0)
    assert describe_effort(report) == "1 trial, 00:05"


def test_a_ratio_has_two_decimals() -> None:
    assert times(1.916) == "1.92x"


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_a_latency_can_be_read_back_within_half_a_percent(value: float) -> None:
    number, unit = milliseconds(value).split()
    assert float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit] == pytest.approx(value, rel=5.1e-3, abs=5.1e-6)
