from __future__ import annotations

import threading

from kintune.tuning.job.patience import within


def test_what_returns_in_time_is_returned() -> None:
    assert within(60.0, lambda: "node") == "node"


def test_what_does_not_return_is_left_alone() -> None:
    released = threading.Event()

    def run() -> str:
        released.wait()
        return "node"

    assert within(0.01, run) == ""
    released.set()


def test_a_failure_is_nothing_found() -> None:
    def run() -> str:
        raise ValueError("no")

    assert within(60.0, run) == ""
