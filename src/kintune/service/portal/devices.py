"""The page of hosts and devices: what runs there, how busy they were over a day, their health, and the waiting jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from kintune.service.access import Visitor
from kintune.service.job_listing import ListedJob
from kintune.service.orchestrator.events import EventTally, Standing
from kintune.service.portal.frame import PageContext, Region, ago, heading, keep_up_to_date, page
from kintune.service.portal.gantt import gantt
from kintune.service.portal.job_words import describe_request
from kintune.service.portal.markup import Heading, chip, link, notice, table, tag, text
from kintune.service.web.utilisation import SPAN_S
from kintune.terminal.formatting import counted, duration

__all__ = ["devices_page", "resources_page", "router", "tallied"]

router = APIRouter(include_in_schema=False)

_SHOWN_S = 300.0
_MOST_WAITING = 30


@page("/devices", "Devices")
async def devices_page(context: PageContext) -> None:
    """What ran where in the last five minutes, and how it was over a day."""
    heading("Devices")
    stored = await asyncio.to_thread(_read, context)

    def show(stored: _Stored) -> None:
        now_part.show(_stages(context, stored))
        health.show(_health(context))
        day.show(_day(context))
        waiting.show(_waiting(context, stored))

    keep_up_to_date(2.0, lambda: _read(context), show)
    now_part, health, day, waiting = (Region("", "stack") for _ in range(4))
    show(stored)


class _Stored(NamedTuple):
    """What the page shows from the database: the visitor's jobs by id, the names of their models, and who waits."""

    visitor: Visitor
    jobs: dict[str, int]
    names: dict[int, str]
    waiting: list[ListedJob]


def _read(context: PageContext) -> _Stored:
    application, visitor = context.application, context.visitor
    running = (stage.job for stage in context.live_state.stages(_SHOWN_S))
    jobs = application.jobs.models_of(visitor, running)
    return _Stored(visitor, jobs, application.models.names(jobs.values()), application.listing.waiting())


@router.get("/resources")
def resources_page() -> Response:
    """Leads from where this page was before."""
    return RedirectResponse("/devices", 301)


def _stages(context: PageContext, stored: _Stored) -> str:
    jobs, names = stored.jobs, stored.names

    def named(job: str) -> str:
        return names.get(jobs[job], job) if job in jobs else "another job"

    stages = context.live_state.stages(_SHOWN_S)
    seen = [stage if stage.job in jobs else stage._replace(job="") for stage in stages]
    chart = gantt(seen, context.application.now(), _SHOWN_S, named)
    if not chart:
        chart = tag("p", "Nothing has run in the last five minutes.", class_="faint")
    return tag("section", tag("h2", "The last five minutes") + chart, class_="card")


def _health(context: PageContext) -> str:
    now, standings = context.application.now(), context.live_state.standings
    if not standings:
        return notice("The orchestrator does not answer; jobs wait until it does.", "bad")
    use, tallies = context.live_state.use(_SHOWN_S), context.live_state.tallies(_SHOWN_S)
    names = (("host or device", False), ("state", False), ("busy", True), ("measured", False))
    rows = (_standing(each, use.get(each.id, 0.0), tallies.get(each.id), now) for each in standings)
    shown = table("Hosts and devices", [Heading(name, number) for name, number in names], rows, class_="cards")
    return tag("section", tag("h2", "Health") + shown, class_="card")


def _standing(standing: Standing, busy: float, tally: EventTally | None, now: float) -> str:
    state = chip("lost", "lost") if standing.lost else chip("ready", "ready")
    since = f"{standing.lost}, {ago(standing.since, now)}" if standing.lost else ""
    bar = tag("i", class_="share", style=f"width:{100 * busy:.0f}%")
    about = text(f"{standing.id} ") + tag("span", text(f"{standing.kind}, {standing.what}"), class_="under")
    cells = [
        tag("td", about, class_="name"),
        tag("td", state + tag("span", text(since), class_="under"), class_="reason"),
        tag("td", f"{round(100 * busy)} %{bar}", class_="num", data_label="busy"),
        tag("td", text(tallied(tally)) if tally is not None else ""),
    ]
    return tag("tr", cells)


def tallied(tally: EventTally) -> str:
    """A device's measurements and what interfered with them, in words."""
    many = counted(tally.measured, "measurement")
    if not tally.disturbed:
        return f"{many}, none disturbed"
    return f"{many}, {tally.disturbed} of them timed again because something else had used its cores"


def _day(context: PageContext) -> str:
    day = context.live_state.day()
    if not day:
        return ""
    parts = []
    for resource, shares in day.items():
        mean = sum(shares) / len(shares)
        said = f"{resource}: busy for {mean:.0%} of the last day"
        parts.append(tag("div", text(resource), class_="lane-name"))
        parts.append(tag("div", _columns(shares), class_="day", role="img", aria_label=said, title=said))
    ticks = tag("div", "".join(tag("span", words) for words in ("24 h ago", "12 h ago", "now")), class_="ticks")
    chart = tag("div", [*parts, tag("div"), ticks], class_="lanes")
    under = tag("p", "A column is a quarter of an hour; data begin when the web part of the service started.",
                class_="faint small")  # fmt: skip
    return tag("section", [tag("h2", "The last day"), chart, under], class_="card")


def _columns(shares: Sequence[float]) -> str:
    parts = []
    for place, share in enumerate(shares):
        back = duration((len(shares) - place) * SPAN_S)
        kind = None if share > 0 else "none"
        parts.append(tag("i", class_=kind, style=f"height:{100 * share:.0f}%", title=f"{back} ago: {share:.0%}"))
    return "".join(parts)


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
        name = link(each.model, f"/jobs/{job.id}") if mine else text("another user's job")
        cells = [
            tag("td", name, class_="name"),
            tag("td", text(each.owner) if mine else "", data_label="user"),
            tag("td", text(describe_request(job.wanted)) if mine else ""),
            tag("td", text(job.wanted.device) + tag("span", text(job.reason), class_="under"), data_label="device"),
            tag("td", duration(now - job.created), class_="num", data_label="waits"),
        ]
        rows.append(tag("tr", cells))
    names = (("job", False), ("user", False), ("request", False), ("device", False), ("waits", True))
    parts.append(table("Waiting jobs", [Heading(name, number) for name, number in names], rows, class_="cards"))
    if len(found) > _MOST_WAITING:
        parts.append(tag("p", f"and {len(found) - _MOST_WAITING} more", class_="faint"))
    return tag("section", parts, class_="card")
