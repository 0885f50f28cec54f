"""Brings jobs from queued to their ends: what the database wants is launched, what the engine says is written down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kintune.engine.job_run import JobEnd, JobEnding, JobLaunch
from kintune.engine.local import LocalEngine
from kintune.errors import KintuneError, OrderError
from kintune.front.journal import TuningJournal
from kintune.front.report import RunReport, StopReason
from kintune.front.ticket import Ticket
from kintune.job.payloads import StageName
from kintune.job.progress import ProgressReport
from kintune.service.calls import Calls
from kintune.service.content import Content
from kintune.service.docket import Docket, Job, PendingWish
from kintune.service.life import State, Wish
from kintune.service.logs import job_logger
from kintune.service.orchestrator.intake import Intake
from kintune.service.orchestrator.news import Changed, News, Progressed
from kintune.wire.messages import Work
from kintune.wire.reading import UNREADABLE

__all__ = ["Desk"]

_STATE_OF_STAGE = {
    StageName.PREPARE: State.CHECKING,
    StageName.SELECT: State.TUNING,
    StageName.UPDATE: State.TUNING,
    StageName.PROFILE: State.TUNING,
    StageName.CONFIRM: State.PACKAGING,
    StageName.PACKAGE: State.PACKAGING,
    StageName.PROVE: State.PACKAGING,
}
_WRITTEN_EVERY_S = 1.0
_ALREADY_MET = "already met by what is known"
_WORDS = {
    StopReason.TRIALS: "as many programs were measured as were asked for",
    StopReason.TIME: "its time was up",
    StopReason.TARGET_MET: "the target is met",
    StopReason.CONVERGED: "no gain is left to be expected",
    StopReason.INTERRUPTED: "finished as asked",
}


@dataclass
class _Underway:
    """A job that the engine has; `written_at` is when its progress was last written down."""

    job: Job
    ticket: Ticket | None
    state: State
    written_at: float = 0.0
    measured: bool = False


class Desk:
    """One orchestrator's jobs.  All methods are called in the engine's thread.

    `now` gives seconds since 1970, `publish` tells whoever listens, `log_of` has what a run's processes have said.
    """

    def __init__(
        self,
        docket: Docket,
        calls: Calls,
        content: Content,
        intake: Intake,
        engine: LocalEngine,
        journal: TuningJournal,
        *,
        at_once: int,
        now: Callable[[], float],
        publish: Callable[[News], None],
        log_of: Callable[[str], bytes],
    ) -> None:
        self._docket = docket
        self._calls = calls
        self._content = content
        self._intake = intake
        self._engine = engine
        self._journal = journal
        self._at_once = at_once
        self._now = now
        self._publish = publish
        self._log_of = log_of
        self._runs: dict[str, _Underway] = {}

    @property
    def jobs(self) -> list[str]:
        """The jobs that the engine has."""
        return [underway.job.id for underway in self._runs.values()]

    def job_of(self, run: str) -> str:
        """The job whose run this is; "" if it is over."""
        underway = self._runs.get(run)
        return "" if underway is None else underway.job.id

    def look_around(self) -> None:
        """See what is new in the database: wishes first, then jobs, as many as may be under way at once."""
        for wish in self._docket.wishes():
            self._grant(wish)
        have = set(self.jobs)
        for job in sorted(self._docket.under_way(), key=self._turn):
            if job.id in have or self._answer(job):
                continue
            if len(self._runs) >= self._at_once:
                return
            self._launch(job)

    # what the engine says -------------------------------------------------------------------------------------------

    def stage_began(self, run: str, work: Work) -> None:
        """A stage has its resources."""
        self._journal.watch(run, work)
        underway = self._runs[run]
        kind = work.stage.kind
        underway.measured = underway.measured or kind in (StageName.SELECT, StageName.PROFILE)
        state = _STATE_OF_STAGE.get(kind)
        if state is not None and state is not underway.state:
            met = state is State.PACKAGING and not underway.measured and underway.job.wanted.target_ms is not None
            with contextlib.suppress(OrderError):  # a stage done again after a death goes back to no earlier state
                self._step(underway, state, _ALREADY_MET if met else "")

    def progressed(self, run: str, payload: bytes) -> None:
        """A job says where it stands."""
        underway = self._runs[run]
        try:
            report = msgspec.msgpack.decode(payload, type=ProgressReport)
        except UNREADABLE:
            return  # it is only to be shown
        self._publish(Progressed(underway.job.id, report))
        now = self._now()
        if not 0 <= now - underway.written_at < _WRITTEN_EVERY_S:
            underway.written_at = now
            self._docket.progressed(underway.job.id, msgspec.json.encode(report).decode())

    def ended(self, run: str, end: JobEnd) -> None:
        """A job is over: write down what came of it, and look for the next."""
        underway = self._runs.pop(run)
        self._journal.leave(run)
        ticket = underway.ticket
        assert ticket is not None  # the engine has only what was launched
        if end.ending is JobEnding.CANCELLED:
            ticket.interrupted()
            self._step(underway, State.CANCELLED, end.cause)
        else:
            self._conclude(underway, ticket, end)
        self._intake.clean_up(underway.job)
        self.look_around()

    # inside ---------------------------------------------------------------------------------------------------------

    def _turn(self, job: Job) -> tuple[bool, float, float]:
        """Jobs that had begun come first, then who has waited longest, times its priority: so nobody waits for ever."""
        return (job.state is State.QUEUED, -(self._now() - job.created) * job.priority, job.created)

    def _answer(self, job: Job) -> bool:
        """Answer a job at once with the result of an earlier one that meets its target, if there is any."""
        target = job.wanted.target_ms
        if target is None or job.state is not State.QUEUED:
            return False
        for done in self._docket.like(job):
            report = self._report(done)
            if report is not None and report.latency_ms.tuned is not None and report.latency_ms.tuned <= target:
                underway = _Underway(job, None, job.state)
                self._step(underway, State.CHECKING, "")
                files = {"report": done.report, "executable": done.executable, "log": done.log}
                self._step(underway, State.DONE, f"{_ALREADY_MET} (the result of job {done.id})", **files)
                return True
        return False

    def _report(self, job: Job) -> RunReport | None:
        if job.report is None or not self._content.has(job.report) or not self._content.has(job.executable or ""):
            return None
        with self._content.open(job.report) as file:
            return msgspec.json.decode(file.read(), type=RunReport)

    def _launch(self, job: Job) -> None:
        try:
            about, ticket = self._intake.ticket(job, self._engine.devices)
            spec = ticket.open(about, cores=self._intake.cores, pipelined=True)
        except KintuneError as error:
            self._step(_Underway(job, None, job.state), State.FAILED, str(error))
            return
        underway = self._runs[ticket.run_id] = _Underway(job, ticket, job.state)
        self._step(underway, State.CHECKING, "", run_id=ticket.run_id)
        hidden = self._docket.hidden_from(job.owner)
        self._journal.enter(spec, about.compiler, use_known=True, hidden=hidden)
        command, home = self._intake.command, self._intake.home
        self._engine.add(JobLaunch(ticket.run_id, command, msgspec.msgpack.encode(spec), job.priority, home=home))

    def _grant(self, wish: PendingWish) -> None:
        run = next((run for run, underway in self._runs.items() if underway.job.id == wish.job), None)
        self._docket.granted(wish, self._now())
        if run is None:
            if wish.wish is Wish.CANCEL:
                with contextlib.suppress(OrderError):  # it is over already
                    with self._docket.together():
                        job = self._docket.step(wish.job, State.CANCELLED, "cancelled before it began", self._now())
                        self._calls.ask(job, self._now())
                    self._publish(Changed(wish.job, State.CANCELLED, job.reason))
            return
        match wish.wish:
            case Wish.CANCEL:
                self._engine.call_off(run, "cancelled")
            case Wish.FINISH:
                self._engine.finish(run, "asked to finish")
            case Wish.PRIORITY:
                self._engine.prioritize(run, wish.value or 1.0)

    def _conclude(self, underway: _Underway, ticket: Ticket, end: JobEnd) -> None:
        try:
            report = ticket.conclude(end)
        except KintuneError as error:
            self._step(underway, State.FAILED, str(error), log=self._keep_log(ticket))
            return
        known = not underway.measured and report.reason is StopReason.TARGET_MET
        reason = _ALREADY_MET if known else _WORDS[report.reason]
        self._step(underway, State.DONE, reason, **self._keep(report), log=self._keep_log(ticket))

    def _keep(self, report: RunReport) -> dict[str, str]:
        return {
            "report": self._content.put_bytes(msgspec.json.encode(report)),
            "executable": self._content.put(Path(report.output)),
        }

    def _keep_log(self, ticket: Ticket) -> str:
        return self._content.put_bytes(self._log_of(ticket.run_id))

    def _step(self, underway: _Underway, state: State, reason: str, **facts: str | None) -> None:
        now = self._now()
        with self._docket.together():
            underway.job = self._docket.step(underway.job.id, state, reason, now, **facts)
            if state.over:
                self._calls.ask(underway.job, now)
        underway.state = state
        job_logger(__name__, underway.job.id).info("%s%s", state.value, f": {reason}" if reason else "")
        self._publish(Changed(underway.job.id, state, reason))
