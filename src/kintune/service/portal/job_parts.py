"""The parts of a job's page as markup: state, latencies, operators, families, downloads, history, log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kintune.core.hybrid import Hybrid
from kintune.core.report import FamilyProgress, FastestBaseline, RunReport
from kintune.service.job_repository import Job, JobStep
from kintune.service.job_status import JobStatus
from kintune.service.portal.frame import moment
from kintune.service.portal.job_words import (
    Snippet,
    describe_error,
    describe_precision,
    describe_request,
    describe_where,
    left_out,
    plain_reason,
    snippets,
)
from kintune.service.portal.markup import MarkupColumn, chip, link, notice, table, tag, text
from kintune.service.portal.operators import NetworkOperator, SearchedFamily
from kintune.service.webhook_outcome import WebhookOutcome
from kintune.terminal.comparison import describe_medians, share_of
from kintune.terminal.formatting import counted, duration, milliseconds
from kintune.terminal.summary import REASONS

__all__ = [
    "download_link",
    "downloads",
    "failures",
    "families_map",
    "families_under_way",
    "flags",
    "history",
    "latencies",
    "log_part",
    "operators_table",
    "removed_files",
    "result_facts",
    "stand",
    "webhook_part",
    "where_part",
]

_WAY = (JobStatus.QUEUED, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING, JobStatus.DONE)
_MOST_TITLES = 12
_MOST_ROWS = 200
_MOST_CAUSES = 8
_SHADES = 6
_LATENCIES = (
    MarkupColumn("runtime", "name", label=""), MarkupColumn("median", "num"), MarkupColumn("8 of 10 runs", "num"),
    MarkupColumn("Kintune's share", "num"),
)  # fmt: skip
_OPERATORS = (
    MarkupColumn("operators, slowest first", "name", label=""),
    MarkupColumn("precision"),
    *(MarkupColumn(name, "num") for name in ("occurs", "a run", "of all", "untuned", "GFLOP/s", "tried")),
)
_FAMILIES = (MarkupColumn("family", "name", label=""), MarkupColumn("operators", "num"), MarkupColumn("tried", "num"))
_WARNING = "notice notice-warn"
_HISTORY = (
    MarkupColumn("when (UTC)", label=""),
    MarkupColumn("state", label=""),
    MarkupColumn("why", "reason", label=""),
)
_FADES = "linear-gradient(to right, var(--faint) 60%, transparent)"


def stand(job: Job, said: str, doing: str, device: str) -> str:
    """The state of the job, and the stages that run now."""
    parts = [tag("div", [chip(job.state.value, job.state.value), tag("span", text(said))], class_="line")]
    if not job.state.over:
        at = _WAY.index(job.state)
        steps = (
            tag(
                "li",
                text(state.value),
                aria_current="step" if number == at else None,
                class_="past" if number < at else None,
            )
            for number, state in enumerate(_WAY)
        )
        parts.append(tag("ol", steps, class_="stage-step", aria_label="Progress of the job"))
        waiting = (job.reason if job.state is JobStatus.QUEUED else "") or "waiting for its turn"
        parts.append(tag("p", text(f"Now: {doing or waiting}"), class_="faint small"))
    asked = f"{describe_request(job.wanted)}; on {device}; submitted {moment(job.created)} UTC"
    parts.append(tag("p", text(asked), class_="faint small"))
    return tag("div", parts, class_="stack")


def flags(report: RunReport) -> str:
    """What of a result is uncertain, and what could not be compared."""
    lists = (("Uncertain", report.uncertain), ("Not compared", report.not_compared))
    return "".join(
        tag("div", tag("strong", title) + tag("ul", (tag("li", text(line)) for line in lines)), class_=_WARNING)
        for title, lines in lists
        if lines
    )


def failures(job: Job, measured: int) -> str:
    """Why it has no result, and what to do; so many programs were `measured`."""
    if job.state is JobStatus.FAILED:
        kept = f"What it measured is kept ({counted(measured, 'program')})" if measured else "Nothing was measured yet"
        onward = "the same again would fail likewise: change the request" if job.refused else "it can be tried again"
        said = f"{kept}; {onward}."
        details = "" if job.log is None else " The log below has the details."
        why = notice(f"It failed: {plain_reason(job.reason) or 'no cause is known'}", "bad")
        return why + tag("p", said + details, class_="faint")
    if job.state is JobStatus.CANCELLED:
        return notice(f"It was cancelled{f': {job.reason}' if job.reason not in ('', 'cancelled') else ''}.")
    return ""


def webhook_part(calls: Sequence[WebhookOutcome]) -> str:
    """What came of the calls of its webhook; empty where it has none."""
    return (
        _card("Webhook", (tag("p", text(f"{call.words[0].upper()}{call.words[1:]}.")) for call in calls))
        if calls
        else ""
    )


def removed_files(job: Job, name: str) -> str:
    """Says when the files of the job were removed, if they were, and how to have the executable again."""
    if job.files_removed is None:
        return ""
    when = f"removed on {moment(job.files_removed)} UTC"
    if job.state is not JobStatus.DONE:
        return notice(f"Its log was {when}.")
    said = f"Its executable and its log were {when}. A new job with this model makes both again from what was measured."
    report = link("Report (JSON)", f"/api/v1/jobs/{job.id}/report", class_="button", download=f"{name}.report.json")
    return notice(said) + tag("p", report)


def latencies(report: RunReport) -> str:
    """Latencies by runtime, as bars, timed in turns; the bar of an untuned network that is far slower fades out."""
    latency = report.latency_ms
    medians = {"Kintune": latency.tuned, **latency.rivals, "untuned": latency.untuned}
    ran = {name: value for name, value in medians.items() if value is not None}
    if not ran:
        return ""
    longest = max((value for name, value in ran.items() if name != "untuned"), default=max(ran.values()))
    rows = []
    for name, value in ran.items():
        spread = latency.spread.get("tuned" if name == "Kintune" else name)
        between = "" if spread is None else f"{milliseconds(spread.p10)} to {milliseconds(spread.p90)}"
        other = FastestBaseline.of({name: value}, latency.tuned, latency.paired)
        share = "" if name in ("Kintune", "untuned") or other is None else share_of(other)
        wide = f"width:{100 * min(1.0, value / longest):.1f}%"
        colour = "" if name == "Kintune" else f";background:{_FADES if value > longest else 'var(--faint)'}"
        bar = tag("i", class_="share", style=wide + colour)
        rows.append([text(name) + bar, milliseconds(value), between, share])
    said = [describe_medians(latency), *(f"{name} was not compared: {why}" for name, why in report.skipped.items())]
    left_out = "".join(tag("p", text(line), class_="faint small") for line in said if line)
    return _card("Latency, timed in turns", table("Latencies", _LATENCIES, rows) + left_out)


def result_facts(report: RunReport, hybrid: Hybrid | None) -> str:
    """What there is to know of a result, in words."""
    error, kind = describe_error(report)
    facts = {
        "Outputs": tag("span", text(error), class_=kind or None),
        "Precision": text(describe_precision(report)),
        "Runs": text(describe_where(hybrid)),
        "Search": text(
            f"{counted(report.trials, 'program')} measured in {duration(report.seconds)}"
            f"{f', {report.reused_records} known before' if report.reused_records else ''}; {REASONS[report.reason]}"
        ),
    }
    if report.score is not None:
        facts["Score"] = f"{report.score:.6g}"
    if report.failures:
        some = list(report.failures.items())[:_MOST_CAUSES]
        causes = ", ".join(f"{cause} {count}" for cause, count in some)
        facts["Failed candidates"] = text(f"{sum(report.failures.values())} ({causes}); a few failures are normal")
    listed = "".join(tag("dt", name) + tag("dd", value) for name, value in facts.items())
    parts = [tag("dl", listed, class_="facts"), *(notice(note) for note in report.notes)]
    return _card("Result", tag("div", parts, class_="stack"))


def where_part(hybrid: Hybrid | None) -> str:
    """The regions of a result that runs partly in onnxruntime, and why the other nodes are there."""
    if hybrid is None or not (hybrid.nodes or hybrid.operators):
        return ""
    regions = (
        tag("li", text(f"Region {number}: {counted(len(region.nodes), 'node')} ({_some(region.nodes)})"))
        for number, region in enumerate(hybrid.regions)
    )
    why = (tag("li", text(f"{node}: {reason}")) for node, reason in list(hybrid.nodes.items())[:50])
    parts = [
        tag("h3", "As Kintune's kernels"), tag("ul", regions),
        tag("h3", f"In onnxruntime: {text(hybrid.left)}"), tag("ul", why),
    ]  # fmt: skip
    return _card("Runtime of each node", parts)


def operators_table(operators: Sequence[NetworkOperator], *, is_profiled: bool) -> str:
    """A row for each distinct operator, by the user's nodes, the slowest first: what the search has made of it."""
    if not operators:
        return ""
    title = "Gain of the search" if is_profiled else "Where the time goes"
    shown = table(title, _OPERATORS, (_operator_row(each) for each in operators[:_MOST_ROWS]))
    said = "Times of one run of each, as measured alone."
    if not is_profiled:
        said += " kintune profile MODEL.kt says what bounds each inside the network, on the machine where it runs."
    rest = "" if len(operators) <= _MOST_ROWS else f" {left_out(len(operators) - _MOST_ROWS)}"
    return _card(title, shown + tag("p", text(said + rest), class_="faint small"))


