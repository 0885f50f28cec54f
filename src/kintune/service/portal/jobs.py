"""The page of the list of jobs: searched, filtered, sorted and paged by its address, and up to date."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from nicegui import ui

from kintune.core.report import ProgressReport
from kintune.service.access import Scope, Visitor
from kintune.service.job_listing import SORTED_BY, JobFilter, ListedJob
from kintune.service.job_status import JobStatus
from kintune.service.portal.frame import (
    READ_ONLY,
    PageContext,
    PageRegion,
    ago,
    heading,
    keep_up_to_date,
    markup,
    moment,
    page,
)
from kintune.service.portal.job_words import plain_reason, saved_progress
from kintune.service.portal.markup import (
    MarkupColumn,
    action,
    actions,
    chip,
    choice,
    dialog,
    link,
    notice,
    table,
    tag,
    text,
)
from kintune.service.portal.outcomes import Signs, signs_of
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
    ("model", "Model", "name", ""),
    ("device", "Device", "word", None),
    ("state", "State", "reason", ""),
    ("latency", "Latency", "num", None),
    ("gain", "Of the fastest runtime", "num", None),
    ("who", "User", "word", None),
    ("created", "When", "num", ""),
)
"""By what a column is sorted, its heading, the class of its cells, and their label on a narrow screen."""

_OVER = "done failed cancelled"
_QUESTION = "Executables and logs of these jobs cannot be restored; the reports stay."


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
    markup(_form(context, query, visitor), "card")
    if visitor.may_submit:
        attributes = {"form": "jobs", "name": "action", "value": "delete-files", "data_states": _OVER}
        markup(dialog("ask", _QUESTION, "Delete them for good", "Keep them", **attributes), "apart")
    found = await asyncio.to_thread(_find, context, query)

    def show(found: _Found) -> None:
        place.show(_list(context, query, found, may_submit=visitor.may_submit))

    keep_up_to_date(2.0, lambda: _find(context, query), show)
    place = PageRegion(_list(context, query, found, may_submit=visitor.may_submit), "card stack")


class _Found(NamedTuple):
    """The jobs of this page of the list with the signs of each, and how many jobs there are in all."""

    jobs: list[tuple[ListedJob, Signs]]
    total: int


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


def _find(context: PageContext, query: JobQuery) -> _Found:
    listing = context.application.listing
    found, total = listing.find(context.visitor, query.filter(), offset=query.offset, limit=_A_PAGE)
    return _Found([(each, signs_of(context, each.job)) for each in found], total)


def _list(context: PageContext, query: JobQuery, found: _Found, *, may_submit: bool) -> str:
    if not found.total:
        return _nothing(query)
    now = context.application.now()
    chosen = {job for name in _CAME if _CAME[name][1] == "bad" for job in _ids(context.query.get(name, ""))}
    columns = [MarkupColumn(tag("span", "Choose", class_="hidden"), "check", label="")]
    columns += (_column(query, *each) for each in _COLUMNS)
    rows = (_row(context, listed, signs, now, listed.job.id in chosen) for listed, signs in found.jobs)
    changes = [
        action("Finish with the best result", "tuning", name="action", value="finish", id="do-finish"),
        action("Try again", "failed cancelled", name="action", value="retry", id="do-retry"),
        action("Cancel", "queued checking tuning packaging", name="action", value="cancel", id="do-cancel",
               class_="button danger"),
        action("Delete files", _OVER, type="button", data_asks="ask", id="do-delete-files",
               class_="button danger"),
    ]  # fmt: skip
    compare = action("Compare", "done", "2-5", formmethod="get", formaction="/compare", id="do-compare")
    offered = [compare, *changes] if may_submit else [compare, tag("span", READ_ONLY, class_="faint small")]
    parts = [actions(offered, "Actions on the selected jobs"), table("Jobs", columns, rows, whole=True)]
    form = tag("form", parts, method="post", action=_actions(query), class_="stack", id="jobs")
    return form + _pages(query, len(found.jobs), found.total)


def _column(query: JobQuery, name: str, words: str, kind: str, label: str | None) -> MarkupColumn:
    own = name == query.sort
    arrow = (" ↓" if query.descending else " ↑") if own else ""
    target = query.address(sort=query.sorted_by(name))
    sort = ("descending" if query.descending else "ascending") if own else None
    shown = link(words + arrow, target, id=f"sort-{name}")
    return MarkupColumn(shown, kind, words.lower() if label is None else label, sort)


def _row(context: PageContext, listed: ListedJob, signs: Signs, now: float, chosen: bool) -> list[str]:
    job = listed.job
    report = None if job.state.over else context.live_state.progress(job.id) or saved_progress(job)
    latency_ms, fastest = job.latency_ms, signs.fastest_baseline or job.fastest_baseline
    if report is not None and report.best_ms is not None and not report.partial:
        latency_ms, fastest = report.best_ms, report.fastest_baseline or fastest
    latency, gain, kind = "", "", ""
    if latency_ms is not None:
        latency = milliseconds(latency_ms) if job.state.over else f"about {milliseconds(latency_ms)}"
    if fastest is not None and fastest.ratio is not None:
        kind = "" if fastest.verdict is None else {"faster": "good", "slower": "bad"}.get(fastest.verdict.value, "")
        gain = tag("span", share_of(fastest), class_=kind, title=describe_against(fastest))
        gain += tag("span", f"of {text(fastest.name)}'s {milliseconds(fastest.ms)}", class_="under")
    state = chip(job.state.value, job.state.value)
    state += "".join(chip(name, "warn", lines) for name, lines in _flags(signs))
    why = _why(listed, report)
    return [
        choice("job", job.id, f"{listed.model}, {job.id}", job.state.value, checked=chosen),
        link(listed.model, f"/jobs/{job.id}", id=f"open-{job.id}") + tag("span", text(job.id), class_="under mono"),
        text(job.wanted.device),
        state + tag("span", text(why), class_="under", title=why),
        latency,
        gain,
        text(listed.owner),
        tag("time", ago(job.created, now), title=f"{moment(job.created)} UTC"),
    ]


def _flags(signs: Signs) -> list[tuple[str, str]]:
    """What is not as it should be with a result, in a word or two, and the lines that say why."""
    both = (("uncertain", signs.uncertain), ("not compared", signs.not_compared))
    return [(name, "\n".join(lines)) for name, lines in both if lines]


def _why(listed: ListedJob, report: ProgressReport | None) -> str:
    if report is not None:
        return describe_effort(report)
    return plain_reason(listed.job.reason) if listed.job.reason != listed.job.state.value else ""


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
    offset, last = query.offset, -(-total // _A_PAGE)
    said = f"{offset + 1} to {offset + shown} of {total}" if shown else counted(total, "job")
    parts = [tag("span", said, class_="faint", role="status")]
    before, after = ("Newer", "Older") if query.sort == "created" and query.descending else ("Before", "Next")
    if query.page > 1:
        parts.append(link(before, query.address(page=query.page - 1), class_="button"))
    numbers = [number for number in range(1, last + 1) if number in (1, last) or abs(number - query.page) <= 2]
    for number, previous in zip(numbers, [0, *numbers], strict=False):
        parts.append("…" if number > previous + 1 else "")
        own = "page" if number == query.page else None
        if last > 1:
            address = query.address(page=number)
            parts.append(link(str(number), address, class_="number", aria_current=own, aria_label=f"Page {number}"))
    if offset + shown < total and shown:
        parts.append(link(after, query.address(page=query.page + 1), class_="button"))
    return tag("nav", parts, class_="pages", aria_label="Pages of the list")
