"""The page of one job: its speedup, curve, operators and downloads, kept up to date while it runs."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec
from nicegui import ui

from kintune.core.hybrid import Hybrid
from kintune.core.report import ProgressReport, RunReport
from kintune.errors import InputError, KintuneError
from kintune.hardware.gpu_target import is_gpu
from kintune.runtime.manifest import Manifest
from kintune.service.job_repository import Job, JobStep
from kintune.service.job_request import MOST_PRIORITY
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.orchestrator.engine_log import lines_of
from kintune.service.portal import job_parts as parts
from kintune.service.portal.charts import Curve, Line, curves
from kintune.service.portal.frame import (
    READ_ONLY,
    PageContext,
    Region,
    early_heading,
    keep_up_to_date,
    markup,
    page,
    telling,
)
from kintune.service.portal.job_words import headline, outlook_of, saved_progress, target_ms
from kintune.service.portal.markup import notice, tag, text
from kintune.service.portal.operators import families_of, manifests_in, operators_of
from kintune.service.portal.profile_part import profile_part
from kintune.terminal.comparison import describe_forecast, describe_untuned
from kintune.terminal.formatting import describe_effort, describe_failures

__all__ = ["JobView", "Outcome", "job_page", "outcome_of", "read_job", "report_of"]

_TAIL = 16_000  # bytes of the log that are shown


@page("/jobs/{job}", "Job")
async def job_page(context: PageContext, job: str) -> None:
    """Everything about one job, as it happens."""
    found, steps = await asyncio.to_thread(read_job, context, job)
    view = JobView(context, found)
    view.show(found, steps)
    early_heading(view.title)


def read_job(context: PageContext, job: str) -> tuple[Job, list[JobStep]]:
    """Returns what the page shows of a job from the database: the job and its steps.

    Raises:
        NotFound: there is no such job for the visitor.
        Unauthorized: nobody is signed in any more.
    """
    jobs = context.application.jobs
    found = jobs.get(context.visitor, job)
    return found, jobs.steps(found)


class Outcome(NamedTuple):
    """The outcome of a finished job; without `manifests` if its executable is gone or cannot be read."""

    report: RunReport
    manifests: tuple[Manifest, ...]
    size: int | None

    @property
    def hybrid(self) -> Hybrid | None:
        """What runs where, of a result that runs partly in onnxruntime."""
        return self.manifests[0].hybrid if self.manifests else None

    @property
    def has_exports(self) -> bool:
        """Whether it can be exported for programs without Kintune."""
        return bool(self.manifests) and not is_gpu(self.manifests[0].target)


def report_of(context: PageContext, job: Job) -> RunReport | None:
    """Returns the report of a job; None if it has none that this version can read."""
    if job.report is None:
        return None
    try:
        with context.application.blobs.open(job.report) as file:
            return msgspec.json.decode(file.read(), type=RunReport)
    except (KintuneError, msgspec.MsgspecError):
        return None


def outcome_of(context: PageContext, job: Job) -> Outcome | None:
    """The report of a job, and what its executable says of itself."""
    report = report_of(context, job)
    if report is None:
        return None
    manifests: tuple[Manifest, ...] = ()
    size = None
    try:
        if job.executable is not None:
            path = context.application.blobs.path(job.executable)
            manifests, size = manifests_in(path), path.stat().st_size
    except (KintuneError, OSError):
        pass  # the page says what the report knows
    return Outcome(report, manifests, size)


class JobView:
    """A job on the screen, brought up to date once a second until it is over; `title` is its headline."""

    def __init__(self, context: PageContext, job: Job) -> None:
        self._context = context
        self._job = job
        self._name = context.application.models.of_job(job.model).name
        self._may_submit = context.visitor.may_submit
        self._offered: tuple[bool, ...] | None = None
        self.title = self._name
        self._timer = keep_up_to_date(
            1.0, lambda: read_job(context, job.id), lambda read: self.show(*read), active=not job.state.over
        )
        self._head = Region()
        self._stand = Region("", "card")
        with ui.element("div").classes("line") as self._buttons:
            pass
        self._problem = Region("", "stack")
        self._chart = Region()
        self._result = Region("", "stack")
        self._foot = Region("", "card stack")
        ui.page_title(f"{self._name} · Kintune")

    def show(self, job: Job, steps: list[JobStep]) -> None:
        """Show the job as it is now."""
        self._job = job
        self._offer()
        if job.state.over:
            self._timer.deactivate()
            self._conclude()
        else:
            self._show_search()
        self._foot.show(self._history(steps))

    def _show_search(self) -> None:
        job, live_state = self._job, self._context.live_state
        running = live_state.running(job.id)
        doing = ", ".join(f"{stage.kind} on {stage.placement.device or stage.placement.host}" for stage in running)
        report = live_state.progress(job.id) or saved_progress(job)
        self._title(report)
        self._stand.show(parts.stand(job, "" if report is None else describe_effort(report), doing, job.wanted.device))
        if report is None:
            self._chart.show(_card(tag("p", "The curve begins with the first measurement.", class_="faint")))
            return
        drawn = self._curve(
            Curve(self._name, live_state.curve(job.id) or _one_point(report), report.elapsed_s),
            [Line(name, ms) for name, ms in report.baselines.items()],
            report.target_ms,
            report.elapsed_s,
        )
        self._chart.show(drawn or _card(tag("p", "The curve begins with the first measurement.", class_="faint")))
        details = "; ".join(filter(None, (describe_untuned(report), describe_failures(report))))
        said = tag("p", text(f"Details: {details}"), class_="faint small") if details else ""
        self._result.show(parts.families_under_way(report.families) + said)

    def _title(self, report: ProgressReport | None) -> None:
        job = self._job
        fastest = job.fastest_baseline if job.state.over or report is None else report.fastest_baseline
        said, kind = outlook_of(fastest)
        if said and not job.state.over:
            said = f"so far {said}"
        under = tag("p", text(said), class_=kind) if said else ""
        if report is not None and not job.state.over and (foretold := describe_forecast(report)):
            under += tag("p", text(f"{foretold[0].upper()}{foretold[1:]}"), class_="faint")
        self.title = headline(self._name, job, report)
        self._head.show(tag("h1", text(self.title)) + under)

    def _curve(self, curve: Curve, lines: list[Line], target: float | None, now: float | None) -> str:
        if target is not None:
            lines = [*lines, Line("target", target)]
        picture = curves([curve], lines, now)
        return _card(tag("h2", "Best latency over the time of tuning") + picture) if picture else ""

    def _conclude(self) -> None:
        job = self._job
        self._title(None)
        said = job.reason if job.state is JobStatus.DONE else ""  # else it is said below
        self._stand.show(parts.stand(job, said, "", job.wanted.device))
        self._problem.show(parts.failures(job) + parts.removed_files(job, self._name))
        outcome = outcome_of(self._context, job)
        if outcome is None:
            self._chart.show("")
            self._result.show(
                notice("Its report was deleted, or was written by another version.") if job.report is not None else ""
            )
            return
        report = outcome.report
        lines = report.baselines_before_ms or report.latency_ms.rivals
        self._chart.show(
            self._curve(
                Curve(self._name, [(point.seconds, point.latency_ms) for point in report.curve], report.seconds),
                [Line(name, ms) for name, ms in sorted(lines.items(), key=lambda item: item[1])],
                target_ms(job, report),
                None,
            )
        )
        operators = operators_of(report, outcome.manifests)
        found = [
            tag("div", parts.result_facts(report, outcome.hybrid) + parts.latencies(report), class_="grid"),
            parts.downloads(job, self._name, outcome.size, has_exports=outcome.has_exports, hybrid=outcome.hybrid)
            if job.executable is not None
            else "",
            "" if report.profile is None else profile_part(report.profile, job.id),
            parts.operators_table(operators, is_profiled=report.profile is not None),
            parts.families_map(families_of(operators)),
            parts.where_part(outcome.hybrid),
        ]
        self._result.show("".join(found))

    def _history(self, steps: list[JobStep]) -> str:
        job = self._job
        tail, is_cut = "", False
        if job.log is not None:
            try:
                path = self._context.application.blobs.path(job.log)
                tail, is_cut = _end_of(path.read_bytes())
            except (KintuneError, OSError):
                tail = "The log was deleted."
        said = parts.history(steps)
        return said + parts.log_part(job, tail, is_cut=is_cut) + tag("p", f"Job {job.id}", class_="faint small mono")

    def _offer(self) -> None:
        """Shows the buttons for what can be done with the job in its state."""
        job = self._job
        can_finish, can_delete = job.state is JobStatus.TUNING, job.state.over and job.has_files
        offered = (job.state.over, can_finish, can_delete)
        if self._offered == offered:
            return
        self._offered = offered
        self._buttons.clear()
        with self._buttons:
            if not self._may_submit:
                markup(tag("p", READ_ONLY, class_="faint small"))
            elif job.state.over:
                if job.state is not JobStatus.DONE:
                    _button("Try again", self._retry, "main")
                _button("New job with this model", lambda: ui.navigate.to(f"/new?model={job.model}"))
            else:
                self._offer_commands(can_finish=can_finish)
            if job.state is JobStatus.DONE:
                _button("Compare with others", lambda: ui.navigate.to(f"/compare?job={job.id}"))
            if self._may_submit and can_delete:
                _button("Delete its files", self._ask_before_deleting, "danger")

    def _offer_commands(self, *, can_finish: bool) -> None:
        """What can be done with a job that is not over."""
        if can_finish:
            _button("Finish with the best result", lambda: self._command(JobCommand.FINISH))
        _button("Cancel", lambda: self._command(JobCommand.CANCEL), "danger")
        field = ui.number("Priority", value=self._job.priority, min=0.01, max=MOST_PRIORITY)
        field.props("outlined dense stack-label").classes("short").mark("priority")
        field.on("change", lambda: self._command(JobCommand.PRIORITY, field.value))

    def _command(self, kind: JobCommand, value: float | None = None) -> None:
        with telling():
            if kind is JobCommand.PRIORITY and not 0 < (value or 0) <= MOST_PRIORITY:
                raise InputError(f"a priority is more than 0, and at most {MOST_PRIORITY:g}")
            asked = (self._context.submitter, self._context.address, self._job.id, kind, value)
            self._context.use_cases.command(*asked)
            ui.notify("The service has accepted the request.")

    def _retry(self) -> None:
        with telling():
            new, _ = self._context.use_cases.retry(self._context.submitter, self._context.address, self._job.id)
            ui.navigate.to(f"/jobs/{new.id}")

    def _ask_before_deleting(self) -> None:
        """Offers to delete the files for good, or to keep them, in place of the buttons."""
        self._buttons.clear()
        with self._buttons:
            markup(tag("p", "The executable and the log cannot be restored; the report stays."))
            _button("Delete them for good", self._delete_files, "danger")
            _button("Keep them", self._keep_files)

    def _keep_files(self) -> None:
        self._offered = None
        self._offer()

    def _delete_files(self) -> None:
        with telling():
            self._context.use_cases.delete_files(self._context.submitter, self._context.address, self._job.id)
            self.show(*read_job(self._context, self._job.id))


def _button(words: str, do: object, kind: str = "") -> None:
    ui.button(words, on_click=do, color=None).props("unelevated no-caps").classes(f"button {kind}")  # type: ignore[arg-type]


def _card(content: str) -> str:
    return tag("section", content, class_="card")


def _one_point(report: ProgressReport) -> list[tuple[float, float]]:
    """Returns the latest point of a curve that this process has not followed; nothing without an estimate."""
    return [] if report.best_ms is None else [(report.elapsed_s, report.best_ms)]


def _end_of(log: bytes) -> tuple[str, bool]:
    """The end of a log in whole lines, and whether there is more before it."""
    is_cut = len(log) > _TAIL
    shown = log[-_TAIL:].partition(b"\n")[2] if is_cut else log
    return "\n".join(lines_of(shown.decode(errors="replace"))), is_cut