def _operator_row(each: NetworkOperator) -> list[str]:
    others = "".join(tag("li", text(title)) for title in each.titles[1:_MOST_TITLES])
    if len(each.titles) > _MOST_TITLES:
        others += tag("li", f"and {len(each.titles) - _MOST_TITLES} more")
    number = max(len(each.titles), each.occurs)
    more = ""
    if others:
        key = f"same-{each.key}"
        more = tag("details", tag("summary", f"and {number - 1} like it", class_="small") + tag("ul", others), id=key)
    bar = tag("i", class_="share", style=f"width:{100 * each.share:.1f}%")
    return [
        text(each.title) + more + bar,
        text(each.precision),
        str(each.occurs),
        "" if each.us is None else _us(each.us),
        f"{each.share:.1%}",
        "" if each.untuned_us is None else _us(each.untuned_us),
        "" if each.gflops is None else f"{each.gflops:.0f}",
        f"{each.trials}{f', {each.failed} failed' if each.failed else ''}",
    ]


def families_map(families: Sequence[SearchedFamily]) -> str:
    """A bar for each family, as long as its time, cut into its operators, with the largest of them by name."""
    shown = [family for family in families if family.share > 0]
    if not shown:
        return ""
    return _card("Families", tag("div", (_family_part(family, shown[0].share) for family in shown), class_="stack"))


