"""One file of a comparison: compiled, tuned, and timed beside other runtimes; whatever fails is said in its row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from kintune.core.config import DEFAULT_MAX_ERROR, Options, Precision
from kintune.core.model import ModelRef, Tensor
from kintune.core.paired_ratio import paired_ratio
from kintune.core.report import ProgressReport, RunReport, StopReason
from kintune.core.stage_requests import ValidationContext
from kintune.errors import KintuneError, NumericsError, cause_line
from kintune.files import write_whole
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.runtime.package import read_manifest
from kintune.tuning.front import driver
from kintune.tuning.front.request import TuneRequest
from kintune.tuning.job.quantising import split
from kintune.validate.baselines import INT8, KINTUNE
from kintune_lab.comparison.files import ModelFiles, content_of, model_of
from kintune_lab.comparison.inputs import declared_constants, declared_inputs
from kintune_lab.comparison.quantised import calibration_files, write_quantised
from kintune_lab.comparison.records import keep_records
from kintune_lab.comparison.timing import RuntimeTimes, TimedSubject, runtime_version, time_in_turns
from kintune_lab.comparison.where import ResultPlace, where_it_runs
from kintune_lab.experiment.experiment import CellProgress, Show
from kintune_lab.experiment.tables import Row, Scalar, Tables

__all__ = ["COMPILING", "TIMING", "TUNING", "FileComparison", "FileSettings", "compare_file"]

COMPILING, TUNING, TIMING = "compiling", "tuning", "timing"
"""The steps that can fail."""

_SECONDS_A_ROUND = 6.0  # of slow networks, after which the rounds end early
_CHECKED = 4  # sets of inputs on which errors are measured, at most


class FileSettings(msgspec.Struct, frozen=True):
    """One file and what is done with it; the options of the experiment `compare` say what each means."""

    model: str
    shapes: str = ""
    constants: str = ""
    inputs: str | None = None
    minutes: float = 2.0
    seed: int = 0
    threads: int | None = None
    rtol: float = 1e-3
    atol: float = 1e-3
    others: tuple[str, ...] = ()
    rounds: int = 10
    precision: str = "fp32"
    max_error: float = DEFAULT_MAX_ERROR
    calibrate: str = ""

    @property
    def is_narrow(self) -> bool:
        """Whether something may compute narrower than the model says."""
        return self.precision != "fp32" or any(name in INT8 for name in self.others)


class FileComparison(msgspec.Struct, frozen=True):
    """The tables of a file, and the error of what failed first, if anything did."""

    tables: Tables
    error: KintuneError | None = None


def compare_file(settings: FileSettings, directory: Path, work: Path, show: Show) -> FileComparison:
    """Compile the file, tune it, and time the result beside other runtimes.

    Where compiling fails there is no tuning, and where tuning fails the compiled result is timed; other runtimes are
    timed in any case, as far as the file itself says what its inputs are.  Executables go to `work`, the log, the last
    report and the exported records to `directory`.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    return _File(settings, directory, work, show).compare()


