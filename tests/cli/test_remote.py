from __future__ import annotations

from typing import Any

import pytest

from kintune.cli.remote import job_line


def job(state: str, **more: Any) -> dict[str, Any]:
    progress = {"trials": 64, "best_ms": 2.0, "untuned_ms": 8.0, "time_left_s": 15.0}
    return {"id": "abc", "state": state, "reason": "", "created": 0.0, "progress": progress, **more}


def test_a_job_in_a_list_tells_where_it_stands() -> None:
    said = "64 trials, estimated 2.00 ms, 4.00x faster than untuned, about 15 s left"
    assert job_line(job("tuning"), 60.0) == f"abc  tuning            60 s ago  {said}"


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
def test_of_one_that_is_over_no_time_is_left(state: str) -> None:
    line = job_line(job(state, reason="its time was up"), 60.0)
    assert "left" not in line
    assert line.endswith("(its time was up)")


def test_one_that_has_not_begun_has_no_progress() -> None:
    assert job_line(job("queued", progress=None), 5.0) == "abc  queued             5 s ago"