def _family_part(family: SearchedFamily, largest: float) -> str:
    number = len(family.operators)
    head = f"{family.name}: {family.share:.0%} of the time, {counted(number, 'operator')}"
    segments = (
        tag(
            "i", style=f"width:{100 * each.share / largest:.2f}%;opacity:{1 - 0.1 * (place % _SHADES):.1f}",
            title=f"{each.title}: {each.share:.1%}, {_us(each.total_us)}",
        )
        for place, each in enumerate(family.operators)
        if each.share > 0
    )  # fmt: skip
    said = "; ".join(f"{each.title} {each.share:.0%}" for each in family.operators[:3] if each.share >= 0.005)
    bar = tag("div", segments, class_="track", role="img", aria_label=head)
    return tag("div", [tag("p", text(head)), bar, tag("p", text(said), class_="faint small")])


def families_under_way(families: Iterable[FamilyProgress]) -> str:
    """The trials of each family so far."""
    found = sorted(families, key=lambda family: -family.trials)
    most = max((family.trials for family in found), default=0)
    if not found:
        return ""
    rows = []
    for family in found:
        bar = tag("i", class_="share", style=f"width:{100 * family.trials / most if most else 0:.1f}%")
        name = text(family.key.partition(":")[2] or family.key)
        rows.append([name + bar, str(family.subgraphs), str(family.trials)])
    return _card("Families, by programs measured", table("Families", _FAMILIES, rows))


def download_link(job: Job, name: str) -> str:
    """The button that downloads its executable."""
    target = f"/api/v1/jobs/{job.id}/executable"
    return link("Download", target, class_="button main", download=f"{name}.kt", id="download")


def downloads(job: Job, name: str, size: int | None, *, has_exports: bool, hybrid: Hybrid | None) -> str:
    """Everything that can be downloaded, and what to write to use it."""
    base = f"/api/v1/jobs/{job.id}"
    partly = hybrid is not None
    links = [link(f"{name}.kt{f' ({size / 1e6:.1f} MB)' if size else ''}", f"{base}/executable", class_="button",
                  download=f"{name}.kt")]  # fmt: skip
    kinds = (("wheel", "Python wheel"), ("onnx", "For onnxruntime"), ("c", "For C and C++"))
    if has_exports:
        links += [
            link(words, f"{base}/export/{kind}", class_="button", download="")
            for kind, words in kinds
            if kind != "c" or not partly
        ]
    links.append(link("Report (JSON)", f"{base}/report", class_="button", download=f"{name}.report.json"))
    parts = [tag("div", links, class_="line")]
    if has_exports:
        parts += [_snippet(each) for each in snippets(name, partly)]
    return _card("Take it with you", tag("div", parts, class_="stack"))


def _snippet(each: Snippet) -> str:
    key = f"snippet-{each.key}"
    button = tag("button", "Copy", type="button", class_="button", data_copies=key)
    block = tag("div", [tag("pre", text(each.lines), id=key, tabindex="0"), button], class_="snippet")
    said = tag("p", f"Needs {text(each.needs)}.", class_="faint small")
    return tag("details", [tag("summary", f"Use it in {text(each.language)}"), block, said], id=f"use-{each.key}")


def history(steps: Sequence[JobStep]) -> str:
    """The state transitions of the job."""
    rows = (
        [moment(step.at), chip(step.state.value, step.state.value), text(plain_reason(step.reason))] for step in steps
    )
    return tag("details", [tag("summary", "History"), table("History", _HISTORY, rows)], id="history")


def log_part(job: Job, tail: str, *, is_cut: bool) -> str:
    """The end of the log, and a link to all of it."""
    if job.log is None:
        ended = "It has no log." if job.files_removed is None else "The log was removed."
        words = ended if job.state.over else "The log is shown here when the job ends."
        return tag("details", [tag("summary", "Log"), tag("p", words, class_="faint")], id="log")
    parts = [
        tag("summary", "Log"),
        tag("p", "The last lines:", class_="faint small") if is_cut else "",
        tag("pre", text(tail) or "The log is empty.", tabindex="0"),
        tag("p", link("The whole log", f"/api/v1/jobs/{job.id}/log", download=f"{job.id}.log")),
    ]
    return tag("details", parts, id="log")


def _card(title: str, content: str | Iterable[str]) -> str:
    inside = content if isinstance(content, str) else "".join(content)
    return tag("section", tag("h2", text(title)) + inside, class_="card")


def _some(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _us(value: float) -> str:
    return milliseconds(value / 1e3)