class _File:
    def __init__(self, settings: FileSettings, directory: Path, work: Path, show: Show) -> None:
        self._settings = settings
        self._directory = directory
        self._records = directory / "records.sqlite"
        self._work = work
        self._show = show
        self._failed: tuple[str, KintuneError] | None = None
        self._report: RunReport | None = None
        self._executable: Path | None = None
        self._row: dict[str, Scalar] = {}
        self._cores: int | None = None
        self._calibration: tuple[str, ...] = ()
        self._quantised: Path | None = None
        self._not_quantised = ""  # why other runtimes have no such file

    def compare(self) -> FileComparison:
        settings = self._settings
        try:
            model = model_of(settings.model, settings.shapes, settings.constants)
            self._quantise(model)
        except KintuneError as error:
            self._fail(COMPILING, error)
            return self._conclusion({})
        try:
            self._make(model)
        finally:
            if self._records.exists():
                keep_records(self._records, self._directory)
        return self._conclusion(self._time(model))

    def _quantise(self, model: ModelRef) -> None:
        """Find the inputs to quantise with, and write the file in 8 bits for other runtimes that run one."""
        settings = self._settings
        if not settings.calibrate:
            return
        files = content_of(model)
        tensors = declared_inputs(model, files)
        self._calibration = calibration_files(settings.calibrate, tensors, self._work / "calibration", settings.seed)
        if files.onnx is None or not any(name in INT8 for name in settings.others):
            return
        self._say("quantising for other runtimes")
        written = self._work / "quantised.onnx"
        try:
            write_quantised(Path(files.onnx), tensors, split(self._calibration)[0], written)
            self._quantised = written
        except KintuneError as error:
            self._not_quantised = _said(error, settings.model)

    def _make(self, model: ModelRef) -> None:
        """Compile and tune."""
        compiled = self._step(COMPILING, model, search=False)
        self._row["compile_seconds"] = None if compiled is None else compiled.seconds
        if compiled is not None and self._settings.minutes:
            self._step(TUNING, model, search=True)

    def _step(self, name: str, model: ModelRef, *, search: bool) -> RunReport | None:
        """Compile the model, or tune it with `search`; the result replaces that of the step before.

        The precision that was asked for is that of the last one; what is compiled before it is tuned computes in fp32.
        """
        settings = self._settings
        precision = settings.precision if search or not settings.minutes else "fp32"
        output = self._work / f"{name}.kt"
        options = Options(
            minutes=settings.minutes if search else None,
            seed=settings.seed,
            rtol=settings.rtol,
            atol=settings.atol,
            search=search,
            precision=msgspec.convert(precision, Precision),
            max_error=settings.max_error,
        )
        request = TuneRequest(
            model=model,
            threads=settings.threads,
            options=options,
            records=str(self._records),
            output=str(output),
            inputs=self._inputs(precision),
            calibration=self._calibration if precision in ("int8", "auto") else (),
            log=str(self._directory / "run.log"),
        )
        try:
            report = driver.tune(request, lambda progress: self._show(_progress(name, progress)))
        except KintuneError as error:
            self._fail(name, error)
            return None
        if report.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        self._report, self._executable = report, output
        portable = msgspec.structs.replace(report, output=output.name, log="run.log")
        write_whole(self._directory / f"{name}.json", msgspec.json.encode(portable))
        return report

    def _inputs(self, precision: str) -> tuple[str, ...]:
        """The inputs to compare on; what computes narrower is chosen on those to quantise with where there are none."""
        settings = self._settings
        if settings.inputs is not None:
            return (str(Path(settings.inputs).absolute()),)
        return self._calibration if precision != "fp32" else ()

    def _time(self, model: ModelRef) -> dict[str, RuntimeTimes]:
        settings = self._settings
        try:
            files = content_of(model)
            cores = choose_cores(settings.threads or 0)
            self._cores = len(cores)
            subject = TimedSubject(
                executable=None if self._executable is None else str(self._executable),
                files=files,
                tensors=self._tensors(model, files),
                constants=declared_constants(model, files),
                inputs=settings.inputs,
                seed=settings.seed,
                quantised=None if self._quantised is None else str(self._quantised),
                measures_errors=settings.is_narrow,
                checked=() if settings.inputs else split(self._calibration)[1][:_CHECKED],
            )
            conditions = ValidationContext(
                len(cores),
                rounds=settings.rounds,
                min_rounds=min(settings.rounds, 3),
                race_seconds=_SECONDS_A_ROUND * settings.rounds,
            )
            with cores_lock(cores, lambda holder: self._say(f"waiting for the cores, held by process {holder}")):
                times = time_in_turns(subject, settings.others, conditions, cores, self._say)
        except KintuneError as error:
            self._fail(TIMING, error)
            return {}
        if self._not_quantised:
            missing = {name: RuntimeTimes(problem=self._not_quantised) for name in times if name in INT8}
            times |= missing
        return times

    def _tensors(self, model: ModelRef, files: ModelFiles) -> tuple[Tensor, ...]:
        if self._executable is not None:
            return read_manifest(self._executable).inputs
        return declared_inputs(model, files)

    def _fail(self, what: str, error: KintuneError) -> None:
        """Keep the first error: those that follow are its consequences."""
        if self._failed is None:
            self._failed = (what, error)

    def _say(self, phase: str) -> None:
        self._show(CellProgress(phase))

    def _conclusion(self, times: Mapping[str, RuntimeTimes]) -> FileComparison:
        ours = times.get(KINTUNE)
        if ours is not None and not ours.times_ms:
            self._fail(TIMING, KintuneError(f"the result does not run: {ours.problem}"))
        what, error = self._failed or ("", None)
        place = None if self._executable is None else where_it_runs(self._executable)
        row = {
            **_made(self._report, place),
            **self._row,
            "cores": self._cores,
            **_latencies(times),
            "correct": _correct(self._report, error),
            "failed_at": what,
            "failure": "" if error is None else _said(error, self._settings.model),
        }
        return FileComparison({"results": [row], "latencies": _runtimes(times)}, error)


