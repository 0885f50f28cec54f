from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kintune.core.candidate import Candidate
from kintune.wire.worker_client import WorkerDied
from kintune_lab.race import remeasurement
from kintune_lab.race.remeasurement import LocalMeasurementWorkers
from kintune_lab.race.turn_scheduler import RaceNetwork, RaceRecord


class Builder:
    """A build worker that never answers, and is gone once it is closed."""

    started = 0
    at_work = 0

    def __init__(self, *_: object, **__: object) -> None:
        type(self).started += 1
        self._closed = threading.Event()

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def greet(self) -> None:
        pass

    def begin(self, kind: str, context: bytes) -> None:
        pass

    def order(self, item: bytes, seconds: float) -> bytes:
        del item, seconds
        type(self).at_work += 1
        assert self._closed.wait(30)
        raise WorkerDied("closed")


def test_an_interrupt_starts_no_other_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remeasurement, "WorkerProcess", Builder)
    monkeypatch.setattr(remeasurement, "_SHOW_SECONDS", 0.01)

    def interrupt(_: int) -> None:
        if Builder.at_work == 2:
            raise KeyboardInterrupt

    candidates = [Candidate("a", "s", ((number,),)) for number in range(20)]
    record = RaceRecord(RaceNetwork("{}", (), {}, 0), {}, {})
    with LocalMeasurementWorkers(record, 2, tmp_path / "log") as workers, pytest.raises(KeyboardInterrupt):
        workers.build(candidates, interrupt)
    assert Builder.started == 2
