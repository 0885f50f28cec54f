"""One tuning run from request to report: the front process of a command.

It holds the cores that it measures on, starts the engine with its processes, commits what they yield, and looks at the
proof before the result gets its name.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import platformdirs

from kintune import __version__
from kintune.doctor.machine import inspect_machine
from kintune.doctor.software import require_tried_versions
from kintune.engine.command import Command
from kintune.engine.devices import cores_lock
from kintune.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.engine.local import LocalEngine
from kintune.errors import InputError, JobFailed, KintuneError, StorageError
from kintune.front.identity import run_key
from kintune.front.journal import TuningJournal
from kintune.front.report import RunReport
from kintune.front.request import TuneRequest
from kintune.front.shipping import discard, ship
from kintune.front.telling import report_of
from kintune.job.payloads import JobSpec, Summary
from kintune.job.progress import ProgressReport
from kintune.measure.about import DeviceAbout
from kintune.measure.cores import choose_cores
from kintune.records import Run, RunState, Store
from kintune.scheduler.machine import Machine
from kintune.scheduler.policies import Sequential
from kintune.scheduler.resources import Device, Host, Resource
from kintune.space.feature_version import FEATURES
from kintune.wire.child import ResourceLimits

__all__ = ["TuneRequest", "tune"]

OnProgress = Callable[[ProgressReport], None]

_DEVICE = "cpu"  # the type of the one device, as the scheduler knows it
_BUILD_MEMORY_MB = 16 * 1024


def tune(request: TuneRequest, on_progress: OnProgress | None = None) -> RunReport:
    """Tune as asked; Ctrl-C ends the search and keeps what was found.

    Raises InputError (or a child) when something handed in is wrong, JobFailed when nothing came of it, NumericsError
    when the result does not compute what the model computes, StorageError when the records or the result cannot be
    written (the run can be gone on with).
    """
    show = on_progress or _ignore
    require_tried_versions()
    cores = choose_cores(request.threads or 0)
    with Store.open(request.records) as store:
        if store.notice:
            show(ProgressReport(stage="prepare", phase=store.notice))

        def waiting(holder: str) -> None:
            show(ProgressReport(stage="prepare", phase=f"waiting for the cores, held by {holder}"))

        with cores_lock(cores, waiting):
            return _Session(request, store, cores, show).run()


class _Session:
    """One process's work on one run."""

    def __init__(self, request: TuneRequest, store: Store, cores: tuple[int, ...], show: OnProgress) -> None:
        self._request = request
        self._store = store
        self._cores = cores
        self._show = show

    def run(self) -> RunReport:
        request, store = self._request, self._store
        key = run_key(request, len(self._cores), inspect_machine().cpu)
        unfinished = self._unfinished(key)
        run_id = unfinished.run_id if unfinished else secrets.token_hex(6)
        log = Path(request.log) if request.log else Path(platformdirs.user_log_dir("kintune"), f"{run_id}.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        self._show(ProgressReport(stage="prepare", phase="starting"))
        journal = TuningJournal(store, FEATURES)
        resources: list[Resource] = [
            Host("local", len(self._cores), _memory_mb()),
            Device("cpu", _DEVICE, host="local", on_host_cores=True),
        ]
        with LocalEngine(Machine(Sequential()), journal, self._commands(), resources, log=log) as engine:
            about = msgspec.msgpack.decode(engine.about("device", "cpu"), type=DeviceAbout)
            spec = self._spec(unfinished, run_id, about)
            run = unfinished or self._create(run_id, key, spec, about)
            journal.enter(spec, about.compiler, use_known=not request.fresh)
            try:
                ends = engine.run(
                    [JobLaunch(run_id, self._command("kintune.job.process"), msgspec.msgpack.encode(spec))],
                    on_progress=lambda _, payload: self._show(msgspec.msgpack.decode(payload, type=ProgressReport)),
                    on_stage=journal.watch,
                )
                return self._conclude(run, spec, ends[run_id], log, resumed=unfinished is not None)
            except KeyboardInterrupt:
                store.runs.update(run_id, state=RunState.INTERRUPTED)
                raise
            finally:
                discard(spec.output)

    def _unfinished(self, key: str) -> Run | None:
        """The run to go on with; one that is to be ignored is not gone on with later either."""
        unfinished = self._store.runs.find_unfinished(key)
        while self._request.fresh and unfinished is not None:
            self._store.runs.update(unfinished.run_id, state=RunState.ABANDONED)
            unfinished = self._store.runs.find_unfinished(key)
        return unfinished

    def _conclude(self, run: Run, spec: JobSpec, end: JobEnd, log: Path, *, resumed: bool) -> RunReport:
        try:
            summary = _summary(end, log)
            skipped = ship(spec.output, summary)
        except StorageError:
            raise
        except KintuneError:
            self._store.runs.update(run.run_id, state=RunState.FAILED)
            raise
        report = report_of(
            run, spec, summary, end.timings, skipped=skipped, output=spec.output, log=str(log), resumed=resumed
        )
        self._store.runs.update(run.run_id, state=RunState.FINISHED, summary=msgspec.json.encode(report))
        return report

    def _spec(self, unfinished: Run | None, run_id: str, about: DeviceAbout) -> JobSpec:
        request = self._request
        fresh = JobSpec(
            run_id=run_id,
            model=request.model,
            device_type=about.device_type,
            protocol=about.protocol,
            options=request.options,
            output=request.output,
            inputs=request.inputs,
            cores=len(self._cores),
            device=_DEVICE,
        )
        if unfinished is None:
            return fresh
        begun = msgspec.msgpack.decode(unfinished.spec, type=JobSpec)
        return msgspec.structs.replace(fresh, options=begun.options, protocol=begun.protocol)

    def _create(self, run_id: str, key: str, spec: JobSpec, about: DeviceAbout) -> Run:
        return self._store.runs.create(
            run_id,
            key=key,
            model_name=spec.model.name,
            spec=msgspec.msgpack.encode(spec),
            seeds={"search": spec.options.seed},
            versions={
                "kintune": __version__,
                "compiler": about.compiler,
                "python": ".".join(str(part) for part in sys.version_info[:3]),
                "features": FEATURES,
                "protocol": about.device_type.protocol,
            },
        )

    def _commands(self) -> dict[str, Command]:
        threads = len(self._cores)
        return {
            "build": self._command("kintune.measure.build_worker", memory_mb=_BUILD_MEMORY_MB),
            "device": self._command(
                "kintune.measure.device_worker", "--target", self._request.target, "--threads", str(threads),
                memory_mb=_memory_mb(), threads=threads,
            ),
        }  # fmt: skip

    def _command(self, module: str, *arguments: str, memory_mb: int | None = None, threads: int = 1) -> Command:
        return Command(
            (sys.executable, "-m", module, *arguments),
            {"TVM_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)},
            ResourceLimits(address_space_mb=memory_mb),
        )


def _summary(end: JobEnd, log: Path) -> Summary:
    """The job's summary; raises what its end amounts to if there is none."""
    if end.ending is JobEnding.REFUSED:
        raise InputError(end.cause)
    if end.finished is None:
        raise JobFailed(f"{end.cause}; details in {log}")
    if end.finished.failed:
        raise JobFailed(f"{end.finished.reason}; details in {log}")
    return msgspec.msgpack.decode(end.finished.summary, type=Summary)


def _memory_mb() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1 << 20)


def _ignore(report: ProgressReport) -> None:
    del report
