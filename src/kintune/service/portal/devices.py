"""The page of hosts and devices: what runs there, their health, the jobs of a day, and those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response
from msgspec.structs import replace

from kintune.scheduler.resources import Placement
from kintune.service.access import Visitor
from kintune.service.job_listing import ListedJob
from kintune.service.orchestrator.events import EventTally, Standing
from kintune.service.portal.frame import PageContext, PageRegion, ago, heading, keep_up_to_date, page
from kintune.service.portal.gantt import JOBS, gantt
from kintune.service.portal.job_words import describe_request
from kintune.service.portal.markup import MarkupColumn, chip, link, notice, table, tag, text
from kintune.service.web.live_state import LiveStage
from kintune.terminal.formatting import counted, duration
from kintune.tuning.front.placement import OWN_DEVICES
from kintune.wire.confinement import layers

__all__ = ["devices_page", "resources_page", "router", "tallied"]

router = APIRouter(include_in_schema=False)

_SHOWN = ((60.0, "minute"), (120.0, "two minutes"), (300.0, "five minutes"))
_SHOWN_S = 300.0
_DAY_S = 86400.0
_DAY = ((3600.0, "hour"), (6 * 3600.0, "six hours"), (_DAY_S, "day"))
_MOST_WAITING = 30
_HEALTH = (
    MarkupColumn("host or device", "name", label=""),
    MarkupColumn("state", "reason", label=""),
    MarkupColumn("busy"),
    MarkupColumn("measured"),
)
_LAYERS = (
    MarkupColumn("layer", "name", label=""), MarkupColumn("state", label=""),
    MarkupColumn("what it does", "reason", label=""),
    MarkupColumn("what turns it on", "reason", label=""),
)  # fmt: skip
_WAITING = (
    MarkupColumn("job", "name", label=""), MarkupColumn("user"), MarkupColumn("request", "reason"),
    MarkupColumn("device", "word"),
    MarkupColumn("waits", "num"),
)  # fmt: skip


@page("/devices", "Devices")
async def devices_page(context: PageContext) -> None:
    """What ran where in the last minutes and over a day, and who waits."""
    heading("Devices")
    stored = await asyncio.to_thread(_read, context)

    isolation = await asyncio.to_thread(_isolation, isolates=context.application.settings.isolates)

    def show(stored: _Stored) -> None:
        now_part.show(_stages(context, stored))
        health.show(_health(context))
        day.show(_day(context, stored))
        waiting.show(_waiting(context, stored))

    keep_up_to_date(2.0, lambda: _read(context), show)
    now_part, health, day, waiting, last = (PageRegion("", "stack") for _ in range(5))
    show(stored)
    last.show(isolation)


class _Stored(NamedTuple):
    """What the page shows from the database: the visitor's jobs by id, the names of their models, and other jobs.

    `ran` are those that were under way within a day, and `waiting` those that are queued, whoever they belong to.
    """

    visitor: Visitor
    jobs: dict[str, int]
    names: dict[int, str]
    ran: list[ListedJob]
    waiting: list[ListedJob]


def _read(context: PageContext) -> _Stored:
    application, visitor = context.application, context.visitor
    running = (stage.job for stage in context.live_state.stages(_SHOWN_S))
    jobs = application.jobs.models_of(visitor, running)
    ran, waiting = application.listing.ran(application.now() - _DAY_S), application.listing.waiting()
    return _Stored(visitor, jobs, application.models.names(jobs.values()), ran, waiting)


@router.get("/resources")
def resources_page() -> Response:
    """Leads from where this page was before."""
    return RedirectResponse("/devices", 301)


def _stages(context: PageContext, stored: _Stored) -> str:
    jobs, names, now = stored.jobs, stored.names, context.application.now()

    def named(job: str) -> str:
        return names.get(jobs[job], job) if job in jobs else "another job"

    stages = context.live_state.stages(_SHOWN_S)
    seen = [stage if stage.job in jobs else stage._replace(job="") for stage in stages]
    since = min((stage.begin for stage in stages), default=0.0)
    seconds, called = _span(_SHOWN, since, now)
    chart = gantt(seen, now, seconds, named) or tag("p", "Nothing ran in the last five minutes.", class_="faint")
    return tag("section", tag("h2", f"The last {called}") + chart, class_="card")


def _health(context: PageContext) -> str:
    now, standings = context.application.now(), context.live_state.standings
    if not standings:
        return notice(f"No job runs: {context.live_state.unready or 'no host or device is there'}.", "bad")
    use, tallies = context.live_state.use(_SHOWN_S), context.live_state.tallies(_SHOWN_S)
    own = context.application.settings.device_name
    standings = tuple(replace(each, what=own) if each.what in OWN_DEVICES else each for each in standings)
    rows = (_standing(each, use.get(each.id, 0.0), tallies.get(each.id), now) for each in standings)
    said = tag("p", "Busy and measured: in the last five minutes.", class_="faint small")
    return tag("section", tag("h2", "Health") + table("Hosts and devices", _HEALTH, rows) + said, class_="card")


def _isolation(*, isolates: bool) -> str:
    """What confines the processes that read, compile and run models."""
    rows = []
    for layer in layers():
        is_on = isolates and layer.is_on
        why = "" if is_on else f"{layer.finding}; {layer.remedy}" if not layer.is_on else "the service does without it"
        rows.append(
            [text(layer.name), chip("on", "ready") if is_on else chip("off", "lost"), text(layer.does), text(why)]
        )
    said = tag(
        "p", "Processes that read, compile and run models see the files of their job alone.", class_="faint small"
    )
    said = (
        said if isolates else tag("p", "Models are read, compiled and run as the service's own user.", class_="small")
    )
    return tag("section", tag("h2", "Isolation") + table("Layers of isolation", _LAYERS, rows) + said, class_="card")


def _standing(standing: Standing, busy: float, tally: EventTally | None, now: float) -> list[str]:
    state = chip("lost", "lost") if standing.lost else chip("ready", "ready")
    since = f"{standing.lost}, {ago(standing.since, now)}" if standing.lost else ""
    bar = tag("span", tag("i", style=f"width:{100 * busy:.1f}%") if busy else "", class_="track")
    return [
        text(standing.id) + tag("span", text(f"{standing.kind}, {standing.what}"), class_="under"),
        state + tag("span", text(since), class_="under"),
        tag("span", [bar, tag("span", f"{round(100 * busy)} %", class_="num")], class_="meter"),
        text(tallied(tally)) if tally is not None else "",
    ]


def tallied(tally: EventTally) -> str:
    """A device's measurements and what interfered with them, in words."""
    many = counted(tally.measured, "measurement")
    if not tally.disturbed:
        return f"{many}, none disturbed"
    return f"{many}, {tally.disturbed} of them timed again because something else had used its cores"


