"""Resources, and jobs beside each other."""

from __future__ import annotations

from nicegui import ui

from kintune.service.job_status import JobStatus
from kintune.service.orchestrator.events import EventTally
from kintune.service.portal.charts import curve_options, gantt_options
from kintune.service.portal.frame import PageContext, page
from kintune.service.portal.jobs import report_of
from kintune.terminal.comparison import describe_result
from kintune.terminal.formatting import duration, milliseconds

__all__ = ["compare_page", "resources_page", "tallied"]
_MINUTES_S = 300.0
_MOST = 8


@page("/resources", "Resources")
async def resources_page(context: PageContext) -> None:
    """What ran where in the last five minutes, and how busy each resource was."""
    chart = ui.echart(gantt_options([], context.application.now(), _MINUTES_S)).classes("w-full h-80").mark("gantt")
    use = ui.column().classes("w-full")

    def refresh() -> None:
        now = context.application.now()
        stages = context.live_state.stages(_MINUTES_S)
        mine = {job.id for job in context.application.jobs.page(context.visitor, limit=200)}
        seen = [stage if stage.job in mine else stage._replace(job="") for stage in stages]
        chart.options.clear()
        chart.options.update(gantt_options(seen, now, _MINUTES_S))
        chart.update()
        busy = context.live_state.use(_MINUTES_S)
        use.clear()
        with use:
            for where, share in busy.items():
                with ui.row().classes("items-center w-full"):
                    ui.label(where).classes("w-32")
                    ui.linear_progress(round(share, 2), show_value=False).classes("w-64")
                    ui.label(f"{round(100 * share)} % of the time busy")
            for device, tally in context.live_state.tallies(_MINUTES_S).items():
                ui.label(f"{device}: {tallied(tally)}").classes("opacity-80 text-sm")
            if not busy:
                ui.label("Nothing has run in the last five minutes.").classes("opacity-70")
            for standing in context.live_state.standings:
                lost = f"lost {duration(now - standing.since)} ago: {standing.lost}" if standing.lost else "ready"
                line = ui.label(f"{standing.id} ({standing.kind}, {standing.what}): {lost}").classes("text-sm")
                line.classes("text-negative" if standing.lost else "opacity-80")

    ui.timer(2.0, refresh)
    refresh()


def tallied(tally: EventTally) -> str:
    """A device's measurements and what interfered with them, in words."""
    many = f"{tally.measured} measurement{'' if tally.measured == 1 else 's'}"
    if not tally.disturbed:
        return f"{many}, none disturbed"
    return f"{many}, {tally.disturbed} of them timed again because something else had used its cores"


@page("/compare", "Compare")
async def compare_page(context: PageContext) -> None:
    """The curves of jobs that are done, side by side."""
    done = context.application.jobs.page(context.visitor, states=frozenset({JobStatus.DONE}), limit=50)
    names = {job.id: f"{context.application.models.of_job(job.model).name} ({job.id})" for job in done}
    chart = ui.echart(curve_options({}, {})).classes("w-full h-96")
    table = ui.column().classes("w-full")

    def draw() -> None:
        chosen = [job for job in done if job.id in (choice.value or [])][:_MOST]
        reports = {names[job.id]: report for job in chosen if (report := report_of(context, job)) is not None}
        curves = {name: [(p.seconds, p.latency_ms) for p in report.curve] for name, report in reports.items()}
        chart.options.clear()
        chart.options.update(curve_options(curves, {}))
        chart.update()
        table.clear()
        with table:
            for name, report in reports.items():
                tuned, said = report.latency_ms.tuned, describe_result(report.latency_ms)
                took = "not timed" if tuned is None else f"{milliseconds(tuned)}{f', {said}' if said else ''}"
                ui.label(f"{name}: {took}, {report.trials} trials")

    choice = ui.select(names, multiple=True, label="Jobs", on_change=draw).classes("w-full").props("use-chips")
    choice.move(target_index=1)
    if not done:
        ui.label("No job of yours is done yet.").classes("opacity-70")
