from __future__ import annotations

import math

import pytest

from kintune.workers.engine.work_limits import CheckClock, WorkLimits, memory_refusal

LIMITS = WorkLimits(("prepare", "draft"), 100.0, 50.0)


def test_only_the_time_at_work_counts() -> None:
    clock = CheckClock(LIMITS)
    assert clock.alarm_at(0.0, at_work=True) == 100.0
    assert clock.alarm_at(30.0, at_work=False) is None
    assert clock.alarm_at(1000.0, at_work=True) == 1070.0
    assert clock.alarm_at(1070.0, at_work=True) == 1070.0


def test_earlier_sessions_count_and_time_that_is_used_up_is_over_at_once() -> None:
    assert CheckClock(LIMITS, 90.0).alarm_at(5.0, at_work=True) == 15.0
    assert CheckClock(LIMITS, 900.0).alarm_at(5.0, at_work=True) == 5.0


def test_the_check_ends_with_the_first_stage_of_another_kind() -> None:
    clock = CheckClock(LIMITS)
    clock.began("draft")
    assert clock.alarm_at(0.0, at_work=True) == 100.0
    clock.began("select")
    clock.began("draft")
    assert clock.alarm_at(1.0, at_work=True) is None


def test_without_a_limit_no_alarm_rings() -> None:
    assert math.isinf(WorkLimits().item_s)
    assert CheckClock(WorkLimits()).alarm_at(0.0, at_work=True) is None


@pytest.mark.parametrize("said", ["MemoryError: Unable to allocate", "terminate called ... 'std::bad_alloc'"])
def test_a_process_that_is_out_of_memory_has_met_the_limit(said: str) -> None:
    assert memory_refusal(said, 4096) == "the model needs more than the 4096 MB of memory that a job may have here"
    assert memory_refusal(said, None) is None


def test_another_error_is_not_said_to_be_the_limit_of_memory() -> None:
    assert memory_refusal("killed by SIGSEGV", 4096) is None
