"""A tuning run: a request, its run in the records, and its result."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import platformdirs

from kintune.core.config import JobSpec
from kintune.core.device import DeviceDescription
from kintune.core.failure_report import FailureReport
from kintune.core.report import RunReport
from kintune.core.stage_results import Summary
from kintune.core.version import FEATURES, __version__
from kintune.errors import InputError, JobFailed, KintuneError, StorageError
from kintune.hardware.cpu import data_caches
from kintune.models.ref import ONNX
from kintune.records import Run, RunState, Store
from kintune.tuning.front.failure import failure_report
from kintune.tuning.front.placement import MeasurementSite
from kintune.tuning.front.publishing import discard, publish, report_of
from kintune.tuning.front.request import TuneRequest, refuse_several_shapes, run_key
from kintune.tuning.front.run_lock import RunLock
from kintune.tuning.narrow import avoided_extensions, known_speeds
from kintune.wire.confinement import Confinement
from kintune.workers.engine.job_run import JobEnd, JobEnding

__all__ = ["TuningRun"]


class TuningRun:
    """A request with its run in the records: one that is resumed, or a new one."""

    def __init__(
        self, request: TuneRequest, store: Store, site: MeasurementSite, owner: str = "", details: str = ""
    ) -> None:
        """Find the run to resume, or make the id of a new one; nothing is written yet.

        Requests of different owners have different runs.  Messages of failures refer to `details`, or to the log's
        path.  The run is locked until it is over or interrupted, or nobody refers to this any more.

        Raises:
            DeviceError: the file of a lock cannot be made.
        """
        self.request = request
        self._store = store
        self._site = site
        self._key = run_key(request, site.threads, site.cpu, owner)
        self._lock: RunLock | None = None
        self._unfinished = self._find_unfinished()
        self.run_id = self._unfinished.run_id if self._unfinished else secrets.token_hex(6)
        self._lock = self._lock or RunLock.take(self.run_id)
        self.log = (
            Path(request.log) if request.log else Path(platformdirs.user_log_dir("kintune"), f"{self.run_id}.log")
        )
        self._details = details
        self._run: Run | None = None
        output = Path(request.output)
        self._working = output
        if request.isolate:
            self._working = output.with_name(f".{output.name}.isolated") / output.name
            self._make_folder()

    @property
    def confinement(self) -> Confinement | None:
        """What the process of an isolated run may do: read the files of the run, write where its result is made."""
        if not self.request.isolate:
            return None
        return Confinement(read=self.request.files, write=(str(self._working.parent),))

    def discard(self) -> None:
        """Remove the files that were made beside the result."""
        discard(str(self._working))
        if self.request.isolate:
            shutil.rmtree(self._working.parent, ignore_errors=True)

    def score_original(self, log: Path, notify: Callable[[str], None]) -> None:
        """Compute the user's score of the original model, unless there is none, or the run that is resumed has it.

        What his function prints is written to `log`; `notify` is told what is being done.

        Raises:
            InputError: his function cannot be found, raises, or returns no number.
        """
        from kintune.validate.score import ScoreOrder, score  # these import numpy

        model, metric = self.request.model, self.request.options.metric
        if metric is None or self._unfinished is not None:
            return
        notify(f"computing {metric.name} of the original model")
        begun = time.monotonic()
        onnx, exported = (model.source, None) if model.kind == ONNX else (None, model.source)
        reference = score(ScoreOrder(metric, self._site.threads, onnx, exported), log)
        metric = msgspec.structs.replace(metric, reference=reference, seconds=time.monotonic() - begun)
        options = msgspec.structs.replace(self.request.options, metric=metric)
        self.request = msgspec.structs.replace(self.request, options=options)

    def open(self, about: DeviceDescription, *, cores: int, pipelined: bool) -> JobSpec:
        """Return the job's specification; creates the run in the records if it is new.

        The stages on the host take `cores` cores each.  `pipelined` allows several open rounds, unless the device is
        the host.

        Raises:
            InputError: the device runs one combination of shapes alone, and the model has several.
        """
        refuse_several_shapes(self.request.model, about.device_type.capabilities)
        self._spec = spec = self._specify(about, cores, pipelined=pipelined)
        self._run = self._unfinished or self._create(spec, about)
        return spec

    def conclude(self, end: JobEnd) -> RunReport:
        """Check the proof, publish the result, and return the report.

        Raises:
            InputError: the model or another input was refused.
            JobFailed: the job ended without a result, or without a proof.
            NumericsError: the outputs differ.
            StorageError: the result, or another file of the job, cannot be written; the run stays unfinished.
        """
        try:
            return self._conclude(end)
        finally:
            self._unlock()

    def _conclude(self, end: JobEnd) -> RunReport:
        if self._run is None:
            raise JobFailed(f"{self.request.model.name} was never started")
        try:
            summary = self._summary(end)
            self._check_places(summary)
            skipped = publish(self.request.output, summary)
            if self.request.isolate:
                os.chown(self.request.output, os.geteuid(), os.getegid())  # a user without a name has written it
        except StorageError:  # the run is not over: the same command goes on with it
            raise
        except KintuneError:
            self._store.runs.update(self.run_id, state=RunState.FAILED)
            raise
        report = report_of(
            self._run,
            self._spec,
            summary,
            end.timings,
            skipped=skipped,
            output=self.request.output,
            log=str(self.log),
            resumed=self._unfinished is not None,
        )
        self._store.runs.update(self.run_id, state=RunState.FINISHED, summary=msgspec.json.encode(report))
        return report

    def failure(self, end: JobEnd, error: KintuneError) -> FailureReport | None:
        """Return the report of the run after `conclude` has raised `error`, and keep it; None if it never began."""
        if self._run is None:
            return None
        resumed = self._unfinished is not None
        report = failure_report(self._store, self._run, self._spec, end, error, log=str(self.log), resumed=resumed)
        if not isinstance(error, StorageError):
            self._store.runs.update(self.run_id, summary=msgspec.json.encode(report))
        return report

    def interrupted(self) -> None:
        """Mark the run as interrupted, unless it is over already; the same command resumes it."""
        if not self._store.runs.get(self.run_id).state.final:
            self._store.runs.update(self.run_id, state=RunState.INTERRUPTED)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _make_folder(self) -> None:
        """Make the folder in which the processes of an isolated run write.

        Raises:
            StorageError: it cannot be made.
        """
        try:
            self._working.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self._working.parent}: cannot be made ({error.strerror})") from error

    def _check_places(self, summary: Summary) -> None:
        """Check that an isolated run has named no files as its result's but its own: they are opened outside.

        Raises:
            JobFailed: it has.
        """
        packaged = summary.packaged
        if packaged is None or not self.request.isolate:
            return
        constants = (constant.path for constant in packaged.constants.values())
        named = (packaged.tuned, packaged.untuned, packaged.onnx, packaged.exported, packaged.quantised, *constants)
        for path in filter(None, named):
            made = os.path.dirname(path) == str(self._working.parent) and not os.path.islink(path)
            if not made and path not in self.request.files:
                raise JobFailed(f"its process named {path!r} as a file of its result, which is none of its own")

    def _find_unfinished(self) -> Run | None:
        """Return the run to resume, if any, locked; with `fresh`, unfinished runs are abandoned.

        Those that other processes work on are left alone.
        """
        runs, others = self._store.runs, list[str]()
        while (found := runs.find_unfinished(self._key, others)) is not None:
            lock = RunLock.take(found.run_id)
            if lock is None:
                others.append(found.run_id)
                continue
            found = runs.get(found.run_id)
            if not found.state.final and not self.request.fresh:
                self._lock = lock
                return found
            if not found.state.final:  # else another process has just ended it
                runs.update(found.run_id, state=RunState.ABANDONED)
            lock.release()
        return None

    def _specify(self, about: DeviceDescription, cores: int, *, pipelined: bool) -> JobSpec:
        request, site = self.request, self._site
        fresh = JobSpec(
            run_id=self.run_id,
            model=request.model,
            device_type=about.device_type,
            protocol=about.protocol,
            options=request.options,
            output=str(self._working),
            input_files=request.inputs or request.calibration,
            calibration_files=request.calibration,
            cores=cores,
            device=site.device,
            devices=site.count,
            caches=data_caches(about.machine),
            inflight=1 if site.shared or not pipelined else 1 + site.count,
            cool_bytes=about.cool_bytes,
            avoided=avoided_extensions(known_speeds(self._store, about.device_type.digest) or ()),
        )
        if self._unfinished is None:
            return fresh
        begun = msgspec.msgpack.decode(self._unfinished.spec, type=JobSpec)
        return msgspec.structs.replace(fresh, options=begun.options, protocol=begun.protocol, avoided=begun.avoided)

    def _create(self, spec: JobSpec, about: DeviceDescription) -> Run:
        return self._store.runs.create(
            self.run_id,
            key=self._key,
            model_name=spec.model.name,
            spec=msgspec.msgpack.encode(spec),
            seeds={"search": spec.options.seed},
            versions={
                "kintune": __version__,
                "compiler": about.compiler,
                "python": ".".join(str(part) for part in sys.version_info[:3]),
                "features": FEATURES,
                "protocol": str(about.protocol.version),
            },
        )

    def _summary(self, end: JobEnd) -> Summary:
        """Return the job's summary.

        Raises:
            InputError: the job was refused.
            JobFailed: the job failed or has not finished.
            StorageError: a file of the job could not be written.
        """
        if end.ending is JobEnding.HALTED:
            raise StorageError(f"{end.cause}; the same command goes on from here")
        if end.ending is JobEnding.REFUSED:
            raise InputError(end.cause)
        if end.finished is None:
            raise JobFailed(f"{end.cause}; details in {self._details or self.log}")
        if end.finished.failed and end.finished.refused:
            raise InputError(f"{end.finished.reason}; details in {self._details or self.log}")
        if end.finished.failed:
            raise JobFailed(f"{end.finished.reason}; details in {self._details or self.log}")
        return msgspec.msgpack.decode(end.finished.summary, type=Summary)
