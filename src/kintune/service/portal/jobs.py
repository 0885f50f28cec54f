"""The list of jobs, and the page of one."""

from __future__ import annotations

import msgspec
from nicegui import ui

from kintune.front.report import RunReport
from kintune.job.progress import ProgressReport
from kintune.service.docket import Job
from kintune.service.life import State, Wish
from kintune.service.portal.charts import curve_options
from kintune.service.portal.frame import Desk, moment, page, telling
from kintune.terminal import phrases
from kintune.terminal.quantities import duration, milliseconds, times

__all__ = ["home_page", "job_page", "report_of"]

_A_PAGE = 25
_COLORS = {State.DONE: "positive", State.FAILED: "negative", State.CANCELLED: "grey"}


@page("/", "Your jobs")
async def home_page(desk: Desk) -> None:
    """The latest jobs with where they stand; the next page on demand."""
    with ui.row().classes("w-full"):
        ui.button("New job", icon="add", on_click=lambda: ui.navigate.to("/models")).mark("new-job")
    table = ui.column().classes("w-full gap-1")
    shown: list[Job] = []

    def more() -> None:
        before = (shown[-1].created, shown[-1].id) if shown else None
        found = desk.rooms.docket.list(desk.visitor, before=before, limit=_A_PAGE)
        shown.extend(found)
        with table:
            for job in found:
                _row(desk, job)
        button.set_visibility(len(found) == _A_PAGE)

    button = ui.button("Older ones", on_click=more).props("flat")
    more()
    if not shown:
        with table:
            ui.label("Nothing yet: hand in a model, say how fast it must be, and watch.").classes("opacity-70")


def _row(desk: Desk, job: Job) -> None:
    model = desk.rooms.library.of_job(job.model)
    with ui.row().classes("w-full items-center gap-3 py-1 border-b flex-wrap"):
        state = ui.badge(job.state.value, color=_COLORS.get(job.state, "primary"))
        ui.link(model.name, f"/jobs/{job.id}").classes("font-medium")
        said = ui.label().classes("opacity-80")
        ui.space()
        ui.label(moment(job.created)).classes("opacity-60 text-sm")

    def refresh() -> None:
        now = desk.rooms.docket.get(desk.visitor, job.id)
        state.set_text(now.state.value)
        state.props(f"color={_COLORS.get(now.state, 'primary')}")
        report = desk.board.progress(job.id)
        said.set_text(phrases.effort(report) if report and not now.state.over else now.reason)
        if now.state.over:
            timer.deactivate()

    timer = ui.timer(2.0, refresh, active=not job.state.over)
    refresh()


@page("/jobs/{job}", "Job")
async def job_page(desk: Desk, job: str) -> None:
    """Everything about one job, as it happens."""
    found = desk.rooms.docket.get(desk.visitor, job)
    model = desk.rooms.library.of_job(found.model)
    ui.label(f"{model.name}: {_wish_text(found)}").classes("opacity-80")
    with ui.row().classes("items-center gap-3 flex-wrap"):
        state = ui.badge(found.state.value).mark("state")
        said = ui.label().mark("said")
    buttons = ui.row().classes("gap-2")
    chart = ui.echart(curve_options({}, {})).classes("w-full h-72")
    details = ui.column().classes("w-full gap-1")
    curve: list[tuple[float, float]] = []

    def refresh() -> None:
        now = desk.rooms.docket.get(desk.visitor, job)
        report = desk.board.progress(job) or _saved_progress(now)
        state.set_text(now.state.value)
        state.props(f"color={_COLORS.get(now.state, 'primary')}")
        said.set_text(f"{phrases.effort(report)}; {phrases.latency(report)}" if report and not now.state.over else now.reason)
        if report is not None and report.best_ms and (not curve or curve[-1][1] != report.best_ms):
            curve.append((report.elapsed_s, report.best_ms))
            _draw(chart, {model.name: curve}, found.wanted.target_ms)
        if now.state.over:
            timer.deactivate()
            _conclude(desk, now, chart, details, model.name)
        _offer(desk, now, buttons)

    timer = ui.timer(1.0, refresh, active=not found.state.over)
    refresh()
    with ui.expansion("How it came here").classes("w-full"):
        for step in desk.rooms.docket.steps(found):
            ui.label(f"{moment(step.at)}  {step.state.value}  {step.reason}").classes("font-mono text-sm")


