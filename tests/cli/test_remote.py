from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kintune.cli.remote import JobDisplay, job_line, job_table
from kintune.core.report import ProgressReport

if TYPE_CHECKING:
    from tests.support.command import Kintune


def job(state: str, **more: Any) -> dict[str, Any]:
    progress = {"trials": 64, "best_ms": 2.0, "untuned_ms": 8.0, "time_left_s": 15.0}
    return {"id": "abc", "state": state, "reason": "", "created": 0.0, "progress": progress, **more}


def test_a_job_in_a_list_tells_where_it_stands() -> None:
    said = "64 trials, estimated 2.00 ms, 4.00x as fast as untuned (8.00 ms), about 15 s left"
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


class FollowedJob:
    """A job shown by `JobDisplay` without a terminal."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stream = io.StringIO()
        self.display = JobDisplay("net.onnx, job 7", self.lines.append, self.stream)

    def job(self, state: str, reason: str = "", progress: Any = None) -> None:
        self.display("job", {"state": state, "reason": reason, "progress": progress})

    def changed(self, state: str, reason: str = "") -> None:
        self.display("changed", {"state": state, "reason": reason})

    def progressed(self, **values: Any) -> None:
        self.display("progressed", {"report": msgspec.to_builtins(ProgressReport("profile", **values))})

    @property
    def drawn(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def followed() -> FollowedJob:
    return FollowedJob()


def test_states_are_lines_and_the_search_is_drawn_between_them(followed: FollowedJob) -> None:
    followed.job("queued")
    followed.changed("checking")
    followed.changed("tuning")
    followed.progressed(trials=64, trials_total=128, elapsed_s=20.0, best_ms=4.0, untuned_ms=8.0)
    followed.changed("packaging")
    followed.progressed(trials=128, trials_total=128, elapsed_s=40.0, best_ms=2.0, untuned_ms=8.0)
    followed.changed("done", "the target is met")
    assert followed.lines == ["queued", "checking", "tuning", "done: the target is met"]
    assert followed.drawn == [
        "net.onnx, job 7",
        "64 of 128 trials, 00:20; estimated 4.00 ms, 2.00x as fast as untuned (8.00 ms); profile",
        "128 of 128 trials, 00:40; estimated 2.00 ms, 4.00x as fast as untuned (8.00 ms); profile",
    ]


def test_who_comes_later_sees_where_it_stands(followed: FollowedJob) -> None:
    followed.job("tuning", progress=msgspec.to_builtins(ProgressReport("build", trials=5)))
    assert followed.lines == ["tuning"]
    assert followed.drawn[1].startswith("5 trials")


def test_a_connection_that_broke_repeats_nothing(followed: FollowedJob) -> None:
    for _ in range(2):
        followed.job("queued")
    for _ in range(2):
        followed.job("failed", "no memory", progress={"stage": "profile", "trials": 3})
    assert followed.lines == ["queued", "failed: no memory"]
    assert followed.drawn == []


def test_a_report_that_cannot_be_read_does_no_harm(followed: FollowedJob) -> None:
    followed.display("progressed", {"report": {"trials": "many"}})
    followed.display("stagebegan", {"anything": 1})
    followed.job("done")
    assert followed.lines == ["done"]


def test_a_job_in_a_list_stands_against_the_fastest_other_runtime() -> None:
    fastest = {"name": "onnxruntime", "ms": 2.5, "ratio": 0.8}
    progress = {"trials": 64, "best_ms": 2.0, "untuned_ms": 8.0, "fastest_baseline": fastest}
    assert job_line(job("tuning", progress=progress), 60.0).endswith(
        "64 trials, estimated 2.00 ms, 0.80 of onnxruntime's 2.50 ms"
    )


def test_jobs_are_a_table_with_the_names_of_their_models() -> None:
    fastest = {"name": "onnxruntime", "ms": 2.5, "ratio": 0.8}
    running = job(
        "tuning", model=7, model_name="resnet50.onnx", wanted={"device": "pi5"},
        progress={"trials": 64, "best_ms": 2.0, "fastest_baseline": fastest, "time_left_s": 90.0},
    )  # fmt: skip
    old = job("failed", model=8, reason="no memory", progress={"trials": "many"})  # of an earlier version
    lines = job_table([running, old], 60.0, None)
    assert lines[0].split() == ["job", "model", "device", "state", "age", "latency", "of", "fastest", "notes"]
    assert lines[1].split() == [
        "abc", "resnet50.onnx", "pi5", "tuning", "60", "s", "2.00", "ms", "0.80", "onnxruntime",
        "about", "2", "min", "left",
    ]  # fmt: skip
    assert lines[2].split()[:4] == ["abc", "model", "8", "failed"]
    assert lines[2].endswith("no memory")
    assert all(len(line) <= 60 for line in job_table([running, old], 60.0, 60))


def test_a_job_without_progress_tells_its_gain_all_the_same() -> None:
    fastest = {"name": "onnxruntime", "ms": 2.5, "ratio": 0.8}
    answered = job("done", progress=None, latency_ms=2.0, fastest_baseline=fastest)
    assert "2.00 ms  0.80 onnxruntime" in job_table([answered], 60.0, None)[1]
