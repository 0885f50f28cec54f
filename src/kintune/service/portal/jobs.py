"""The pages of the list of jobs and of one job: its state, its curve and its report."""

from __future__ import annotations

import msgspec
from nicegui import ui

from kintune.core.latency_target import UNTUNED_NETWORK, parse_target
from kintune.core.report import FamilyProgress, ProgressReport, RunReport
from kintune.service.job_repository import Job
from kintune.service.job_status import JobCommand, JobStatus
from kintune.service.portal.charts import curve_options, family_options
from kintune.service.portal.frame import STATE_COLORS, PageContext, moment, page, telling
from kintune.terminal.comparison import describe_estimate, describe_result, describe_untuned
from kintune.terminal.formatting import (
    describe_effort,
    describe_failures,
    duration,
    milliseconds,
    times,
)

__all__ = ["home_page", "job_page", "report_of"]
_A_PAGE = 25
_REDRAWN_S = 10.0  # of the job's time, if nothing gets better


@page("/", "Your jobs")
async def home_page(context: PageContext) -> None:
    """The latest jobs with where they stand; the next page on demand."""
    with ui.row().classes("w-full"):
        ui.button("New job", icon="add", on_click=lambda: ui.navigate.to("/models")).mark("new-job")
    table = ui.column().classes("w-full gap-1")
    shown: list[Job] = []

    def more() -> None:
        before = (shown[-1].created, shown[-1].id) if shown else None
        found = context.application.jobs.page(context.visitor, before=before, limit=_A_PAGE)
        shown.extend(found)
        with table:
            for job in found:
                _row(context, job)
        button.set_visibility(len(found) == _A_PAGE)

    button = ui.button("Older ones", on_click=more).props("flat")
    more()
    if not shown:
        with table:
            ui.label("Nothing yet: hand in a model, say how fast it must be, and watch.").classes("opacity-70")


def _row(context: PageContext, job: Job) -> None:
    model = context.application.models.of_job(job.model)
    with ui.row().classes("w-full items-center gap-3 py-1 border-b flex-wrap"):
        state = ui.badge(job.state.value, color=STATE_COLORS.get(job.state, "primary"))
        ui.link(model.name, f"/jobs/{job.id}").classes("font-medium")
        said = ui.label().classes("opacity-80")
        ui.space()
        ui.label(moment(job.created)).classes("opacity-60 text-sm")

    def refresh() -> None:
        now = context.application.jobs.get(context.visitor, job.id)
        state.set_text(now.state.value)
        state.props(f"color={STATE_COLORS.get(now.state, 'primary')}")
        report = context.live_state.progress(job.id)
        said.set_text(describe_effort(report) if report and not now.state.over else now.reason)
        if now.state.over:
            timer.deactivate()

    timer = ui.timer(2.0, refresh, active=not job.state.over)
    refresh()


@page("/jobs/{job}", "Job")
async def job_page(context: PageContext, job: str) -> None:
    """Everything about one job, as it happens."""
    found = context.application.jobs.get(context.visitor, job)
    JobView(context, found)
    with ui.expansion("How it came here").classes("w-full"):
        for step in context.application.jobs.steps(found):
            ui.label(f"{moment(step.at)}  {step.state.value}  {step.reason}").classes("font-mono text-sm")


def report_of(context: PageContext, job: Job) -> RunReport | None:
    """The report of a job that has one."""
    if job.report is None:
        return None
    with context.application.blobs.open(job.report) as file:
        return msgspec.json.decode(file.read(), type=RunReport)


