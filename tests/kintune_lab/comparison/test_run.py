from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from kintune.core.model import Tensor
from kintune.core.report import StopReason
from kintune.core.stage_requests import ValidationContext
from kintune.errors import JobFailed, ModelError, NumericsError
from kintune.testing.small_onnx import write_small_onnx
from kintune_lab.comparison import run
from kintune_lab.comparison.run import FileSettings, compare_file
from kintune_lab.comparison.timing import RuntimeTimes, TimedSubject
from kintune_lab.comparison.where import KERNELS, ResultPlace
from kintune_lab.experiment.experiment import CellProgress
from kintune_lab.experiment.tables import Row, check_tables
from tests.support.reports import example_report

if TYPE_CHECKING:
    from tests.conftest import FakeFront

INPUT = Tensor("x", (1, 16, 16, 16), "float32")


class FakeTiming:
    """Times of runtimes that were never started."""

    def __init__(self) -> None:
        self.subject: TimedSubject | None = None
        self.conditions: ValidationContext | None = None
        self.kintune = RuntimeTimes((1.0, 1.0, 2.0), rounds_ms=(1.0, 1.5, 9.0))
        self.times = {
            "onnxruntime": RuntimeTimes((2.0,), rounds_ms=(2.0, 2.0, 20.0)),
            "openvino": RuntimeTimes(problem="not installed"),
        }

    def __call__(
        self,
        subject: TimedSubject,
        others: Sequence[str],
        conditions: ValidationContext,
        cores: Sequence[int],
        show: object,
    ) -> dict[str, RuntimeTimes]:
        self.subject, self.conditions = subject, conditions
        times = self.times
        ours = {"kintune": self.kintune} if subject.executable else {}
        return {**ours, **{name: times[name] for name in others}}


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> FakeTiming:
    fake = FakeTiming()
    monkeypatch.setattr(run, "time_in_turns", fake)
    monkeypatch.setattr(run, "read_manifest", lambda path: SimpleNamespace(inputs=(INPUT,)))
    monkeypatch.setattr(run, "where_it_runs", lambda path: ResultPlace(KERNELS))
    return fake


@pytest.fixture
def settings(tmp_path: Path) -> FileSettings:
    path = write_small_onnx(tmp_path / "a.onnx")
    return FileSettings(str(path), minutes=0.5, threads=1, others=("onnxruntime", "openvino"), rounds=4, rtol=1e-2)


def compared(settings: FileSettings, tmp_path: Path) -> tuple[Row, list[Row], Exception | None]:
    """The row of results, those of latencies, and the error."""
    work = tmp_path / "work"
    work.mkdir()
    found = compare_file(settings, tmp_path, work, lambda progress: None)
    check_tables(found.tables)
    (row,) = found.tables["results"]
    return row, list(found.tables["latencies"]), found.error


def test_a_file_is_compiled_tuned_and_timed(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path
) -> None:
    row, latencies, error = compared(settings, tmp_path)
    assert error is None
    compiling, tuning = fake_front.requests
    assert (compiling.options.search, compiling.options.minutes) == (False, None)
    assert (tuning.options.search, tuning.options.minutes, tuning.options.trials) == (True, 0.5, None)
    assert (tuning.threads, tuning.options.rtol, tuning.records) == (1, 1e-2, str(tmp_path / "records.sqlite"))
    assert compiling.output != tuning.output
    assert (row["kintune_ms"], row["onnxruntime_ms"], row["ratio_onnxruntime"]) == (
        1.0,
        2.0,
        0.5,
    )  # of the rounds: 0.5, 0.75, 0.45
    assert (row["openvino_ms"], row["ratio_openvino"]) == (None, None)
    assert (row["whole"], row["runs_in"], row["correct"], row["failure"], row["cores"]) == (True, KERNELS, True, "", 1)
    assert [each["runtime"] for each in latencies] == ["kintune", "onnxruntime", "openvino"]
    assert latencies[0]["runs"] == 3
    assert latencies[2]["problem"] == "not installed"
    assert timing.subject is not None
    assert (timing.subject.executable, timing.subject.tensors) == (tuning.output, (INPUT,))
    assert timing.conditions is not None
    assert (timing.conditions.threads, timing.conditions.rounds, timing.conditions.min_rounds) == (1, 4, 3)
    assert {path.name for path in tmp_path.glob("*.json")} == {"compiling.json", "tuning.json"}


def test_without_minutes_nothing_is_tuned(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path
) -> None:
    row, _, error = compared(FileSettings(settings.model, minutes=0.0), tmp_path)
    assert error is None
    assert [request.options.search for request in fake_front.requests] == [False]
    assert row["kintune_ms"] == 1.0


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_without_minutes_the_file_is_compiled_in_the_precision_that_was_asked_for(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path, precision: str
) -> None:
    compared(msgspec.structs.replace(settings, minutes=0.0, precision=precision, calibrate="drawn"), tmp_path)
    (compiling,) = fake_front.requests
    assert (compiling.options.search, compiling.options.precision) == (False, precision)
    assert len(compiling.inputs) == 8
    assert compiling.calibration == (compiling.inputs if precision == "int8" else ())


def test_a_file_that_does_not_compile_is_a_row_and_the_others_are_timed(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path
) -> None:
    fake_front.outcome = ModelError(f"{settings.model}: operators that cannot be imported: LSTM x1\nand more")
    row, latencies, error = compared(settings, tmp_path)
    assert error is fake_front.outcome
    assert len(fake_front.requests) == 1
    assert (row["failed_at"], row["failure"]) == ("compiling", "operators that cannot be imported: LSTM x1 and more")
    assert (row["whole"], row["runs_in"], row["onnxruntime_ms"]) == (False, "", 2.0)
    assert "kintune_ms" not in row
    assert timing.subject is not None
    assert timing.subject.tensors == (INPUT,)
    assert len(latencies) == 2


