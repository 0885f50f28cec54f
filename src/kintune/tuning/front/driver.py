"""The driver: several tuning runs at once on one machine, in the process of a command.

It locks the cores that it uses, starts the engine with its processes, commits their results, and checks each proof
before it publishes a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import RawIOBase
from pathlib import Path
from types import TracebackType

import msgspec

from kintune.core.device import DeviceDescription
from kintune.core.failure_report import FailureReport
from kintune.core.report import WAITING, ProgressReport, RunReport
from kintune.core.version import FEATURES
from kintune.errors import InputError, KintuneError, StorageError
from kintune.hardware.software import require_tried_versions
from kintune.records import Store
from kintune.scheduler.events import Decision, Event, RecordedStep, ScheduleHeader, encode_line
from kintune.scheduler.policies import POLICIES, policy
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune.tuning.front.check_worker import checked_apart
from kintune.tuning.front.input_check import check_inputs
from kintune.tuning.front.journal import TuningJournal
from kintune.tuning.front.placement import CorePlacement, choose_placement, holding, off_devices
from kintune.tuning.front.request import TuneRequest
from kintune.tuning.front.tuning_run import TuningRun
from kintune.tuning.job.outcomes import REPEATED
from kintune.wire.confinement import Confinement, require_isolation
from kintune.workers.engine.job_run import JobEnd, JobLaunch
from kintune.workers.engine.local import LocalEngine, Observe

__all__ = ["Ending", "OnFailure", "OnProgress", "ScheduleLog", "Scheduling", "tune", "tune_all"]


OnProgress = Callable[[int, ProgressReport], None]
"""Called with the number of a request, from 0 on, and the progress of its run."""

OnFailure = Callable[[int, FailureReport], None]
"""Called with the number of a request, and the report of its run, which ended without a result."""

_CROWDED = "measurements share the device under this policy; their times are kept apart, and serve no other run"

Ending = RunReport | KintuneError
"""How a request ended: the report of its run, or the error that ended it."""


class Scheduling(msgspec.Struct, frozen=True):
    """How runs share the machine.

    `policy` is one of `kintune.scheduler.policies`; `bundling` is as in `kintune.scheduler.scheduler.RetryLimits`.
    With `pipelined`, a run whose device is not the host prepares its next round while one is measured.  Scheduling
    decisions are recorded in the file `log`, if it is given.
    `job_module` is the module that a job's process runs; benchmarks have their own.
    """

    policy: str = "predictive"
    bundling: bool = False
    pipelined: bool = True
    log: str | None = None
    job_module: str = "kintune.tuning.job.process"


def tune_all(
    requests: Sequence[TuneRequest],
    scheduling: Scheduling | None = None,
    on_progress: OnProgress | None = None,
    on_failure: OnFailure | None = None,
) -> list[Ending]:
    """Tune as requested; returns the result of each request, in order.  A failed request does not end the others.

    Ctrl-C ends the searches and keeps their results.

    Raises:
        InputError: the requests are inconsistent, or an input that they share cannot be used.
        StorageError: the records cannot be written (the runs can be resumed).
    """
    scheduling = scheduling or Scheduling()
    _check(requests, scheduling)
    require_tried_versions()
    first = requests[0]
    placement = choose_placement(first.device, first.threads)
    show = on_progress or _ignore
    requests = _check_inputs(requests, show)
    with Store.open(first.records) as store:
        if store.notice:
            _tell_all(show, requests, store.notice)

        def waiting(holder: str) -> None:
            _tell_all(show, requests, f"{WAITING} the cores, held by {holder}")
            _check_inputs(requests, show, exported=True)

        with holding(placement.cores, [gpu.index for gpu in placement.gpus], waiting):
            owner = "crowded" if POLICIES[scheduling.policy].overbooks else ""
            runs = [TuningRun(request, store, placement.site(), owner) for request in requests]
            try:
                _check_distinct(runs)
                _score_originals(runs, show)
                return _Driver(runs, store, placement, scheduling, show, on_failure or _ignore).run()
            finally:
                for tuning_run in runs:
                    if tuning_run.request.isolate:  # its folder is there from its beginning
                        tuning_run.discard()


class _Driver:
    """Runs some tuning runs in one engine."""

    def __init__(
        self,
        runs: Sequence[TuningRun],
        store: Store,
        placement: CorePlacement,
        scheduling: Scheduling,
        show: OnProgress,
        failed: OnFailure,
    ) -> None:
        self._runs = {tuning_run.run_id: tuning_run for tuning_run in runs}
        self._numbers = {tuning_run.run_id: number for number, tuning_run in enumerate(runs)}
        self._store = store
        self._placement = placement
        self._scheduling = scheduling
        self._show = show
        self._failed = failed
        self._isolation = _isolation(runs)

    def run(self) -> list[Ending]:
        runs, placement = list(self._runs.values()), self._placement
        log = runs[0].log
        log.parent.mkdir(parents=True, exist_ok=True)
        for tuning_run in runs:
            tuning_run.log = log
            self._show(self._numbers[tuning_run.run_id], _before_stages(tuning_run.request, "starting"))
        journal = TuningJournal(self._store, FEATURES)
        with (
            off_devices(placement),
            self._recording() as recording,
            self._engine(journal, log, recording.observe) as engine,
        ):
            about = msgspec.msgpack.decode(engine.about("device", placement.names[0]), type=DeviceDescription)
            if POLICIES[self._scheduling.policy].overbooks:
                about = about.crowded()
                _tell_all(self._show, [tuning_run.request for tuning_run in runs], _CROWDED)
            launches = [self._launch(tuning_run, journal, about) for tuning_run in runs]
            try:
                ends = engine.run(launches, on_progress=self._progressed, on_stage=journal.watch)
                return [self._conclude(tuning_run, ends) for tuning_run in runs]
            except KeyboardInterrupt:
                for tuning_run in runs:
                    tuning_run.interrupted()
                raise
            finally:
                for tuning_run in runs:
                    tuning_run.discard()

    def _recording(self) -> ScheduleLog:
        scheduling = self._scheduling
        names = {run_id: tuning_run.request.model.name for run_id, tuning_run in self._runs.items()}
        return ScheduleLog(scheduling.log, ScheduleHeader(scheduling.policy, scheduling.bundling, names))

    def _engine(self, journal: TuningJournal, log: Path, observe: Observe) -> LocalEngine:
        chosen = policy(self._scheduling.policy)
        target = next(iter(self._runs.values())).request.target
        commands = self._placement.commands(target)
        if self._isolation is not None:
            commands = {kind: each.confined_to(self._isolation.reading_only()) for kind, each in commands.items()}
        return LocalEngine(
            Scheduler(chosen, RetryLimits(bundling=self._scheduling.bundling)),
            journal,
            commands,
            self._placement.resources(),
            log=log,
            observe=observe,
            crowded=chosen.overbooks,
        )

    def _launch(self, tuning_run: TuningRun, journal: TuningJournal, about: DeviceDescription) -> JobLaunch:
        scheduling, host = self._scheduling, self._placement.host
        cores = max(1, len(host) // len(self._runs))  # so that several runs can use the host at once
        spec = tuning_run.open(about, cores=cores, pipelined=scheduling.pipelined)
        journal.enter(spec, about.compiler, use_known=not tuning_run.request.fresh)
        command = self._placement.on_host(scheduling.job_module)
        if tuning_run.confinement is not None:
            command = command.confined_to(tuning_run.confinement)
        encoded, priority = msgspec.msgpack.encode(spec), tuning_run.request.priority
        return JobLaunch(tuning_run.run_id, command, encoded, priority, repeats=REPEATED)

    def _conclude(self, tuning_run: TuningRun, ends: Mapping[str, JobEnd]) -> Ending:
        end = ends[tuning_run.run_id]
        try:
            return tuning_run.conclude(end)
        except KintuneError as error:
            if (report := tuning_run.failure(end, error)) is not None:
                self._failed(self._numbers[tuning_run.run_id], report)
            return error

    def _progressed(self, job: str, payload: bytes) -> None:
        self._show(self._numbers[job], msgspec.msgpack.decode(payload, type=ProgressReport))


def _isolation(runs: Sequence[TuningRun]) -> Confinement | None:
    """What the workers of all isolated runs may do together; None where no run is isolated.

    Raises:
        OrderError: this machine lacks what it takes.
    """
    isolated = [each for tuning_run in runs if (each := tuning_run.confinement) is not None]
    if not isolated:
        return None
    require_isolation()
    return Confinement(
        tuple(path for each in isolated for path in each.read), tuple(path for each in isolated for path in each.write)
    )


def _check(requests: Sequence[TuneRequest], scheduling: Scheduling) -> None:
    """Check the requests as far as possible before anything begins.

    Raises:
        InputError: there is no request, the policy does not exist or does not fit, or two outputs are equal.
    """
    if not requests:
        raise InputError("there is no model to tune")
    if policy(scheduling.policy).overbooks and len(requests) > 1 and requests[0].device == "cpu":
        raise InputError(
            f"policy {scheduling.policy!r} would measure on cores that other stages use; give the device its own: "
            "--device cpu:1"
        )
    outputs: dict[str, str] = {}
    for request in requests:
        if request.output in outputs:
            raise InputError(
                f"{request.model.name} and {outputs[request.output]} would both be written to {request.output}"
            )
        outputs[request.output] = request.model.name


def _check_inputs(requests: Sequence[TuneRequest], show: OnProgress, *, exported: bool = False) -> list[TuneRequest]:
    """Check the models and inputs of requests; `exported` is as in `check_inputs`.  Returns the requests.

    Isolated ones have in addition what is known of them by now (`checked_apart`).  Of several requests, those that are
    wrong are named, and fail when the others run.

    Raises:
        InputError: all are wrong; the error is that of the first.
    """
    wrong: list[KintuneError] = []
    checked = list(requests)
    for number, request in enumerate(requests):
        try:
            if request.isolate:
                checked[number] = checked_apart(request, exported=exported)
            else:
                check_inputs(request, exported=exported)
        except KintuneError as error:
            wrong.append(error)
            if len(requests) > 1:
                show(number, _before_stages(request, f"will fail: {error}"))
    if len(wrong) == len(requests):
        raise wrong[0]
    return checked


def _score_originals(runs: Sequence[TuningRun], show: OnProgress) -> None:
    """Compute the users' scores of the original models, of runs that have none yet.

    Raises:
        InputError: a user's function fails.
    """
    for number, tuning_run in enumerate(runs):

        def notify(phase: str, number: int = number) -> None:
            show(number, _before_stages(runs[number].request, phase))

        tuning_run.score_original(runs[0].log, notify)


def _check_distinct(runs: Sequence[TuningRun]) -> None:
    """Check that no two requests resume the same run.

    Raises:
        InputError: two of them do.
    """
    by_run: dict[str, TuningRun] = {}
    for tuning_run in runs:
        other = by_run.setdefault(tuning_run.run_id, tuning_run)
        if other is not tuning_run:
            raise InputError(
                f"{other.request.output} and {tuning_run.request.output} are the same work, which is running "
                "already; ask for it once"
            )


def _tell_all(show: OnProgress, requests: Sequence[TuneRequest], phase: str) -> None:
    for number, request in enumerate(requests):
        show(number, _before_stages(request, phase))


def _before_stages(request: TuneRequest, phase: str) -> ProgressReport:
    """The progress of a run whose job has not begun."""
    return ProgressReport(stage="prepare", phase=phase, trials_total=request.options.budgeted_trials)


def _ignore(number: int, report: ProgressReport | FailureReport) -> None:
    del number, report


def tune(request: TuneRequest, on_progress: Callable[[ProgressReport], None] | None = None) -> RunReport:
    """Tune as requested; Ctrl-C ends the search and keeps its results.

    Raises:
        InputError: the request, or an input that it names, cannot be used.
        JobFailed: the run ended without a result.
        NumericsError: the result does not compute what the model computes.
        StorageError: records or the result cannot be written; the same request resumes the run later.
    """
    show = None if on_progress is None else lambda _, report: on_progress(report)
    (ending,) = tune_all([request], on_progress=show)
    if isinstance(ending, KintuneError):
        raise ending
    return ending


class ScheduleLog:
    """Writes the events and decisions of the scheduler as they happen; without a path it writes nothing."""

    def __init__(self, path: str | None, header: ScheduleHeader) -> None:
        self._path = path
        self._header = header
        self._file: RawIOBase | None = None

    def __enter__(self) -> ScheduleLog:
        if self._path is not None:
            try:
                self._file = Path(self._path).open("wb", buffering=0)
                self._file.write(encode_line(self._header))
            except OSError as error:
                raise StorageError(f"{self._path}: cannot be written ({error.strerror})") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def observe(self, event: Event, decisions: Sequence[Decision]) -> None:
        """Write one step.  If that fails, the recording ends, not the run."""
        if self._file is None:
            return
        try:
            self._file.write(encode_line(RecordedStep(event, tuple(decisions))))
        except OSError:
            self._file.close()
            self._file = None
