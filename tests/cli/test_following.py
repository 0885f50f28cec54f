from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from kintune.cli.remote import Following
from kintune.core.report import ProgressReport


class Watched:
    """What somebody sees who follows a job without a terminal."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stream = io.StringIO()
        self.news = Following("net.onnx, job 7", self.lines.append, self.stream)

    def job(self, state: str, reason: str = "", progress: Any = None) -> None:
        self.news("job", {"state": state, "reason": reason, "progress": progress})

    def changed(self, state: str, reason: str = "") -> None:
        self.news("changed", {"state": state, "reason": reason})

    def progressed(self, **values: Any) -> None:
        self.news("progressed", {"report": msgspec.to_builtins(ProgressReport("profile", **values))})

    @property
    def drawn(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_states_are_lines_and_the_search_is_drawn_between_them(watched: Watched) -> None:
    watched.job("queued")
    watched.changed("checking")
    watched.changed("tuning")
    watched.progressed(trials=64, trials_total=128, elapsed_s=20.0, best_ms=4.0, untuned_ms=8.0)
    watched.changed("packaging")
    watched.progressed(trials=128, trials_total=128, elapsed_s=40.0, best_ms=2.0, untuned_ms=8.0)
    watched.changed("done", "the target is met")
    assert watched.lines == ["queued", "checking", "tuning", "done: the target is met"]
    assert watched.drawn == [
        "net.onnx, job 7",
        "64 of 128 trials, 00:20; estimated 4.00 ms, 2.00x faster than untuned (8.00 ms); profile",
        "128 of 128 trials, 00:40; estimated 2.00 ms, 4.00x faster than untuned (8.00 ms); profile",
    ]


def test_who_comes_later_sees_where_it_stands(watched: Watched) -> None:
    watched.job("tuning", progress=msgspec.to_builtins(ProgressReport("build", trials=5)))
    assert watched.lines == ["tuning"]
    assert watched.drawn[1].startswith("5 trials")


def test_a_connection_that_broke_repeats_nothing(watched: Watched) -> None:
    for _ in range(2):
        watched.job("queued")
    for _ in range(2):
        watched.job("failed", "no memory", progress={"stage": "profile", "trials": 3})
    assert watched.lines == ["queued", "failed: no memory"]
    assert watched.drawn == []


def test_a_report_that_cannot_be_read_does_no_harm(watched: Watched) -> None:
    watched.news("progressed", {"report": {"trials": "many"}})
    watched.news("stagebegan", {"anything": 1})
    watched.job("done")
    assert watched.lines == ["done"]