def test_where_tuning_fails_the_compiled_result_counts(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([example_report(), JobFailed("nothing could be measured")])

    def tune(request: object, on_progress: object) -> object:
        outcome = next(outcomes)
        if isinstance(outcome, JobFailed):
            raise outcome
        return outcome

    monkeypatch.setattr("kintune.tuning.front.driver.tune", tune)
    row, _, error = compared(settings, tmp_path)
    assert isinstance(error, JobFailed)
    assert (row["failed_at"], row["kintune_ms"], row["whole"]) == ("tuning", 1.0, True)
    assert timing.subject is not None
    assert str(timing.subject.executable).endswith("compiling.kt")


def test_a_wrong_result_is_said_to_be_wrong(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path
) -> None:
    fake_front.outcome = NumericsError("y differs by 0.3")
    row, _, _ = compared(settings, tmp_path)
    assert (row["correct"], row["failure"]) == (False, "y differs by 0.3")


def test_a_result_that_does_not_run_is_a_failure(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path
) -> None:
    timing.kintune = RuntimeTimes(problem="it died")
    row, _, error = compared(settings, tmp_path)
    assert (row["failed_at"], row["failure"]) == ("timing", "the result does not run: it died")
    assert error is not None


@pytest.mark.parametrize("name", ["gone.onnx", "empty.onnx", "text.onnx"])
def test_what_is_no_model_is_a_row(
    fake_front: FakeFront, timing: FakeTiming, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_text("no model")
    path = str(tmp_path / name)
    fake_front.outcome = ModelError(f"{path}: is not an ONNX file, or is incomplete")
    row, latencies, error = compared(FileSettings(path, others=("onnxruntime",)), tmp_path)
    assert isinstance(error, ModelError)
    assert (row["failed_at"], latencies) == ("compiling", [])
    assert not str(row["failure"]).startswith("/")


@pytest.mark.usefixtures("timing")
def test_an_interruption_ends_it(fake_front: FakeFront, settings: FileSettings, tmp_path: Path) -> None:
    fake_front.outcome = example_report(reason=StopReason.INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        compared(settings, tmp_path)


@pytest.mark.usefixtures("timing")
def test_progress_says_what_is_done(fake_front: FakeFront, settings: FileSettings, tmp_path: Path) -> None:
    seen: list[CellProgress] = []
    (tmp_path / "work").mkdir()
    compare_file(settings, tmp_path, tmp_path / "work", seen.append)
    assert seen[0].phase.startswith("compiling: ")
    assert seen[-1].phase.startswith("tuning: ")
    assert seen[-1].seconds_left == 340.0


def test_in_int8_all_are_quantised_with_the_same_inputs(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantised: list[Sequence[str]] = []

    def write(model: Path, tensors: Sequence[Tensor], files: Sequence[str], written: Path) -> None:
        quantised.append(files)

    monkeypatch.setattr(run, "write_quantised", write)
    timing.times["onnxruntime_int8"] = RuntimeTimes((0.5,), norm_error=0.02)
    wanted = msgspec.structs.replace(
        settings, precision="int8", calibrate="drawn", others=("onnxruntime", "onnxruntime_int8")
    )
    row, latencies, error = compared(wanted, tmp_path)
    assert error is None
    compiling, tuning = fake_front.requests
    assert (compiling.options.precision, compiling.calibration) == ("fp32", ())
    assert (tuning.options.precision, len(tuning.calibration)) == ("int8", 8)
    assert quantised == [tuning.calibration[:4]]
    assert timing.subject is not None
    assert timing.subject.checked == tuning.calibration[4:]
    assert timing.subject.measures_errors
    assert timing.subject.quantised == str(tmp_path / "work/quantised.onnx")
    assert (row["onnxruntime_int8_ms"], row["onnxruntime_int8_error"]) == (0.5, 0.02)
    assert [each["norm_error"] for each in latencies] == [None, None, 0.02]


def test_what_cannot_be_quantised_for_others_is_their_problem_and_no_failure(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(model: Path, *_: object) -> None:
        raise ModelError(f"{model}: onnxruntime's quantiser fails: no")

    monkeypatch.setattr(run, "write_quantised", write)
    timing.times["onnxruntime_int8"] = RuntimeTimes(problem="the model was not quantised")
    wanted = msgspec.structs.replace(settings, calibrate="drawn", others=("onnxruntime", "onnxruntime_int8"))
    row, latencies, error = compared(wanted, tmp_path)
    assert error is None
    assert (row["failed_at"], row["failure"], row["onnxruntime_ms"]) == ("", "", 2.0)
    problems = {each["runtime"]: each["problem"] for each in latencies}
    assert problems == {"kintune": "", "onnxruntime": "", "onnxruntime_int8": "onnxruntime's quantiser fails: no"}


def test_what_fails_after_other_runtimes_have_no_quantised_file_is_said(
    fake_front: FakeFront, timing: FakeTiming, settings: FileSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> None:
        raise ModelError("onnxruntime's quantiser fails")

    monkeypatch.setattr(run, "write_quantised", write)
    timing.times["openvino_int8"] = RuntimeTimes(problem="the model was not quantised")
    fake_front.outcome = JobFailed("the compiler died")
    wanted = msgspec.structs.replace(settings, calibrate="drawn", others=("openvino", "openvino_int8"))
    row, _, error = compared(wanted, tmp_path)
    assert error is fake_front.outcome
    assert (row["failed_at"], row["failure"]) == ("compiling", "the compiler died")
