from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kintune.core.candidate import Candidate
from kintune.core.stage_requests import BuildContext
from kintune.wire.worker_client import WorkerDied
from kintune_lab.tuners import worker_processes
from kintune_lab.tuners.worker_processes import BuildWorkers


class Builder:
    """A build worker that never answers, and is gone once it is closed."""

    started = 0
    at_work = 0

    def __init__(self, *_: object, **__: object) -> None:
        type(self).started += 1
        self._closed = threading.Event()

    def close(self) -> None:
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
    monkeypatch.setattr(worker_processes, "WorkerProcess", Builder)
    monkeypatch.setattr(worker_processes, "_SHOW_SECONDS", 0.01)

    def interrupt(_: int) -> None:
        if Builder.at_work == 2:
            raise KeyboardInterrupt

    candidates = [Candidate("a", "s", ((number,),)) for number in range(20)]
    with BuildWorkers("the", 2, BuildContext("{}", {}, {}), tmp_path / "log") as workers:
        workers.wait_ready()
        with pytest.raises(KeyboardInterrupt):
            workers.build(candidates, 60.0, interrupt)
    assert Builder.started == 2
