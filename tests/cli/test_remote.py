from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kintune.cli.remote import job_line

if TYPE_CHECKING:
    from tests.support.command import Kintune


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


def test_watching_a_service_that_is_not_there_ends(kintune: Kintune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.service.client.time.sleep", lambda seconds: None)
    said = kintune("job", "watch", "j1", "--service", "http://127.0.0.1:9")
    assert said.code == 1
    assert "is `kintune serve` running there?" in said.err


@pytest.mark.parametrize(
    "given", [("--service", "localhost:8190"), ("--service", "http://[::1"), ("--token", "\u00e4")]
)
def test_what_is_no_address_or_token_is_wrong_input(kintune: Kintune, given: tuple[str, str]) -> None:
    said = kintune("job", "watch", "j1", *given)
    assert said.code == 2
    assert said.err.startswith("kintune: error: ")
