"""Two to five jobs side by side: their curves, what they take, and their operators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from kintune.core.report import Latencies, RunReport
from kintune.errors import KintuneError
from kintune.service.job_listing import JobFilter
from kintune.service.job_repository import Job
from kintune.service.job_status import JobStatus
from kintune.service.portal.charts import Curve, curves
from kintune.service.portal.frame import PageContext, ago, heading, markup, page
from kintune.service.portal.job_words import describe_error, describe_precision, describe_request, describe_where
from kintune.service.portal.markup import MarkupColumn, chip, link, notice, table, tag, text
from kintune.service.portal.operators import NetworkOperator, operators_of
from kintune.service.portal.outcomes import outcome_of
from kintune.terminal.comparison import describe_share
from kintune.terminal.formatting import duration, milliseconds

__all__ = ["MOST", "Compared", "compare_page", "operator_rows", "standings"]

MOST = 5
"""Jobs that are compared at once."""

_OFFERED = 40
_MOST_ROWS = 60
_LONGEST = 30  # name that is not cut


class Compared(NamedTuple):
    """A job that has a result, under a name that tells it from the others."""

    name: str
    job: Job
    report: RunReport
    operators: tuple[NetworkOperator, ...]
    where: str

    @property
    def short(self) -> str:
        """The name, cut where it is long."""
        return self.name if len(self.name) <= _LONGEST else f"{self.name[:13]}...{self.name[-13:]}"


@page("/compare", "Compare")
async def compare_page(context: PageContext) -> None:
    """The address names the jobs; a form chooses others."""
    heading("Compare")
    asked = list(dict.fromkeys(context.values("job")))
    found, problems = await asyncio.to_thread(_found, context, asked[:MOST])
    if len(asked) > MOST:
        problems.append(f"At most {MOST} jobs are compared at once; the first {MOST} are shown.")
    for problem in problems:
        markup(notice(problem, "bad"))
    if len(found) >= 2:
        drawn = [
            Curve(each.name, [(point.seconds, point.latency_ms) for point in each.report.curve], each.report.seconds)
            for each in found
        ]
        picture = curves(drawn, [])
        if picture:
            markup(tag("h2", "Estimated latency over the time of tuning") + picture, "card")
        markup(tag("h2", "Results") + _facts(found), "card")
        markup(tag("h2", "Operators, by the largest difference") + _operators(found), "card")
    elif found:
        markup(notice("One job is chosen; choose another one to compare it with."))
    markup(await asyncio.to_thread(_choice, context, asked[:MOST], is_open=len(found) < 2), "card")


def _found(context: PageContext, asked: Sequence[str]) -> tuple[list[Compared], list[str]]:
    found: list[Compared] = []
    problems = []
    for each in asked:
        try:
            job = context.application.jobs.get(context.visitor, each)
        except KintuneError as error:
            problems.append(str(error))
            continue
        name = context.application.models.of_job(job.model).name
        outcome = outcome_of(context, job)
        if outcome is None:
            problems.append(f"{name} ({job.id}) has no result to compare: it is {job.state.value}.")
            continue
        operators = operators_of(outcome.report, outcome.manifests)
        found.append(Compared(name, job, outcome.report, operators, describe_where(outcome.hybrid)))
    names = [each.name for each in found]
    return [
        each._replace(name=f"{each.name} {each.job.id[:4]}") if names.count(each.name) > 1 else each for each in found
    ], problems


def _facts(found: Sequence[Compared]) -> str:
    standing = standings([None if each.report.uncertain else each.report.latency_ms for each in found])
    rows = [
        ("latency", [_latency(*each) for each in zip(found, standing, strict=True)]),
        ("estimated by the search", [_estimate(each) for each in found]),
        ("of the fastest runtime", [_share(each) for each in found]),
        ("request", [text(describe_request(each.job.wanted)) for each in found]),
        ("device", [text(each.job.wanted.device) for each in found]),
        ("outputs", [text(describe_error(each.report)[0]) for each in found]),
        ("not compared", [_lines(each.report.not_compared) for each in found]),
        ("precision", [text(describe_precision(each.report)) for each in found]),
        ("runs", [text(each.where) for each in found]),
        ("programs measured", [str(each.report.trials) for each in found]),
        ("time of tuning", [duration(each.report.seconds) for each in found]),
    ]
    columns = [MarkupColumn(tag("span", "what", class_="hidden"), "head")]
    columns += [
        MarkupColumn(link(each.short, f"/jobs/{each.job.id}", title=each.name), "reason", text(each.short))
        for each in found
    ]
    return table("Results side by side", columns, ([name, *cells] for name, cells in rows if any(cells)))


def standings(latencies: Sequence[Latencies | None]) -> list[str]:
    """How each latency stands against the lowest one, in a few words; None is one that is uncertain, and says nothing.

    What was timed in different jobs differs only where the ranges of 8 of 10 runs do not overlap.
    """
    ranges = [None if each is None else each.spread.get("tuned") for each in latencies]
    medians = [each.tuned for each in latencies if each is not None and each.tuned is not None]
    if len(medians) < 2:
        return [""] * len(latencies)
    best = min(medians)
    first = next(at for at, each in enumerate(latencies) if each is not None and each.tuned == best)
    lowest, said = ranges[first], []
    for each, spread in zip(latencies, ranges, strict=True):
        if each is None or each.tuned is None:
            said.append("")
        elif each is not latencies[first] and lowest is not None and spread is not None and spread.p10 <= lowest.p90:
            said.append("level with the fastest")
        else:
            said.append(f"{each.tuned / best:.2f}x the fastest")
    said[first] = "level with the fastest" if "level with the fastest" in said else "the fastest"
    return said


def _latency(each: Compared, standing: str) -> str:
    """A latency, and how it stands against the others."""
    if each.job.latency_ms is None:
        return "not timed as a whole"
    said = tag("strong", milliseconds(each.job.latency_ms))
    if each.report.uncertain:
        return said + " " + chip("uncertain", "warn") + _lines(each.report.uncertain)
    return said + tag("span", standing, class_="under good" if standing == "the fastest" else "under")


def _estimate(each: Compared) -> str:
    return milliseconds(each.report.curve[-1].latency_ms) if each.report.curve else ""


def _lines(lines: Sequence[str]) -> str:
    return "".join(tag("span", text(line), class_="under") for line in lines)


def _share(each: Compared) -> str:
    fastest = each.report.fastest_baseline or each.job.fastest_baseline
    return "" if fastest is None else text(describe_share(fastest))


def operator_rows(found: Sequence[Sequence[NetworkOperator]]) -> list[tuple[str, list[NetworkOperator | None]]]:
    """The operators of several jobs beside each other, by what they compute: the largest difference in time first.

    Operators with the same program are one row, else those of the same title.
    """
    keys: dict[str, str] = {}
    rows: dict[str, list[NetworkOperator | None]] = {}
    titles: dict[str, str] = {}
    for place, operators in enumerate(found):
        for each in operators:
            key = keys.get(f"key {each.key}") or keys.get(f"title {each.title}") or each.key
            row = rows.setdefault(key, [None] * len(found))
            if row[place] is not None:  # two operators with one title
                key = f"{each.key} {place}"
                row = rows.setdefault(key, [None] * len(found))
            row[place] = each
            titles.setdefault(key, each.title)
            keys.setdefault(f"key {each.key}", key)
            keys.setdefault(f"title {each.title}", key)

    def difference(key: str) -> float:
        known = [0.0 if each is None else each.total_us for each in rows[key]]
        return max(known) - min(known)

    return [(titles[key], rows[key]) for key in sorted(rows, key=lambda key: -difference(key))]


def _operators(found: Sequence[Compared]) -> str:
    rows = operator_rows([each.operators for each in found])
    columns = [MarkupColumn("operators", "name", label=""), *(MarkupColumn(text(each.short), "num") for each in found)]
    lines = []
    for title, cells in rows[:_MOST_ROWS]:
        known = [each.total_us for each in cells if each is not None and each.total_us]
        shown = []
        for each in cells:
            if each is None or each.us is None:
                shown.append(tag("span", "none", class_="faint"))
                continue
            is_best = len(known) > 1 and each.total_us == min(known) < max(known)
            narrow = "" if each.precision == "fp32" else tag("span", text(each.precision), class_="under")
            time = milliseconds(each.total_us / 1e3)
            shown.append(tag("span", time, class_="good" if is_best else None) + narrow)
        lines.append([text(title), *shown])
    rest = "" if len(rows) <= _MOST_ROWS else f" {len(rows) - _MOST_ROWS} more differ less."
    under = tag("p", f"All runs of each in one run of the network; green is the fastest.{rest}", class_="faint small")
    return table("Operators side by side", columns, lines) + under


def _choice(context: PageContext, chosen: Sequence[str], *, is_open: bool) -> str:
    done, _ = context.application.listing.find(
        context.visitor, JobFilter(states=frozenset({JobStatus.DONE})), limit=_OFFERED
    )
    if not done:
        parts = [tag("p", "No job is done yet; two or more finished jobs can be compared.", class_="faint")]
        parts.append(link("New job", "/new", class_="button main"))
        return tag("div", parts, class_="empty")
    now = context.application.now()
    boxes = []
    for each in done:
        job = each.job
        took = "" if job.latency_ms is None else f": {milliseconds(job.latency_ms)}"
        box = tag("input", type="checkbox", name="job", value=job.id, checked=job.id in chosen, data_keep="")
        said = tag("span", text(f"{each.model}{took}")) + tag(
            "span", f"{job.id}, {ago(job.created, now)}", class_="faint"
        )
        boxes.append(tag("label", [box, said], class_="line"))
    button = tag("button", "Compare", type="submit", class_="button main", data_needs=f"2-{MOST}")
    listed = tag("fieldset", [tag("legend", f"Two to {MOST} jobs"), *boxes])
    form = tag("form", [listed, tag("div", button)], method="get", action="/compare", class_="stack")
    return tag("details", [tag("summary", "Choose jobs"), form], open=is_open, id="choose-jobs")
