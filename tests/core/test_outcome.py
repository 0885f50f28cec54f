from __future__ import annotations

import math

from kintune.core.outcome import Outcome, Status


def test_the_median_is_of_the_repeats() -> None:
    assert Outcome(Status.OK, times_us=(5.0, 1.0, 2.0)).median_us == 2.0


def test_a_failure_is_infinitely_slow_even_with_times() -> None:
    assert Outcome(Status.WRONG_RESULT, times_us=(1.0,)).median_us == math.inf


def test_equal_failures_have_one_class_whatever_their_details() -> None:
    causes = ("wrong numbers: 3 of 9 elements differ", "wrong numbers: 1 of 2 elements differ")
    assert {Outcome(Status.WRONG_RESULT, cause=cause).cause_class for cause in causes} == {"wrong numbers"}
