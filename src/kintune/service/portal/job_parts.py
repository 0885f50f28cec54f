"""The parts of a job's page as markup: state, latencies, operators, families, downloads, history, log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kintune.core.hybrid import Hybrid
from kintune.core.report import FamilyProgress, RunReport
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
    snippets,
)
from kintune.service.portal.markup import Heading, chip, link, notice, table, tag, text
from kintune.service.portal.operators import Family, Operator
from kintune.terminal.comparison import gain_of
from kintune.terminal.formatting import counted, duration, milliseconds
from kintune.terminal.summary import REASONS

__all__ = [
    "downloads",
    "failures",
    "families_map",
    "families_under_way",
    "history",
    "latencies",
    "log_part",
    "operators_table",
    "removed_files",
    "result_facts",
    "stand",
    "where_part",
]

_WAY = (JobStatus.QUEUED, JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING, JobStatus.DONE)
_MOST_TITLES = 12
_MOST_ROWS = 200
_MOST_CAUSES = 8
_SHADES = 6
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


def failures(job: Job) -> str:
    """Why it has no result, and what to do."""
    if job.state is JobStatus.FAILED:
        details = "" if job.log is None else " The log below has the details."
        kept = f"Its measurements are kept, and a retry continues from them.{details}"
        return notice(f"It failed: {job.reason or 'no cause is known'}", "bad") + tag("p", kept, class_="faint")
    if job.state is JobStatus.CANCELLED:
        return notice(f"It was cancelled{f': {job.reason}' if job.reason not in ('', 'cancelled') else ''}.")
    return ""


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
    headings = [Heading("runtime"), Heading("median", True), Heading("8 of 10 runs", True), Heading("Kintune is", True)]
    rows = []
    for name, value in ran.items():
        spread = latency.spread.get("tuned" if name == "Kintune" else name)
        between = "" if spread is None else f"{milliseconds(spread.p10)} to {milliseconds(spread.p90)}"
        share = "" if name == "Kintune" or not latency.tuned else f"{latency.tuned / value:.2f} of that"
        wide = f"width:{100 * min(1.0, value / longest):.1f}%"
        colour = "" if name == "Kintune" else f";background:{_FADES if value > longest else 'var(--faint)'}"
        cells = [
            tag("td", text(name) + tag("i", class_="share", style=wide + colour), class_="name"),
            *(tag("td", cell, class_="num") for cell in (milliseconds(value), between, share)),
        ]
        rows.append(tag("tr", cells))
    left_out = "".join(
        tag("p", text(f"{name} was not compared: {why}"), class_="faint small") for name, why in report.skipped.items()
    )
    return _card("Latency, timed in turns", table("Latencies", headings, rows) + left_out)


def result_facts(report: RunReport, hybrid: Hybrid | None) -> str:
    """What there is to know of a result, in words."""
    error, is_fine = describe_error(report)
    facts = {
        "Outputs": tag("span", text(error), class_=None if is_fine else "bad"),
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
    notes = "".join(notice(note) for note in report.notes)
    return _card("Result", tag("dl", listed, class_="facts") + notes)


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


def operators_table(operators: Sequence[Operator], *, is_profiled: bool) -> str:
    """A row for each distinct operator, by the user's nodes, the slowest first: what the search has made of it."""
    if not operators:
        return ""
    names = (
        ("operators, slowest first", False), ("precision", False), ("occurs", True), ("a run", True),
        ("of all", True), ("untuned", True), ("GFLOP/s", True), ("tried", True),
    )  # fmt: skip
    rows = (_operator_row(each) for each in operators[:_MOST_ROWS])
    title = "Gain of the search" if is_profiled else "Where the time goes"
    shown = table(title, [Heading(name, number) for name, number in names], rows)
    said = "Times of one run of each, as measured alone."
    if not is_profiled:
        said += " kintune profile MODEL.kt says what bounds each inside the network, on the machine where it runs."
    rest = "" if len(operators) <= _MOST_ROWS else f" {left_out(len(operators) - _MOST_ROWS)}"
    return _card(title, shown + tag("p", text(said + rest), class_="faint small"))


def _operator_row(each: Operator) -> str:
    others = "".join(tag("li", text(title)) for title in each.titles[1:_MOST_TITLES])
    if len(each.titles) > _MOST_TITLES:
        others += tag("li", f"and {len(each.titles) - _MOST_TITLES} more")
    number = max(len(each.titles), each.occurs)
    more = ""
    if others:
        key = f"same-{each.key}"
        more = tag("details", tag("summary", f"and {number - 1} like it", class_="small") + tag("ul", others), id=key)
    bar = tag("i", class_="share", style=f"width:{100 * each.share:.1f}%")
    untuned = "" if each.untuned_us is None else _us(each.untuned_us)
    if each.gain is not None:
        untuned += tag("span", f"{gain_of(each.gain)} as fast", class_="under")
    cells = [
        tag("td", text(each.title) + more + bar, class_="name"),
        tag("td", text(each.precision)),
        tag("td", str(each.occurs), class_="num"),
        tag("td", "" if each.us is None else _us(each.us), class_="num"),
        tag("td", f"{each.share:.1%}", class_="num"),
        tag("td", untuned, class_="num"),
        tag("td", "" if each.gflops is None else f"{each.gflops:.0f}", class_="num"),
        tag("td", f"{each.trials}{f', {each.failed} failed' if each.failed else ''}", class_="num"),
    ]
    return tag("tr", cells)


def families_map(families: Sequence[Family]) -> str:
    """A bar for each family, as long as its time, cut into its operators, with the largest of them by name."""
    shown = [family for family in families if family.share > 0]
    if not shown:
        return ""
    return _card("Families", tag("div", (_family_part(family, shown[0].share) for family in shown), class_="stack"))


def _family_part(family: Family, largest: float) -> str:
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
    """The trials and the gain of each family so far."""
    found = sorted(families, key=lambda family: -family.trials)
    most = max((family.trials for family in found), default=0)
    if not found:
        return ""
    headings = [Heading("family"), Heading("operators", True), Heading("tried", True), Heading("best gain", True)]
    rows = []
    for family in found:
        bar = tag("i", class_="share", style=f"width:{100 * family.trials / most if most else 0:.1f}%")
        cells = [
            tag("td", text(family.key.partition(":")[2] or family.key) + bar, class_="name"),
            tag("td", str(family.subgraphs), class_="num"),
            tag("td", str(family.trials), class_="num"),
            tag("td", f"{gain_of(family.best_gain)} untuned", class_="num"),
        ]
        rows.append(tag("tr", cells))
    return _card("Families, by programs measured", table("Families", headings, rows))


def downloads(job: Job, name: str, size: int | None, *, has_exports: bool, hybrid: Hybrid | None) -> str:
    """Everything that can be downloaded, and what to write to use it."""
    base = f"/api/v1/jobs/{job.id}"
    partly = hybrid is not None
    links = [
        link(f"{name}.kt{f' ({size / 1e6:.1f} MB)' if size else ''}", f"{base}/executable", class_="button main",
             download=f"{name}.kt", id="download")
    ]  # fmt: skip
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
        tag("tr", [tag("td", moment(step.at)), tag("td", chip(step.state.value, step.state.value)), _reason(step)])
        for step in steps
    )
    headings = [Heading("when (UTC)"), Heading("state"), Heading("why")]
    return tag("details", [tag("summary", "History"), table("History", headings, rows)], id="history")


def _reason(step: JobStep) -> str:
    return tag("td", text(step.reason), class_="reason")


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
