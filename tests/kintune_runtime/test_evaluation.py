"""Times of several streams, of which some fail."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kintune_runtime import RunError
from kintune_runtime.evaluation import evaluate_streams


class Failing:
    """What fails in its run number `last` + 1."""

    def __init__(self, last: int) -> None:
        self.left, self.closed = last, False

    def run(self, *_: Any) -> None:
        if not self.left:
            raise RunError("no memory is left")
        self.left -= 1

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("last", [0, 2, 3])
def test_the_error_of_any_run_is_raised(last: int) -> None:
    contexts = [Failing(last), Failing(1000)]
    with pytest.raises(RunError, match="no memory is left"):
        evaluate_streams(contexts, (), repeats=10, warmups=2, max_seconds=60)
    assert all(context.closed for context in contexts)


def test_a_thread_that_cannot_be_started_leaves_none_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    contexts = [Failing(10), Failing(10)]
    with pytest.raises(RuntimeError, match="can't start"):
        evaluate_streams(contexts, (), repeats=1, warmups=0, max_seconds=60)
    started[0].join(60)
    assert not started[0].is_alive()
    assert all(context.closed for context in contexts)