def _made(report: RunReport | None, place: ResultPlace | None) -> dict[str, Scalar]:
    """Where the result runs, and what its making took."""
    return {
        "whole": place is not None and place.whole,
        "runs_in": "" if place is None else place.runs_in,
        "regions": None if place is None else place.regions,
        "left": "" if place is None else place.left,
        "seconds": None if report is None else report.seconds,
        "measured": None if report is None else report.trials,
        "kernels_ms": None if report is None else report.kernels_ms,
        "max_abs_error": None if report is None else report.max_abs_error,
        "max_rel_error": None if report is None else report.max_rel_error,
        "norm_error": None if report is None else report.norm_error,
        "narrow_subgraphs": None if report is None else len(report.narrow),
    }


def _correct(report: RunReport | None, error: KintuneError | None) -> bool | None:
    """Return whether the outputs are within the tolerances, None if they were not compared."""
    if isinstance(error, NumericsError):
        return False
    return None if report is None else report.within_tolerance


def _said(error: KintuneError, model: str) -> str:
    """What went wrong, without the model's name, which the row has."""
    line = cause_line(error)
    for name in (model, str(Path(model).absolute()), Path(model).stem):
        line = line.removeprefix(f"{name}: ")
    return line


def _latencies(times: Mapping[str, RuntimeTimes]) -> dict[str, Scalar]:
    """Medians by runtime, and the ratio of Kintune's to each, taken round by round."""
    ours = times[KINTUNE].rounds_ms if KINTUNE in times else ()
    row: dict[str, Scalar] = {f"{name}_ms": found.median_ms for name, found in times.items()}
    for name, found in times.items():
        if name != KINTUNE:
            row[f"ratio_{name}"] = paired_ratio(ours, found.rounds_ms) if ours and found.rounds_ms else None
    errors = {f"{name}_error": found.norm_error for name, found in times.items() if found.norm_error is not None}
    row.update(errors)
    return row


def _runtimes(times: Mapping[str, RuntimeTimes]) -> list[Row]:
    return [
        {
            "runtime": name,
            "version": runtime_version(name),
            "median_ms": found.median_ms,
            "p10_ms": found.share(0.1),
            "p90_ms": found.share(0.9),
            "runs": len(found.times_ms),
            "problem": found.problem,
            "norm_error": found.norm_error,
        }
        for name, found in times.items()
    ]


def _progress(name: str, report: ProgressReport) -> CellProgress:
    done = None
    if report.time_left_s is not None:
        done = report.elapsed_s / max(report.elapsed_s + report.time_left_s, 1e-9)
    return CellProgress(f"{name}: {report.phase or report.stage}", done, report.time_left_s)
