"""The other end of the process that tries models."""

from __future__ import annotations

import io
import itertools
import os
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kintune_lab.fuzz import worker
from kintune_lab.fuzz.verdict import GraphVerdict, VerdictKind
from kintune_lab.fuzz.worker import Worker


@pytest.mark.parametrize(
    ("answers_at", "waits", "kind", "looks"),
    [
        (5, 0.0, VerdictKind.RIGHT, 5),
        (None, 0.0, VerdictKind.NOT_COMPARED, 30),
        (None, 0.5, VerdictKind.NOT_COMPARED, 60),
    ],
)
def test_time_in_which_both_are_stopped_does_not_count(
    monkeypatch: pytest.MonkeyPatch, answers_at: int | None, waits: float, kind: VerdictKind, looks: int
) -> None:
    """An hour passes in each look at the process, of which a second counts, less what it waits for a processor."""
    reads, writes = os.pipe()
    answer = msgspec.json.encode({"verdict": GraphVerdict(VerdictKind.RIGHT)}) + b"\n"
    looked: list[int] = []

    def look(given: Any, *_: Any) -> Any:
        looked.append(len(looked) + 1)
        if looked[-1] == answers_at:
            os.write(writes, answer)
            return given, [], []
        return [], [], []

    process = SimpleNamespace(
        pid=0, stdin=io.BytesIO(), stdout=os.fdopen(reads, "rb"), poll=lambda: None, wait=lambda: 0, returncode=None,
        kill=lambda: None, communicate=lambda: None,
    )  # fmt: skip
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=itertools.count(0, 3600).__next__))
    monkeypatch.setattr(worker, "_waited_for_processor", lambda pid: waits * len(looked))
    monkeypatch.setattr(worker, "select", SimpleNamespace(select=look))
    tried = Worker("onnx", 0, patience=30.0)
    monkeypatch.setattr(tried, "_process", process)
    assert tried.try_model(0).kind is kind
    assert len(looked) == looks
    process.stdout.close()
    os.close(writes)
