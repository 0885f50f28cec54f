"""The page of the list of jobs: searched, filtered, sorted and paged by its address, and up to date."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from urllib.parse import urlencode

from nicegui import ui

from kintune.core.report import ProgressReport
from kintune.service.access import NotFound, Scope, Visitor
from kintune.service.job_listing import SORTED_BY, JobFilter, ListedJob
from kintune.service.job_status import JobStatus
from kintune.service.portal.frame import (
    READ_ONLY,
    PageContext,
    Region,
    ago,
    heading,
    keep_up_to_date,
    markup,
    moment,
    page,
)
from kintune.service.portal.job_words import saved_progress
from kintune.service.portal.markup import Heading, chip, link, notice, table, tag, text
from kintune.terminal.comparison import describe_against, share_of
from kintune.terminal.formatting import counted, describe_effort, milliseconds

__all__ = ["SEARCHES", "JobQuery", "jobs_page"]

SEARCHES = (
    ("running", "under way", (JobStatus.QUEUED, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING)),
    ("done", "done", (JobStatus.DONE,)),
    ("failed", "failed", (JobStatus.FAILED,)),
    ("cancelled", "cancelled", (JobStatus.CANCELLED,)),
)
"""Groups of states that a list can be cut down to: as the address has them, for people, and the states."""

_A_PAGE = 25
_ID = re.compile(r"[0-9a-f]{12}")
_CAME = {
    "did": (": it will be done", "good"),
    "deleted": (": executable and log are deleted, the report stays", "good"),
    "refused": (
        " could not be changed: a job can be finished while it is tuned, cancelled while it is not over, tried again"
        " after it has failed or was cancelled, and its files be deleted when it has ended",
        "bad",
    ),
    "limited": (
        " could not be submitted again: that is beyond your limits of jobs, of minutes a day, or of storage",
        "bad",
    ),
    "gone": (" could not be changed: the job or its model is not there any more", "bad"),
    "forbidden": (" could not be changed: your token may only read", "bad"),
    "failed": (" could not be changed: the service could not do it now; try again", "bad"),
}
"""What is said of an action on several jobs, by what in the address that has led back here lists them."""

_COLUMNS = (
    ("model", "Model", False),
    ("device", "Device", False),
    ("state", "State", False),
    ("latency", "Latency", True),
    ("gain", "Of the fastest runtime", True),
    ("who", "User", False),
    ("created", "When", True),
)


class JobQuery:
    """What the address of the list asks for, and addresses that ask for a little else."""

    def __init__(self, query: Mapping[str, str], states: Iterable[str] = ()) -> None:
        """`states` are all values of `state`; values that are not valid are ignored."""
        self.states = [name for name, *_ in SEARCHES if name in set(states)]
        self.text, self.device = query.get("q", "").strip()[:200], query.get("device", "")[:64]
        self.everybody = query.get("everybody") == "1"
        sort = query.get("sort", "-created")
        self.descending, self.sort = sort.startswith("-"), sort.lstrip("-")
        if self.sort not in SORTED_BY:
            self.descending, self.sort = True, "created"
        number = query.get("page", "1")
        self.page = max(1, int(number)) if number.isascii() and number.isdigit() and len(number) < 9 else 1

    @property
    def is_narrow(self) -> bool:
        """Whether some jobs are left out."""
        return bool(self.states or self.text or self.device)

    @property
    def offset(self) -> int:
        """How many jobs are on the pages before."""
        return (self.page - 1) * _A_PAGE

    def filter(self) -> JobFilter:
        """Returns the filter for the database."""
        chosen = frozenset(state for name, _, states in SEARCHES if name in self.states for state in states)
        return JobFilter(
            text=self.text,
            states=chosen,
            device=self.device,
            everybody=self.everybody,
            sort=self.sort,
            descending=self.descending,
        )

    def address(self, *, sort: str | None = None, page: int = 1) -> str:
        """The address of the same list, sorted otherwise, or of another of its pages."""
        own = f"{'-' if self.descending else ''}{self.sort}"
        pairs = [("q", self.text), *(("state", name) for name in self.states), ("device", self.device)]
        pairs += [("everybody", "1" if self.everybody else ""), ("sort", sort or own)]
        pairs += [("page", str(page) if page > 1 else "")]
        said = urlencode([(name, value) for name, value in pairs if value and (name, value) != ("sort", "-created")])
        return f"/?{said}" if said else "/"

    def sorted_by(self, name: str) -> str:
        """Returns the `sort` of an address that sorts by a column, in reverse if the list is sorted by it already."""
        first = name in ("created", "latency")
        descending = not self.descending if name == self.sort else first
        return f"{'-' if descending else ''}{name}"


@page("/", "Jobs")
async def jobs_page(context: PageContext) -> None:
    """The list, with a form above it that becomes part of the address."""
    visitor, query = context.visitor, JobQuery(context.query, context.values("state"))
    with ui.element("div").classes("line between"):
        heading("Jobs")
        if visitor.may_submit:
            markup(link("New job", "/new", class_="button main"))
    for words, kind in _told(context.query):
        markup(notice(words, kind))
    if deleting := await asyncio.to_thread(_ask_before_deleting, context, query):
        markup(deleting, "card stack")
    markup(_form(context, query, visitor), "card")
    found = await asyncio.to_thread(_find, context, query)

    def show(found: tuple[list[ListedJob], int]) -> None:
        place.show(_list(context, query, *found, may_submit=visitor.may_submit))

    keep_up_to_date(2.0, lambda: _find(context, query), show)
    place = Region(_list(context, query, *found, may_submit=visitor.may_submit), "card stack")


def _told(query: Mapping[str, str]) -> list[tuple[str, str]]:
    """What came of an action on several jobs, which has led back here."""
    said = []
    for name, (words, kind) in _CAME.items():
        if found := _ids(query.get(name, "")):
            *most, last = found
            which = f"Jobs {', '.join(most)} and {last}" if most else f"Job {last}"
            said.append((f"{counted(len(found), 'job') if kind == 'good' else which}{words}.", kind))
    return said


def _ids(listed: str) -> list[str]:
    """The ids of jobs in a part of the address; what is none is left out."""
    return [each for each in listed.split(",") if _ID.fullmatch(each)]


def _ask_before_deleting(context: PageContext, query: JobQuery) -> str:
    """A form that deletes the files of jobs in the address for good, and a link that keeps them; "" without any."""
    application, found = context.application, []
    for id in _ids(context.query.get("deleting", "")):
        with suppress(NotFound):
            found.append(application.jobs.get(context.visitor, id))
    if not (found and context.visitor.may_submit):
        return ""
    names = application.models.names(job.model for job in found)
    listed = (
        tag(
            "li",
            link(names.get(job.model, ""), f"/jobs/{job.id}") + " " + tag("span", text(job.id), class_="mono faint"),
        )
        for job in found
    )
    words = "The executable and the log of this job" if len(found) == 1 else "Executables and logs of these jobs"
    buttons = [
        tag(
            "button", "Delete them for good", type="submit", name="action", value="delete-for-good",
            class_="button danger", id="do-delete-for-good",
        ),
        link("Keep them", query.address(page=query.page), class_="button"),
    ]  # fmt: skip
    parts = [
        tag("p", f"{words} cannot be restored; {'the report stays' if len(found) == 1 else 'the reports stay'}."),
        tag("ul", listed),
        *(tag("input", type="hidden", name="job", value=job.id) for job in found),
        tag("div", buttons, class_="line"),
    ]
    return tag("form", parts, method="post", action=_actions(query), class_="stack")


def _actions(query: JobQuery) -> str:
    """Where a form sends an action on jobs, whose answer leads back to this list."""
    return f"/jobs/actions{query.address(page=query.page).removeprefix('/')}"


def _form(context: PageContext, query: JobQuery, visitor: Visitor) -> str:
    search = tag("input", type="search", name="q", value=query.text, placeholder="model, device, user or id", id="q",
                 class_="native")  # fmt: skip
    states = (
        tag(
            "label",
            [
                tag("input", type="checkbox", name="state", value=name, checked=name in query.states, data_submits=""),
                text(words),
            ],
        )
        for name, words, _ in SEARCHES
    )
    parts = [
        tag("label", [tag("span", "Search"), search], class_="field"),
        tag("fieldset", [tag("legend", "State"), tag("div", states, class_="choices")]),
    ]
    devices = context.application.devices
    if len(devices) > 1 or query.device:
        options = [tag("option", "all", value="")]
        options += [tag("option", text(name), value=name, selected=name == query.device) for name in devices]
        chosen = tag("select", options, name="device", class_="native", data_submits="")
        parts.append(tag("label", [tag("span", "Device"), chosen], class_="field"))
    if visitor.scope is Scope.ADMIN:
        box = tag("input", type="checkbox", name="everybody", value="1", checked=query.everybody, data_submits="")
        parts.append(
            tag("fieldset", [tag("legend", "Whose"), tag("div", tag("label", [box, "everybody's"]), class_="choices")])
        )
    sort = query.address().partition("sort=")[2].partition("&")[0]
    if sort:
        parts.append(tag("input", type="hidden", name="sort", value=sort))
    parts.append(tag("button", "Search", type="submit", class_="button"))
    if query.is_narrow:
        parts.append(link("All jobs", "/"))
    return tag("form", tag("div", parts, class_="line filters"), method="get", action="/", role="search")


def _find(context: PageContext, query: JobQuery) -> tuple[list[ListedJob], int]:
    """The jobs of this page of the list, and how many there are in all."""
    listing = context.application.listing
    return listing.find(context.visitor, query.filter(), offset=query.offset, limit=_A_PAGE)


def _list(context: PageContext, query: JobQuery, found: list[ListedJob], total: int, *, may_submit: bool) -> str:
    if not total:
        return _nothing(query)
    now = context.application.now()
    headings = [Heading(tag("span", "Choose", class_="hidden")), *(_heading(query, *each) for each in _COLUMNS)]
    rows = (_row(context, listed, now) for listed in found)
    shown = table("Jobs", headings, rows, class_="cards")
    changes = [
        _action("Finish with the best result", "finish", "1-99"),
        _action("Try again", "retry", "1-99"),
        _action("Cancel", "cancel", "1-99", danger=True),
        _action("Delete files", "delete-files", "1-99", danger=True),
    ]
    actions = [
        tag("span", "none chosen", id="chosen", class_="faint", role="status"),
        *(changes if may_submit else [tag("span", READ_ONLY, class_="faint small")]),
        tag(
            "button", "Compare", type="submit", class_="button", formmethod="get", formaction="/compare",
            data_needs="2-5", disabled=True, id="do-compare",
        ),
    ]  # fmt: skip
    bar = tag("div", actions, class_="line", role="group", aria_label="Actions on the selected jobs")
    form = tag("form", shown + tag("div", bar, class_="stack"), method="post", action=_actions(query), class_="stack")
    return form + _pages(query, len(found), total)


def _action(words: str, name: str, needs: str, *, danger: bool = False) -> str:
    kind = "button danger" if danger else "button"
    return tag(
        "button", text(words), type="submit", name="action", value=name, class_=kind, data_needs=needs, disabled=True,
        id=f"do-{name}",
    )  # fmt: skip


def _heading(query: JobQuery, name: str, words: str, number: bool) -> Heading:
    own = name == query.sort
    arrow = (" ↓" if query.descending else " ↑") if own else ""
    target = query.address(sort=query.sorted_by(name))
    sort = ("descending" if query.descending else "ascending") if own else None
    return Heading(link(words + arrow, target, id=f"sort-{name}"), number, sort)


def _row(context: PageContext, listed: ListedJob, now: float) -> str:
    job = listed.job
    report = None if job.state.over else context.live_state.progress(job.id) or saved_progress(job)
    latency_ms, fastest = job.latency_ms, job.fastest_baseline
    if report is not None and report.best_ms is not None and not report.partial:
        latency_ms, fastest = report.best_ms, report.fastest_baseline or fastest
    latency, gain, kind = "", "", ""
    if latency_ms is not None:
        latency = milliseconds(latency_ms) if job.state.over else f"about {milliseconds(latency_ms)}"
    if fastest is not None and fastest.ratio is not None:
        kind = "" if fastest.verdict is None else {"faster": "good", "slower": "bad"}.get(fastest.verdict.value, "")
        gain = tag("span", share_of(fastest), class_=kind, title=describe_against(fastest))
        gain += tag("span", f"of {text(fastest.name)}'s {milliseconds(fastest.ms)}", class_="under")
    box = tag(
        "input", type="checkbox", name="job", value=job.id, data_keep="", id=f"choose-{job.id}",
        aria_label=f"Choose {listed.model}, {job.id}",
    )  # fmt: skip
    name = link(listed.model, f"/jobs/{job.id}", id=f"open-{job.id}") + tag("span", text(job.id), class_="under mono")
    state = chip(job.state.value, job.state.value) + tag("span", text(_why(listed, report)), class_="under")
    when = tag("time", ago(job.created, now), title=f"{moment(job.created)} UTC")
    cells = [
        tag("td", box, class_="check"),
        tag("td", name, class_="name"),
        tag("td", text(job.wanted.device), data_label="device"),
        tag("td", state, class_="reason"),
        tag("td", latency, class_="num", data_label="latency") if latency else tag("td", class_="num"),
        tag("td", gain, class_="num", data_label="of the fastest") if gain else tag("td", class_="num"),
        tag("td", text(listed.owner), data_label="user"),
        tag("td", when, class_="num", data_label="when"),
    ]
    return tag("tr", cells)


def _why(listed: ListedJob, report: ProgressReport | None) -> str:
    if report is not None:
        return describe_effort(report)
    return listed.job.reason


def _nothing(query: JobQuery) -> str:
    if query.is_narrow or query.page > 1:
        parts = [tag("p", "No job matches."), link("Show all jobs", "/", class_="button")]
    else:
        parts = [
            tag("h2", "No jobs yet"),
            tag("p", "Submit a model, give a target latency, and watch the search.", class_="faint"),
            link("New job", "/new", class_="button main"),
        ]
    return tag("div", parts, class_="empty")


def _pages(query: JobQuery, shown: int, total: int) -> str:
    offset = query.offset
    said = tag("span", f"{offset + 1} to {offset + shown} of {total}", class_="faint", role="status")
    if not shown:
        said = tag("span", counted(total, "job"), class_="faint", role="status")
    before = link("Newer" if query.sort == "created" else "Before", query.address(page=query.page - 1), class_="button")
    after = link("Older" if query.sort == "created" else "Next", query.address(page=query.page + 1), class_="button")
    parts = [before if query.page > 1 else "", said, after if offset + shown < total and shown else ""]
    return tag("nav", parts, class_="pages", aria_label="Pages of the list")
