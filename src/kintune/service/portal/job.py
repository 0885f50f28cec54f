"""The page of one job: its speedup, curve, operators and downloads, kept up to date while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from kintune.core.report import FastestBaseline, ProgressReport
from kintune.errors import InputError, KintuneError
from kintune.service.job_repository import Job, JobStep
from kintune.service.job_request import MOST_PRIORITY
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.orchestrator.engine_log import lines_of
from kintune.service.portal import job_parts as parts
from kintune.service.portal.charts import Curve, Line, curves
from kintune.service.portal.frame import (
    READ_ONLY,
    PageContext,
    PageRegion,
    early_heading,
    keep_up_to_date,
    markup,
    page,
    telling,
)
from kintune.service.portal.gantt import STAGE_KINDS
from kintune.service.portal.job_words import headline, outlook_of, saved_progress, target_ms
from kintune.service.portal.markup import name, notice, tag, text
from kintune.service.portal.operators import families_of, operators_of
from kintune.service.portal.outcomes import outcome_of
from kintune.service.portal.profile_part import profile_part
from kintune.service.webhook_outcome import WebhookOutcome
from kintune.service.webhooks import Webhooks
from kintune.terminal.comparison import describe_forecast
from kintune.terminal.formatting import describe_effort, describe_failures

__all__ = ["JobView", "job_page", "read_job"]

_TAIL = 16_000  # bytes of the log that are shown


@page("/jobs/{job}", "Job")
async def job_page(context: PageContext, job: str) -> None:
    """Everything about one job, as it happens."""
    read = await asyncio.to_thread(read_job, context, job)
    view = JobView(context, read[0])
    view.show(*read)
    early_heading(view.title)


def read_job(context: PageContext, job: str) -> tuple[Job, list[JobStep], list[WebhookOutcome]]:
    """Returns what the page shows of a job from the database: the job, its steps, and the calls of its webhook.

    Raises:
        NotFound: there is no such job for the visitor.
        Unauthorized: nobody is signed in any more.
    """
    jobs = context.application.jobs
    found = jobs.get(context.visitor, job)
    called = found.state.over and found.wanted.webhook is not None
    return found, jobs.steps(found), Webhooks(context.application.database).of_job(found.id) if called else []


class JobView:
    """A job on the screen, brought up to date once a second until it is over; `title` is its headline."""

    def __init__(self, context: PageContext, job: Job) -> None:
        self._context = context
        self._job = job
        self._name = context.application.models.of_job(job.model).name
        self._may_submit = context.visitor.may_submit
        self._offered: tuple[bool, ...] | None = None
        self._concluded: Job | None = None
        self.title = self._name
        self._timer = keep_up_to_date(1.0, lambda: read_job(context, job.id), lambda read: self.show(*read))
        self._head = PageRegion("", "stack")
        self._stand = PageRegion("", "card")
        self._problem = PageRegion("", "stack")
        with ui.element("div").classes("line") as self._buttons:
            pass
        self._chart = PageRegion()
        self._result = PageRegion("", "stack")
        self._calls = PageRegion()
        self._foot = PageRegion("", "card stack")
        ui.page_title(f"{self._name} · Kintune")

    def show(self, job: Job, steps: Sequence[JobStep], calls: Sequence[WebhookOutcome]) -> None:
        """Show the job as it is now."""
        is_new, self._job = job != self._concluded, job
        self._offer()
        if not job.state.over:
            self._show_search()
        elif is_new:
            self._concluded = job
            self._conclude()
        if job.state.over and not any(call.due for call in calls):
            self._timer.deactivate()
        self._calls.show(parts.webhook_part(calls))
        self._foot.show(self._history(steps))

    def _show_search(self) -> None:
        job, live_state = self._job, self._context.live_state
        running = live_state.running(job.id)
        doing = ", ".join(
            f"{STAGE_KINDS[stage.kind].words if stage.kind in STAGE_KINDS else stage.kind} on "
            f"{stage.placement.device or stage.placement.host}"
            for stage in running
        )
        report = live_state.progress(job.id) or saved_progress(job)
        self._title(report, job.fastest_baseline if report is None else report.fastest_baseline)
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
        details = describe_failures(report)
        said = tag("p", text(details), class_="faint small") if details else ""
        self._result.show(parts.families_under_way(report.families) + said)

    def _title(self, report: ProgressReport | None, fastest: FastestBaseline | None, flags: str = "") -> None:
        said, kind = outlook_of(fastest)
        kind = "" if flags else kind
        if report is not None and kind:
            said = f"so far {said}"
        under = tag("p", text(said), class_=kind) if said else ""
        if report is not None and (foretold := describe_forecast(report)):
            under += tag("p", text(f"{foretold[0].upper()}{foretold[1:]}"), class_="faint")
        self.title = headline(self._name, self._job, report)
        self._head.show(tag("div", tag("h1", name(self.title)) + under) + flags)

    def _curve(self, curve: Curve, lines: list[Line], target: float | None, now: float | None) -> str:
        if target is not None:
            lines = [*lines, Line("target", target)]
        picture = curves([curve], lines, now)
        return _card(tag("h2", "Estimated latency over the time of tuning") + picture) if picture else ""

    def _conclude(self) -> None:
        job, outcome = self._job, outcome_of(self._context, self._job)
        fastest = job.fastest_baseline if job.state is JobStatus.DONE else None
        if outcome is not None:
            fastest = outcome.report.fastest_baseline or fastest
        self._title(None, fastest, "" if outcome is None else parts.flags(outcome.report))
        said = job.reason if job.state is JobStatus.DONE else ""  # else it is said below
        self._stand.show(parts.stand(job, said, "", job.wanted.device))
        self._problem.show(parts.failures(job, _measured(job)) + parts.removed_files(job, self._name))
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

    def _history(self, steps: Sequence[JobStep]) -> str:
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
                self._offer_what_follows()
            else:
                self._offer_commands(can_finish=can_finish)
            if job.state is JobStatus.DONE:
                _button("Compare with others", lambda: ui.navigate.to(f"/compare?job={job.id}"))
            if self._may_submit and can_delete:
                _button("Delete its files", self._ask_before_deleting, "danger")

    def _offer_what_follows(self) -> None:
        """What can be done after a job is over; first what is likely to lead to a result."""
        job = self._job
        again = f"/new?model={job.model}&like={job.id}"
        if job.state is JobStatus.DONE:
            if job.executable is not None:
                markup(parts.download_link(job, self._name))
            _button("New job with this model", lambda: ui.navigate.to(again))
            return
        retry = ("Try again", self._retry)
        change = ("Change the request", lambda: ui.navigate.to(again))
        for number, (words, do) in enumerate((change, retry) if job.refused else (retry, change)):
            _button(words, do, "" if number else "main")

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


def _measured(job: Job) -> int:
    """How many programs it has measured, as far as that was written down."""
    report = saved_progress(job)
    return 0 if report is None else report.trials


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
