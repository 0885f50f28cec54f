"""The driver: the checks of several requests before any begins, and the schedule log.  Whole runs: tests/acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.model import ModelRef
from kintune.errors import InputError, StorageError
from kintune.scheduler.events import JobAdded, RecordedStep, ScheduleHeader
from kintune.tuning.front.driver import ScheduleLog, Scheduling, tune_all
from kintune.tuning.front.request import TuneRequest
from kintune_lab.simulate.recorded import read_recording


def request(name: str, output: str | None = None, device: str = "cpu") -> TuneRequest:
    return TuneRequest(model=ModelRef("zoo", name, name), output=output or f"{name}.kt", device=device)


@pytest.mark.parametrize(
    ("requests", "scheduling", "said"),
    [
        ([], Scheduling(), "there is no model to tune"),
        ([request("a")], Scheduling("fairest"), "there is no policy 'fairest'; there are sequential"),
        ([request("a"), request("b", "a.kt")], Scheduling(), "b and a would both be written to a.kt"),
        ([request("a"), request("b")], Scheduling("uncontrolled"), "give the device its own: --device cpu:1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: list[TuneRequest], scheduling: Scheduling, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        tune_all(requests, scheduling)
    assert said in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_by_default_a_run_may_do_more_than_one_thing_at_once() -> None:
    """Otherwise a device of its own would gain nothing: `sequential` never overlaps."""
    assert Scheduling().policy == "predictive"


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
