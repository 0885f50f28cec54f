from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from kintune.core.config import Metric, Options
from kintune.core.failure_report import decode_report
from kintune.core.model import ModelRef
from kintune.errors import JobFailed, OrderError, StorageError
from kintune.hardware.locks import DeviceLock, default_lock_directory
from kintune.records import RunState, Store
from kintune.tuning.front.placement import MeasurementSite
from kintune.tuning.front.request import TuneRequest
from kintune.tuning.front.tuning_run import TuningRun
from kintune.workers.engine.job_run import JobEnd, JobEnding
from kintune.workers.engine.timings import Timings
from tests.support.boards import board_about


@pytest.mark.parametrize(("details", "told"), [("", "{log}"), ("the job's log", "the job's log")])
def test_who_is_told_of_a_failure_is_told_where_the_details_are(tmp_path: Path, details: str, told: str) -> None:
    log = tmp_path / "run.log"
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt", log=str(log))
    with Store.open(":memory:") as store:
        ticket = TuningRun(request, store, MeasurementSite("pi5", 1, 4, "Cortex-A76"), details=details)
        ticket.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        with pytest.raises(JobFailed, match=f"^it died; details in {told.format(log=log)}$"):
            ticket.conclude(JobEnd(JobEnding.FAILED, cause="it died"))


def test_a_run_whose_files_cannot_be_written_is_not_over(tmp_path: Path) -> None:
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt", log=str(tmp_path / "run.log"))
    with Store.open(":memory:") as store:
        run = TuningRun(request, store, MeasurementSite("pi5", 1, 4, "Cortex-A76"))
        run.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        with pytest.raises(StorageError, match="no space left; the same command goes on from here"):
            run.conclude(JobEnd(JobEnding.HALTED, cause="net.kt.unproven: cannot be written: no space left"))
        assert store.runs.get(run.run_id).state is RunState.RUNNING
        assert TuningRun(request, store, MeasurementSite("pi5", 1, 4, "Cortex-A76")).run_id == run.run_id


@pytest.mark.parametrize(
    ("state", "left"),
    [
        (RunState.RUNNING, RunState.INTERRUPTED),
        (RunState.FINISHED, RunState.FINISHED),
        (RunState.FAILED, RunState.FAILED),
    ],
)
def test_only_a_run_that_is_not_over_can_be_interrupted(tmp_path: Path, state: RunState, left: RunState) -> None:
    """Another run's result may be there already when the interrupt comes."""
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt", log=str(tmp_path / "run.log"))
    with Store.open(":memory:") as store:
        run = TuningRun(request, store, MeasurementSite("pi5", 1, 4, "Cortex-A76"))
        run.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        store.runs.update(run.run_id, state=state)
        run.interrupted()
        assert store.runs.get(run.run_id).state is left


def test_a_run_that_failed_leaves_a_report(tmp_path: Path) -> None:
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt", log=str(tmp_path / "run.log"))
    end = JobEnd(JobEnding.FAILED, cause="it died", story=("it began", "it died"))
    with Store.open(":memory:") as store:
        run = TuningRun(request, store, MeasurementSite("pi5", 1, 4, "Cortex-A76"))
        assert run.failure(end, JobFailed("it died")) is None  # it has not begun
        run.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        with pytest.raises(JobFailed) as raised:
            run.conclude(end)
        report = run.failure(end, raised.value)
        assert report is not None
        assert (report.error, report.story, report.trials, report.subgraphs) == ("JobFailed", end.story, 0, ())
        assert report.cause.startswith("it died; details in ")
        kept = store.runs.get(run.run_id)
        assert kept.state is RunState.FAILED
        assert decode_report(kept.summary or b"") == report


SITE = MeasurementSite("pi5", 1, 4, "Cortex-A76")