def _offer(desk: Desk, job: Job, buttons: ui.row) -> None:
    """What can be done with a job in its state."""
    wanted = "over" if job.state.over else "going"
    if buttons.props.get("data-for") == wanted:
        return
    buttons.props(f"data-for={wanted}")
    buttons.clear()

    def wish(kind: Wish) -> None:
        with telling():
            rooms, now = desk.rooms, desk.rooms.now()
            with rooms.database.transaction():
                rooms.docket.wish(job, kind, now)
                rooms.diary.note(now, kind.value, f"job {job.id}", desk.visitor, desk.address)
            desk.poke()
            ui.notify("It will be done.")

    with buttons:
        if not job.state.over:
            ui.button("Finish with what there is", on_click=lambda: wish(Wish.FINISH)).props("flat")
            ui.button("Cancel", on_click=lambda: wish(Wish.CANCEL)).props("flat color=negative").mark("cancel")
            return
        for label, what, there in (("Download", "executable", job.executable), ("Log", "log", job.log)):
            if there is not None:
                ui.link(label, f"/api/v1/jobs/{job.id}/{what}").mark(what)


def _conclude(desk: Desk, job: Job, chart: ui.echart, details: ui.column, name: str) -> None:
    """The report, once there is one."""
    report = report_of(desk, job)
    if report is None or details.default_slot.children:
        return
    curve = [(point.seconds, point.latency_ms) for point in report.curve]
    rivals = {**report.latency_ms.rivals}
    _draw(chart, {name: curve}, job.wanted.target_ms, rivals)
    latency = report.latency_ms
    with details:
        if latency.tuned is not None and latency.untuned is not None:
            ui.label(
                f"{milliseconds(latency.untuned)} untuned, {milliseconds(latency.tuned)} tuned: "
                f"{times(latency.untuned / latency.tuned)} as fast."
            ).classes("text-lg").mark("gain")
        for rival, theirs in rivals.items():
            ui.label(f"{rival}: {milliseconds(theirs)}")
        if report.max_rel_error is not None:
            ui.label(f"Largest relative error of its outputs: {report.max_rel_error:.1e}")
        ui.label(f"{report.trials} programs measured in {duration(report.seconds)}")
        for cause, failures in report.failures.items():
            ui.label(f"{failures} candidates failed: {cause}").classes("opacity-70")
        families: dict[str, int] = {}
        for subgraph in report.subgraphs:
            families[subgraph.family or "not searched"] = families.get(subgraph.family or "not searched", 0) + 1
        ui.label("Families: " + ", ".join(f"{family} ({many})" for family, many in families.items()))


def report_of(desk: Desk, job: Job) -> RunReport | None:
    """The report of a job that has one."""
    if job.report is None:
        return None
    with desk.rooms.content.open(job.report) as file:
        return msgspec.json.decode(file.read(), type=RunReport)


def _saved_progress(job: Job) -> ProgressReport | None:
    return None if job.progress is None else msgspec.json.decode(job.progress, type=ProgressReport)


def _draw(
    chart: ui.echart, curves: dict[str, list[tuple[float, float]]], target: float | None,
    rivals: dict[str, float] | None = None,
) -> None:  # fmt: skip
    lines = dict(rivals or {})
    if target is not None:
        lines["target"] = target
    chart.options.clear()
    chart.options.update(curve_options(curves, lines))
    chart.update()


def _wish_text(job: Job) -> str:
    parts = []
    if job.wanted.target_ms is not None:
        parts.append(f"until {job.wanted.target_ms:g} ms")
    if job.wanted.minutes is not None:
        parts.append(f"{job.wanted.minutes:g} minutes at most")
    return ", ".join(parts) or "as fast as it gets"
