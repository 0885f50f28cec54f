from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import StorageError
from kintune.scheduler.events import JobAdded, RecordedStep, ScheduleHeader
from kintune.tuning.front.driver import ScheduleLog
from kintune_lab.simulate.recorded import read_recording

HEADER = ScheduleHeader("fair", names={"a": "net"})


def test_every_step_is_written_as_it_happens(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with ScheduleLog(str(path), HEADER) as log:
        log.observe(JobAdded(1.0, "a"), [])
        log.observe(JobAdded(2.0, "b"), [])
    recorded = read_recording(str(path))
    assert recorded.header == HEADER
    assert recorded.steps == (RecordedStep(JobAdded(1.0, "a")), RecordedStep(JobAdded(2.0, "b")))


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    with ScheduleLog(None, HEADER) as log:
        log.observe(JobAdded(1.0, "a"), [])
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        ScheduleLog(str(tmp_path / "missing" / "s.jsonl"), HEADER).__enter__()


def test_a_disk_that_fills_up_ends_the_recording_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.jsonl"
    with ScheduleLog(str(path), HEADER) as log:
        log.observe(JobAdded(1.0, "a"), [])
        with monkeypatch.context() as patch, Path("/dev/full").open("wb", buffering=0) as full:
            patch.setattr(log, "_file", full)
            log.observe(JobAdded(2.0, "b"), [])
            log.observe(JobAdded(3.0, "c"), [])
            assert full.closed
    assert len(read_recording(str(path)).steps) == 1