def _day(context: PageContext, stored: _Stored) -> str:
    """The jobs of the last day, by the devices that they were for."""
    now, visitor = context.application.now(), stored.visitor
    mine = {each.job.id: each.model for each in stored.ran if visitor.sees(each.job.owner)}
    stages = []
    for each in stored.ran:
        job = each.job
        where = Placement(None, 0, 0, job.wanted.device)
        kind = job.state.value if job.state.over else "under way"
        stages.append(LiveStage(job.id if job.id in mine else "", "", kind, where, job.started or now, job.ended))
    seconds, called = _span(_DAY, min((stage.begin for stage in stages), default=0.0), now)
    chart = gantt(stages, now, seconds, lambda job: mine.get(job, "another user's job"), JOBS)
    chart = chart or tag("p", "No job ran.", class_="faint")
    return tag("section", [tag("h2", f"The last {called}"), chart], class_="card")


def _span(spans: Sequence[tuple[float, str]], since: float, now: float) -> tuple[float, str]:
    """The shortest of these spans, in seconds and in words, that has all that was since then; else the longest."""
    return next((span for span in spans if now - span[0] <= since), spans[-1])


def _waiting(context: PageContext, stored: _Stored) -> str:
    now, visitor, found = context.application.now(), stored.visitor, stored.waiting
    parts = [tag("h2", "Waiting jobs")]
    if not found:
        free = "None: a new job starts at once." if context.live_state.standings else "None."
        parts.append(tag("p", free, class_="faint"))
        return tag("section", parts, class_="card")
    rows = []
    for each in sorted(found, key=lambda one: -(now - one.job.created) * one.job.priority)[:_MOST_WAITING]:
        job, mine = each.job, visitor.sees(each.job.owner)
        rows.append([
            link(each.model, f"/jobs/{job.id}") if mine else text("another user's job"),
            text(each.owner) if mine else "",
            text(describe_request(job.wanted)) if mine else "",
            text(job.wanted.device) + tag("span", text(job.reason), class_="under"),
            duration(now - job.created),
        ])  # fmt: skip
    parts.append(table("Waiting jobs", _WAITING, rows))
    if len(found) > _MOST_WAITING:
        parts.append(tag("p", f"and {len(found) - _MOST_WAITING} more", class_="faint"))
    return tag("section", parts, class_="card")
