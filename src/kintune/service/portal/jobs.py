"""The list of jobs."""

from __future__ import annotations

from nicegui import ui

from kintune.service.job_repository import Job
from kintune.service.portal.frame import STATE_COLORS, PageContext, moment, page
from kintune.terminal.formatting import describe_effort

__all__ = ["home_page"]

_A_PAGE = 25


@page("/", "Your jobs")
async def home_page(desk: PageContext) -> None:
    """The latest jobs with where they stand; the next page on demand."""
    with ui.row().classes("w-full"):
        ui.button("New job", icon="add", on_click=lambda: ui.navigate.to("/models")).mark("new-job")
    table = ui.column().classes("w-full gap-1")
    shown: list[Job] = []

    def more() -> None:
        before = (shown[-1].created, shown[-1].id) if shown else None
        found = desk.rooms.docket.page(desk.visitor, before=before, limit=_A_PAGE)
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


def _row(desk: PageContext, job: Job) -> None:
    model = desk.rooms.library.of_job(job.model)
    with ui.row().classes("w-full items-center gap-3 py-1 border-b flex-wrap"):
        state = ui.badge(job.state.value, color=STATE_COLORS.get(job.state, "primary"))
        ui.link(model.name, f"/jobs/{job.id}").classes("font-medium")
        said = ui.label().classes("opacity-80")
        ui.space()
        ui.label(moment(job.created)).classes("opacity-60 text-sm")

    def refresh() -> None:
        now = desk.rooms.docket.get(desk.visitor, job.id)
        state.set_text(now.state.value)
        state.props(f"color={STATE_COLORS.get(now.state, 'primary')}")
        report = desk.board.progress(job.id)
        said.set_text(describe_effort(report) if report and not now.state.over else now.reason)
        if now.state.over:
            timer.deactivate()

    timer = ui.timer(2.0, refresh, active=not job.state.over)
    refresh()
