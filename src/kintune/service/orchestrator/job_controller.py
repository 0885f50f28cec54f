"""The controller of jobs: launches what the database asks for, and records there what the engine reports."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from kintune.core.latency_target import UNTUNED_NETWORK, LatencyTarget, parse_target
from kintune.core.messages import Work
from kintune.core.report import ProgressReport, RunReport, StopReason
from kintune.core.stage_results import StageName
from kintune.errors import InputError, KintuneError, OrderError, StorageError
from kintune.service.blob_store import BlobStore
from kintune.service.job_repository import Job, JobRepository, PendingCommand, gain_columns
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.logs import job_logger
from kintune.service.orchestrator.engine_log import EngineLog
from kintune.service.orchestrator.events import Changed, News, Progressed
from kintune.service.orchestrator.run_factory import RunFactory
from kintune.service.webhooks import Webhooks
from kintune.tuning.front.journal import TuningJournal
from kintune.tuning.front.tuning_run import TuningRun
from kintune.tuning.job.outcomes import REPEATED
from kintune.wire.channel import UNREADABLE
from kintune.workers.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.workers.engine.local import LocalEngine

__all__ = ["JobController"]
_STATE_OF_STAGE = {
    StageName.PREPARE: JobStatus.CHECKING,
    StageName.DRAFT: JobStatus.CHECKING,
    StageName.CHECK: JobStatus.CHECKING,
    StageName.BASELINE: JobStatus.CHECKING,
    StageName.SELECT: JobStatus.TUNING,
    StageName.UPDATE: JobStatus.TUNING,
    StageName.PROFILE: JobStatus.TUNING,
    StageName.CONFIRM: JobStatus.PACKAGING,
    StageName.PRECISION: JobStatus.PACKAGING,
    StageName.ERROR: JobStatus.PACKAGING,
    StageName.PACKAGE: JobStatus.PACKAGING,
    StageName.PROVE: JobStatus.PACKAGING,
}
_WRITTEN_EVERY_S = 1.0
_WAITS_FOR = "waits for a device of type"
_WAITS_FOR_CORES = "waits for free cores: other jobs use them"
_ALREADY_MET = "already met by what is known"
_WORDS = {
    StopReason.TRIALS: "as many programs were measured as were asked for",
    StopReason.TIME: "its time was up",
    StopReason.TARGET_MET: "the target is met",
    StopReason.CONVERGED: "no gain is left to be expected",
    StopReason.INTERRUPTED: "finished as asked",
    StopReason.COMPILED: "compiled as asked, without a search",
}


@dataclass
class _Underway:
    """A job that the engine has; `written_at` is when its progress was last recorded.  It has `begun` a stage or not.

    The output of its processes begins after `said_before` bytes of the engine's log.
    """

    job: Job
    tuning_run: TuningRun | None
    state: JobStatus
    written_at: float = 0.0
    begun: bool = False
    measured: bool = False
    said_before: int = 0


_Facts: TypeAlias = dict[str, str | float | None]


class _Conclusion(NamedTuple):
    """What is to be recorded of a run that is over: the state of its job, why, and its files and times."""

    state: JobStatus
    reason: str
    facts: _Facts


def _meets(report: RunReport, target: LatencyTarget) -> bool:
    """Whether a result takes no longer than the target with each of its combinations of shapes."""
    for each in report.combinations or (report,):
        times = each.latency_ms
        untuned = {} if times.untuned is None else {UNTUNED_NETWORK: times.untuned}
        most = target.milliseconds({**times.rivals, **untuned})
        if times.tuned is None or most is None or times.tuned > most:
            return False
    return True


def _cause_of(error: Exception, job: Job, what: str) -> str:
    """Returns why a job failed, in a line; an internal error is logged with its traceback."""
    if isinstance(error, KintuneError):
        return str(error)
    job_logger(__name__, job.id).error(what, exc_info=error)
    return f"internal error: {error!r}"


class JobController:
    """The jobs of one orchestrator.  All methods are called in the engine's thread.

    `now` gives seconds since 1970, `publish` sends events to listeners, `log` holds the output of runs' processes.
    `aside` does what rewrites and copies large files, at once or in another thread.
    """

    def __init__(
        self,
        jobs: JobRepository,
        webhooks: Webhooks,
        blobs: BlobStore,
        factory: RunFactory,
        engine: LocalEngine,
        journal: TuningJournal,
        *,
        at_once: int,
        now: Callable[[], float],
        publish: Callable[[News], None],
        log: EngineLog,
        aside: Callable[[Callable[[], None]], object],
    ) -> None:
        self._jobs = jobs
        self._webhooks = webhooks
        self._blobs = blobs
        self._factory = factory
        self._engine = engine
        self._journal = journal
        self._at_once = at_once
        self._now = now
        self._publish = publish
        self._log = log
        self._aside = aside
        self._runs: dict[str, _Underway] = {}
        self._unanswered: set[str] = set()  # jobs for which no earlier result serves

    @property
    def jobs(self) -> list[str]:
        """The jobs that the engine has."""
        return [underway.job.id for underway in self._runs.values()]

    def job_of(self, run: str) -> str:
        """The job whose run this is; "" if it is over."""
        underway = self._runs.get(run)
        return "" if underway is None else underway.job.id

    def look_around(self) -> None:
        """Reads what is new in the database: pending commands, then jobs, as many as may run at once.

        A command is open until its job is over, so that an orchestrator started after this one carries it out as well.
        The engine accepts the same command twice.
        """
        commands = self._jobs.pending_commands()
        going: dict[str, Job] = {job.id: job for job in self._jobs.under_way()} if commands else {}
        for command in commands:
            self._carry_out(command, going)
        self._launch_more()
        for command in commands:
            run = self._run_of(command.job)
            if command.command is JobCommand.FINISH and run is not None:
                self._engine.finish(run, "asked to finish")

    # what the engine says -------------------------------------------------------------------------------------------

    def stage_began(self, run: str, work: Work) -> None:
        """A stage has its resources."""
        self._journal.watch(run, work)
        underway = self._runs[run]
        underway.begun = True
        kind = work.stage.kind
        underway.measured = underway.measured or kind in (StageName.SELECT, StageName.PROFILE)
        state = _STATE_OF_STAGE.get(kind)
        if state is not None and state is not underway.state:
            met = state is JobStatus.PACKAGING and not underway.measured and underway.job.wanted.until is not None
            with contextlib.suppress(OrderError):  # a stage that is repeated after a crash leads to no earlier state
                self._step(underway, state, _ALREADY_MET if met else "")
        elif underway.job.reason == _WAITS_FOR_CORES:
            self._step(underway, underway.state, "")

    def stage_waits(self, run: str) -> None:
        """A stage of this run is ready, and there is no room for it; said of jobs that have not begun any."""
        underway = self._runs.get(run)
        if underway is not None and not underway.begun and not underway.job.reason:
            self._step(underway, underway.state, _WAITS_FOR_CORES)

    def progressed(self, run: str, payload: bytes) -> None:
        """Records and publishes the progress of a run."""
        underway = self._runs[run]
        try:
            report = msgspec.msgpack.decode(payload, type=ProgressReport)
        except UNREADABLE:
            return  # it is only to be shown
        self._publish(Progressed(underway.job.id, report))
        now = self._now()
        if not 0 <= now - underway.written_at < _WRITTEN_EVERY_S:
            underway.written_at = now
            self._jobs.progressed(underway.job.id, report)

    def ended(self, run: str, end: JobEnd) -> None:
        """Publishes the result of a run that is over, aside; then it is recorded, and the next job looked for."""
        underway = self._runs[run]
        self._journal.leave(run)
        tuning_run = underway.tuning_run
        assert tuning_run is not None  # the engine has only what was launched

        def conclude() -> None:
            try:
                conclusion: _Conclusion | Exception = self._conclude(underway, tuning_run, end)
            except Exception as error:  # the engine's thread is to end with it
                conclusion = error
            self._engine.post(lambda: self._concluded(run, conclusion))

        self._aside(conclude)

    # inside ---------------------------------------------------------------------------------------------------------

    def _turn(self, job: Job, under_way: Counter[int]) -> tuple[bool, int, float, float]:
        """The sort key of jobs: those that had begun come first, then those of the owners who have fewest `under_way`.

        Among these, waiting time multiplied by priority decides.
        """
        is_queued = job.state is JobStatus.QUEUED
        return (is_queued, under_way[job.owner], -(self._now() - job.created) * job.priority, job.created)

    def _answer(self, job: Job) -> bool:
        """Answers a job with the result of an earlier one that meets its target; returns whether there was one."""
        if job.wanted.until is None or job.state is not JobStatus.QUEUED or job.id in self._unanswered:
            return False
        target = parse_target(job.wanted.until)
        for done in self._jobs.like(job):
            report = self._report(done)
            if report is not None and _meets(report, target):
                underway = _Underway(job, None, job.state)
                self._step(underway, JobStatus.CHECKING, "")
                files = {"report": done.report, "executable": done.executable, "log": done.log}
                size = done.executable_size
                gain = gain_columns(report.latency_ms.tuned, report.latency_ms.fastest_baseline)
                self._step(
                    underway,
                    JobStatus.DONE,
                    f"{_ALREADY_MET} (the result of job {done.id})",
                    **files,
                    executable_size=size,
                    **gain,
                )
                return True
        self._unanswered.add(job.id)
        return False

    def _report(self, job: Job) -> RunReport | None:
        files = (job.report, job.executable, job.log)  # the web may take them from that job meanwhile
        if job.report is None or not all(self._blobs.renew(file) for file in files if file is not None):
            return None
        try:
            with self._blobs.open(job.report) as file:
                return msgspec.json.decode(file.read(), type=RunReport)
        except UNREADABLE:  # another version has written it
            return None

    def _launch_more(self) -> None:
        """Launches jobs whose devices are there, as many as may run at once; says of the others what they wait for.

        Runs whose devices are away take no slot: they can do nothing until one is back.  One of several users leaves
        the last slot to others.
        """
        have, under_way, usable = set(self.jobs), self._jobs.under_way(), self._engine.devices
        devices = {job.wanted.device for job in under_way}
        away = {device for device in devices if self._factory.is_away(device, usable)}
        for underway in self._runs.values():
            waits_for, said = self._waits_for(underway.job, away), underway.job.reason
            if said != waits_for and (waits_for or said.startswith(_WAITS_FOR)):
                self._step(underway, underway.state, waits_for)
        most = max(1, self._at_once - self._jobs.have_several_users())
        taken = Counter(run.job.owner for run in self._runs.values() if run.job.wanted.device not in away)
        for job in sorted(under_way, key=lambda job: self._turn(job, taken)):
            if job.id in have or self._answer(job) or self._settle(job):
                continue
            waits_for = self._waits_for(job, away) or self._waits_for_slot(taken, job.owner, most)
            if not waits_for:
                self._launch(job)
                taken[job.owner] += job.id in self.jobs
                continue
            if job.state is JobStatus.QUEUED and job.reason != waits_for:
                self._step(_Underway(job, None, job.state), job.state, waits_for)

    def _waits_for(self, job: Job, away: Collection[str]) -> str:
        """Which type of devices a job waits for, and why there is none; "" if there is one."""
        device = job.wanted.device
        if device not in away:
            return ""
        cause = self._engine.why_no_device(device)
        return f"{_WAITS_FOR} {device}{cause and f' ({cause})'}"

    def _waits_for_slot(self, taken: Counter[int], owner: int, most: int) -> str:
        """Which jobs must end before one of this owner begins, who may have `most` under way; "" if none must."""
        if taken.total() >= self._at_once:
            return f"waits until one of the jobs under way ends; {self._at_once} may be under way at once"
        if taken[owner] >= most:
            return f"waits until another job of yours ends; {most} of one user may be under way at once"
        return ""

    def _settle(self, job: Job) -> bool:
        """Records the result of a run that was over before this orchestrator began; returns whether there was one."""
        if job.run_id is None:
            return False
        underway = _Underway(job, None, job.state)
        underway.measured = any(step.state is JobStatus.TUNING for step in self._jobs.steps(job))
        try:
            report = self._factory.came_of(job)
        except StorageError:
            raise
        except KintuneError as error:
            self._record(underway, self._failure(underway, str(error), job.run_id))
            return True
        if report is None:
            return False
        self._record(underway, self._success(underway, report, job.run_id))
        return True

    def _launch(self, job: Job) -> None:
        underway = _Underway(job, None, job.state, said_before=self._log.size if job.run_id is None else 0)
        try:
            about, tuning_run = self._factory.tuning_run(job, self._engine.devices)
            spec = tuning_run.open(about, cores=self._factory.cores, pipelined=True)
        except StorageError:
            raise
        except Exception as error:  # a fault of ours must not keep all other jobs from running
            cause = self._factory.readable(job, _cause_of(error, job, "cannot be launched"))
            self._step(underway, JobStatus.FAILED, cause, refused=isinstance(error, InputError))
            self._factory.clean_up(job)
            return
        underway.tuning_run = tuning_run
        self._runs[tuning_run.run_id] = underway
        self._step(underway, JobStatus.CHECKING, "", run_id=tuning_run.run_id)
        self._journal.enter(spec, about.compiler, use_known=True, hidden=lambda: self._jobs.hidden_from(job.owner))
        command, home = self._factory.command, self._factory.home
        encoded = msgspec.msgpack.encode(spec)
        launch = JobLaunch(
            tuning_run.run_id, command, encoded, job.priority, home=home, files=spec.files, output=spec.output,
            repeats=REPEATED, limits=self._factory.limits(job),
            confinement=tuning_run.confinement,
        )  # fmt: skip
        self._engine.add(launch)

    def _run_of(self, job: str) -> str | None:
        return next((run for run, underway in self._runs.items() if underway.job.id == job), None)

    def _carry_out(self, command: PendingCommand, going: dict[str, Job]) -> None:
        """Carries out a command that does not need the job to be launched.

        A job that is cancelled before it was launched is removed from `going`.
        """
        job, run = going.get(command.job), self._run_of(command.job)
        if job is None or command.command is JobCommand.PRIORITY:
            self._jobs.close_command(command, self._now())
        if job is None or command.command is JobCommand.FINISH:
            return
        if command.command is JobCommand.PRIORITY:
            if run is not None:
                self._engine.prioritize(run, command.value or 1.0)
        elif run is not None:
            self._engine.call_off(run, "cancelled")
        else:
            reason = "cancelled before it began" if job.state is JobStatus.QUEUED else "cancelled"
            self._step(_Underway(job, None, job.state), JobStatus.CANCELLED, reason)
            self._factory.clean_up(going.pop(job.id))

    def _concluded(self, run: str, conclusion: _Conclusion | Exception) -> None:
        if isinstance(conclusion, Exception):
            raise conclusion
        self._record(self._runs.pop(run), conclusion)
        self.look_around()

    def _record(self, underway: _Underway, conclusion: _Conclusion) -> None:
        self._step(underway, conclusion.state, conclusion.reason, **conclusion.facts)
        self._factory.clean_up(underway.job)

    def _conclude(self, underway: _Underway, tuning_run: TuningRun, end: JobEnd) -> _Conclusion:
        if end.ending is JobEnding.CANCELLED:
            tuning_run.interrupted()
            return _Conclusion(JobStatus.CANCELLED, end.cause, {"log": self._keep_log(underway, tuning_run.run_id)})
        try:
            report = tuning_run.conclude(end)
        except StorageError:  # the next orchestrator goes on from here
            raise
        except Exception as error:  # as in `_launch`
            cause, refused = _cause_of(error, underway.job, "cannot be concluded"), isinstance(error, InputError)
            return self._failure(underway, cause, tuning_run.run_id, refused=refused)
        return self._success(underway, report, tuning_run.run_id)

    def _failure(self, underway: _Underway, cause: str, run: str, *, refused: bool = False) -> _Conclusion:
        facts: _Facts = {"log": self._keep_log(underway, run), "refused": refused}
        return _Conclusion(JobStatus.FAILED, self._factory.readable(underway.job, cause), facts)

    def _success(self, underway: _Underway, report: RunReport, run: str) -> _Conclusion:
        known = not underway.measured and report.reason is StopReason.TARGET_MET
        reason = _ALREADY_MET if known else _WORDS[report.reason]
        output = Path(report.output)
        shown = msgspec.structs.replace(report, output=output.name, log=None)  # users are not told paths of the service
        facts: _Facts = {
            "report": self._blobs.put_bytes(msgspec.json.encode(shown)),
            "executable_size": output.stat().st_size,
            "executable": self._blobs.keep(output),
            "log": self._keep_log(underway, run),
            **gain_columns(report.latency_ms.tuned, report.latency_ms.fastest_baseline),
        }
        return _Conclusion(JobStatus.DONE, reason, facts)

    def _keep_log(self, underway: _Underway, run: str) -> str:
        said = self._log.of(run, underway.said_before).decode(errors="replace")
        return self._blobs.put_bytes(self._factory.readable(underway.job, said).encode())

    def _step(self, underway: _Underway, state: JobStatus, reason: str, **facts: str | float | None) -> None:
        now = self._now()
        with self._jobs.together():
            underway.job = self._jobs.step(underway.job.id, state, reason, now, **facts)
            if state.over:
                self._webhooks.ask(underway.job, now)
        underway.state = state
        if state is JobStatus.DONE:
            self._unanswered.clear()
        job_logger(__name__, underway.job.id).info("%s%s", state.value, f": {reason}" if reason else "")
        self._publish(Changed(underway.job.id, state, reason))