class JobView:
    """A job on the screen, brought up to date once a second until it is over."""

    def __init__(self, context: PageContext, job: Job) -> None:
        self._context = context
        self._job = job
        self._name = context.application.models.of_job(job.model).name
        ui.label(f"{self._name}: {_request_text(job)}").classes("opacity-80")
        with ui.row().classes("items-center gap-3 flex-wrap"):
            self._state = ui.badge(job.state.value)
            self._said = ui.label()
        self._now = ui.label().classes("opacity-80 text-sm")
        self._buttons = ui.row().classes("gap-2")
        self._offered: bool | None = None
        self._chart = ui.echart(curve_options({}, {})).classes("w-full h-72")
        self._families = ui.column().classes("w-full gap-0")
        self._failures = ui.label().classes("opacity-80 text-sm")
        self._result = ui.column().classes("w-full gap-1")
        self._drawn: tuple[int, int, tuple[str, ...]] = (-1, 0, ())
        self._timer = ui.timer(1.0, self._refresh, active=not job.state.over)
        self._refresh()

    def _refresh(self) -> None:
        with telling():
            self._show()

    def _show(self) -> None:
        job = self._job = self._context.application.jobs.get(self._context.visitor, self._job.id)
        self._state.set_text(job.state.value)
        self._state.props(f"color={STATE_COLORS.get(job.state, 'primary')}")
        self._offer()
        if job.state.over:
            self._timer.deactivate()
            self._said.set_text(job.reason)
            self._now.set_text("")
            self._families.clear()
            self._failures.set_text("")
            self._conclude()
            return
        running = self._context.live_state.running(job.id)
        doing = ", ".join(f"{stage.kind} on {stage.placement.device or stage.placement.host}" for stage in running)
        self._now.set_text(f"Now: {doing or 'waiting for its turn'}")
        report = self._context.live_state.progress(job.id) or _saved_progress(job)
        if report is not None:
            self._said.set_text(f"{describe_effort(report)}; {describe_estimate(report)}")
            against_untuned = describe_untuned(report) if report.fastest_baseline is not None else ""
            self._failures.set_text("; ".join(filter(None, (against_untuned, describe_failures(report)))))
            self._show_families(report.families)
        curve = self._context.live_state.curve(job.id)
        elapsed_s = report.elapsed_s if report is not None else 0.0
        lines = {} if report is None else _lines(report)
        if (drawn := (len(curve), int(elapsed_s // _REDRAWN_S), tuple(lines))) != self._drawn:
            self._drawn = drawn
            self._draw(_until(curve, elapsed_s), lines)

    def _draw(self, curve: list[tuple[float, float]], lines: dict[str, float]) -> None:
        self._chart.options.clear()
        self._chart.options.update(curve_options({self._name: curve}, lines))
        self._chart.update()

    def _target(self, report: RunReport) -> dict[str, float]:
        """The target of the search as a line of the chart, where it can be told of the network as a whole."""
        latency = report.latency_ms
        until = self._job.wanted.until
        if until is None or len(self._job.wanted.combinations()) > 1:
            return {}
        untuned = {} if latency.untuned is None else {UNTUNED_NETWORK: latency.untuned}
        target_ms = parse_target(until).milliseconds({**latency.rivals, **report.baselines_before_ms, **untuned})
        return {} if target_ms is None else {"target": target_ms}

    def _show_families(self, families: tuple[FamilyProgress, ...]) -> None:
        self._families.clear()
        with self._families:
            for family in families:
                many = f"{family.subgraphs} subgraph{'' if family.subgraphs == 1 else 's'}"
                gain = f"at best {times(family.best_gain)} as fast as untuned"
                ui.label(f"{family.key}: {many}, {family.trials} trials, {gain}").classes("text-sm opacity-80")

    def _offer(self) -> None:
        """What can be done with it in its state."""
        job = self._job
        if self._offered is job.state.over:
            return
        self._offered = job.state.over
        self._buttons.clear()
        with self._buttons:
            if not job.state.over:
                ui.button("Finish with what there is", on_click=lambda: self._command(JobCommand.FINISH)).props("flat")
                ui.button("Cancel", on_click=lambda: self._command(JobCommand.CANCEL)).props("flat color=negative")
                return
            for label, what, there in (("Download", "executable", job.executable), ("Log", "log", job.log)):
                if there is not None:
                    ui.link(label, f"/api/v1/jobs/{job.id}/{what}")
            if job.state is not JobStatus.DONE:
                ui.button("Try again", on_click=self._retry).props("flat")

    def _command(self, kind: JobCommand) -> None:
        with telling():
            self._context.use_cases.command(self._context.submitter, self._context.address, self._job.id, kind)
            ui.notify("It will be done.")

    def _retry(self) -> None:
        with telling():
            new, _ = self._context.use_cases.retry(self._context.submitter, self._context.address, self._job.id)
            ui.navigate.to(f"/jobs/{new.id}")

    def _conclude(self) -> None:
        """The report, if there is one."""
        report = report_of(self._context, self._job)
        if report is None:
            return
        latency = report.latency_ms
        curve = [(point.seconds, point.latency_ms) for point in report.curve]
        self._draw(_until(curve, report.seconds), latency.rivals | self._target(report))
        with self._result:
            if latency.tuned is not None:
                said = describe_result(latency)
                ui.label(f"{milliseconds(latency.tuned)}{f', {said}' if said else ''}.").classes("text-lg")
            if latency.untuned is not None:
                ui.label(f"untuned: {milliseconds(latency.untuned)}").classes("opacity-80 text-sm")
            for rival, theirs in latency.rivals.items():
                ui.label(f"{rival}: {milliseconds(theirs)}")
            for rival, why in report.skipped.items():
                ui.label(f"{rival} was not compared: {why}").classes("opacity-80 text-sm")
            if report.max_rel_error is not None:
                ui.label(f"Largest relative error of its outputs: {report.max_rel_error:.1e}")
            ui.label(f"{report.trials} programs measured in {duration(report.seconds)}")
            for cause, failures in report.failures.items():
                ui.label(f"{failures} candidates failed: {cause}").classes("opacity-80 text-sm")
            if report.subgraphs:
                ui.label("Families of subgraphs, by the time they take").classes("opacity-80 mt-4")
                ui.echart(family_options(report.subgraphs)).classes("w-full h-72")


def _lines(report: ProgressReport) -> dict[str, float]:
    """What a running search is compared with: the fastest other runtime, and the target."""
    fastest = report.fastest_baseline
    lines = {} if fastest is None else {fastest.name: fastest.ms}
    return lines if report.target_ms is None else {**lines, "target": report.target_ms}


def _until(curve: list[tuple[float, float]], seconds: float) -> list[tuple[float, float]]:
    """A curve with what is best still being so after so many seconds."""
    return [*curve, *((seconds, latency) for _, latency in curve[-1:])]


def _saved_progress(job: Job) -> ProgressReport | None:
    return None if job.progress is None else msgspec.json.decode(job.progress, type=ProgressReport)


def _request_text(job: Job) -> str:
    parts = []
    if not job.wanted.search:
        parts.append("compiled only")
    if job.wanted.until is not None:
        parts.append(f"until {parse_target(job.wanted.until).described}")
    if job.wanted.minutes is not None:
        parts.append(f"{job.wanted.minutes:g} minutes at most")
    return ", ".join(parts) or "as fast as it gets"