def test_a_failed_run_has_taken_the_time_of_all_its_sessions(tmp_path: Path) -> None:
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt", log=str(tmp_path / "run.log"))
    end = JobEnd(JobEnding.FAILED, cause="it died", timings=Timings(wall_seconds=5.0))
    with Store.open(":memory:") as store:
        first = TuningRun(request, store, SITE)
        first.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        store.runs.update(first.run_id, active_seconds=30.0)
        first.interrupted()
        again = TuningRun(request, store, SITE)
        again.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        store.runs.update(first.run_id, active_seconds=34.0)  # as with each commit
        with pytest.raises(JobFailed) as raised:
            again.conclude(end)
        report = again.failure(end, raised.value)
    assert report is not None
    assert (report.seconds, report.resumed) == (35.0, True)


HOLDER = """
import sys
from kintune.tuning.front.run_lock import RunLock
lock = RunLock.take(sys.argv[1])
print("held" if lock else "not held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def another_process_works_on(run_id: str) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, run_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()


def test_a_run_that_another_process_works_on_is_left_alone() -> None:
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt")
    with Store.open(":memory:") as store:
        first = TuningRun(request, store, SITE)
        first.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        first.interrupted()
        with another_process_works_on(first.run_id):
            assert TuningRun(request, store, SITE).run_id != first.run_id
            fresh = TuningRun(msgspec.structs.replace(request, fresh=True), store, SITE)
            assert fresh.run_id != first.run_id
            assert store.runs.get(first.run_id).state is RunState.INTERRUPTED
        assert TuningRun(request, store, SITE).run_id == first.run_id
        TuningRun(msgspec.structs.replace(request, fresh=True), store, SITE)
        assert store.runs.get(first.run_id).state is RunState.ABANDONED


def test_a_run_is_locked_from_its_beginning_to_its_end() -> None:
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt")
    with Store.open(":memory:") as store:
        run = TuningRun(request, store, SITE)
        assert not _is_free(run.run_id)
        run.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        assert not _is_free(run.run_id)
        again = TuningRun(request, store, SITE)  # by this process itself
        assert again.run_id == run.run_id
        with pytest.raises(JobFailed):
            run.conclude(JobEnd(JobEnding.FAILED, cause="it died"))
        assert _is_free(run.run_id)
        dropped = TuningRun(request, store, SITE)
        run_id = dropped.run_id
        del dropped
        assert _is_free(run_id)
    assert not list(default_lock_directory().glob("run-*"))


def _is_free(run_id: str) -> bool:
    lock = DeviceLock(f"run-{run_id}")
    try:
        free = lock.try_acquire()
    except OrderError:  # this process holds it
        return False
    lock.release(remove=True)
    return free


def test_a_new_run_scores_the_original_and_one_that_is_resumed_keeps_that_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score that varies from run to run must not make another run of the same command."""
    scores = iter([0.75, 0.5])
    monkeypatch.setattr("kintune.validate.score.score", lambda order, log: next(scores))
    metric = Metric("m.py", "top1", str(tmp_path), 0.01)
    options = Options(trials=8, precision="auto", metric=metric)
    request = TuneRequest(model=ModelRef("onnx", "net.onnx", "net"), output="net.kt", options=options)
    told: list[str] = []
    with Store.open(":memory:") as store:
        first = TuningRun(request, store, SITE)
        first.score_original(tmp_path / "run.log", told.append)
        first.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        first.interrupted()
        again = TuningRun(request, store, SITE)
        assert again.run_id == first.run_id
        again.score_original(tmp_path / "run.log", told.append)
        spec = again.open(board_about("Cortex-A76"), cores=1, pipelined=False)
        assert spec.options.metric is not None
        assert spec.options.metric.reference == 0.75
    assert told == ["computing m.py:top1 of the original model"]


def test_without_a_metric_nothing_is_scored(tmp_path: Path) -> None:
    request = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="net.kt")
    with Store.open(":memory:") as store:
        TuningRun(request, store, SITE).score_original(tmp_path / "run.log", pytest.fail)
