"""A report as one HTML page to send to a colleague: the speedup, the curve, the operators, the failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from kintune.core.config import Options
from kintune.core.constraints import described
from kintune.core.failure_report import AnyReport, FailureReport
from kintune.core.model import spell_shapes
from kintune.core.report import BaselineVerdict, CampaignReport, RunReport, StopReason, SubgraphReport
from kintune.profiling.page import profile_section
from kintune.profiling.page_style import html_document
from kintune.terminal.comparison import describe_result, share_of
from kintune.terminal.curve_picture import curve_svg
from kintune.terminal.formatting import clock, counted, milliseconds
from kintune.terminal.summary import REASONS, error_lines, gain_lines

__all__ = ["report_page"]

_MOST_CAUSES = 20
_OURS = "Kintune"
_DEFAULTS = Options()


def report_page(report: AnyReport) -> bytes:
    """The page, in UTF-8, without scripts or outside files."""
    if isinstance(report, CampaignReport):
        names = [*(run.model.name for run in report.runs), *(failed.model for failed in report.failed)]
        return html_document(
            f"{counted(len(names), 'model')} tuned{' together' if len(names) > 1 else ''}",
            _campaign(report, len(names)),
        )
    return html_document(f"{report.model.name}: report", _one(report))


def _campaign(report: CampaignReport, number: int) -> Iterator[str]:
    tuned = "1 model was tuned" if number == 1 else f"{number} models were tuned together"
    yield f'<p class="facts">{tuned}, policy {escape(report.policy)}.</p>'
    for failed in report.failed:
        yield f'<h1>{escape(failed.model)}: <span class="slower">no result</span></h1>'
        yield f"<p>{escape(failed.error)}: {escape(failed.reason)}</p>"
    for run in report.runs:
        yield from _one(run)


def _one(report: RunReport | FailureReport) -> Iterator[str]:
    if isinstance(report, FailureReport):
        yield from _failed_head(report)
    else:
        yield from _head(report)
        yield from _latencies(report)
        yield from _combinations(report)
        yield from _curve(report)
        if report.profile is not None:
            yield from profile_section(report.profile)
    yield from _operators(report.subgraphs)
    yield from _causes(report.failures, is_normal=isinstance(report, RunReport))
    if isinstance(report, RunReport):
        yield from _times(report)
    yield from _facts(report)


def _head(report: RunReport) -> Iterator[str]:
    latency = report.latency_ms
    fastest = latency.fastest_baseline
    verdict = fastest.verdict if fastest is not None else None
    kind = {BaselineVerdict.FASTER: "faster", BaselineVerdict.SLOWER: "slower"}.get(verdict, "") if verdict else ""
    name = escape(report.model.name)
    if latency.tuned is None and report.reason is StopReason.COMPILED:
        yield f"<h1>{escape(gain_lines(report)[0].rstrip('.'))}</h1>"
    elif latency.tuned is None:
        yield f"<h1>{name}: {'tuned' if report.trials else 'compiled'}, not timed as a whole</h1>"
    else:
        said = describe_result(latency)
        won = f', <span class="{kind}">{escape(said)}</span>' if said else ""
        yield f"<h1>{name}: {milliseconds(latency.tuned)}{won}</h1>"
    known = f", {report.reused_records} known before" if report.reused_records else ""
    yield (
        f'<p class="facts">{counted(report.trials, "program")} measured{known}, in {clock(report.seconds)}; '
        f"{escape(REASONS[report.reason])}. Run {escape(report.run_id)}.</p>"
    )
    if report.within_tolerance is False:
        yield '<p class="note">The outputs of the result differ from those of the model by MORE than the tolerance.</p>'
    for line in error_lines(report):
        yield f'<p class="facts">{escape(line)}</p>'
    for kind, lines in (("Not compared", report.not_compared), ("Uncertain", report.uncertain)):
        yield from (f'<p class="note">{kind}: {escape(line)}</p>' for line in lines)
    for note in report.notes:
        yield f'<p class="note">{escape(note)}</p>'


def _failed_head(report: FailureReport) -> Iterator[str]:
    yield f'<h1>{escape(report.model.name)}: <span class="slower">no result</span></h1>'
    yield f'<p class="note">{escape(report.error)}: {escape(report.cause)}</p>'
    run = f" Run {escape(report.run_id)}." if report.run_id else ""
    yield f'<p class="facts">{counted(report.trials, "program")} measured, in {clock(report.seconds)}.{run}</p>'
    if report.story:
        yield "<details><summary>The last events</summary>"
        yield from (f"<div>{escape(line)}</div>" for line in report.story)
        yield "</details>"


def _latencies(report: RunReport) -> Iterator[str]:
    """Yields the latencies as bars; an untuned network that is far slower gets a shortened bar."""
    latency = report.latency_ms
    medians = {_OURS: latency.tuned, **latency.rivals, "untuned": latency.untuned}
    ran = {name: value for name, value in medians.items() if value is not None}
    if not ran:
        return
    yield "<h2>Latency, timed in turns</h2><div class=wide tabindex=0><table><thead><tr><th>runtime</th><th>median</th>"
    yield "<th>8 of 10 runs</th><th>runs</th><th>Kintune takes</th>"
    yield '<th class="text" style="width:45%"></th></tr></thead>'
    longest = max((value for name, value in ran.items() if name != "untuned"), default=max(ran.values()))
    for name, value in ran.items():
        spread = latency.spread.get("tuned" if name == _OURS else name)
        between = "" if spread is None else f"{milliseconds(spread.p10)} to {milliseconds(spread.p90)}"
        runs = "" if spread is None else str(spread.runs)
        share = "" if name == _OURS or not latency.tuned else f"{latency.tuned / value:.2f} of that"
        colour = "var(--accent)" if name == _OURS else "var(--faint)"
        if value > longest:  # it goes on beyond the picture
            colour = f"linear-gradient(to right,{colour},transparent)"
        bar = f'<i class="share" style="width:{100 * min(1.0, value / longest):.1f}%;background:{colour}"></i>'
        cells = "".join(f"<td>{cell}</td>" for cell in (escape(name), milliseconds(value), between, runs, share))
        yield f'<tr>{cells}<td class="text">{bar}</td></tr>'
    yield "</table></div>"
    for name, why in sorted(report.skipped.items()):
        yield f'<p class="facts">{escape(name)} was not compared: {escape(why)}</p>'


def _combinations(report: RunReport) -> Iterator[str]:
    """A row for each combination of shapes."""
    if not report.combinations:
        return
    yield "<h2>Latency with each combination of shapes</h2><div class=wide tabindex=0><table><thead><tr>"
    yield "<th>shapes</th><th>Kintune</th><th>fastest other runtime</th><th>Kintune takes</th><th>largest error</th>"
    yield "</tr></thead><tbody>"
    for each in report.combinations:
        fastest, tuned = each.latency_ms.fastest_baseline, each.latency_ms.tuned
        cells = (
            escape(spell_shapes(each.shapes)),
            "" if tuned is None else milliseconds(tuned),
            "" if fastest is None else escape(f"{fastest.name}, {milliseconds(fastest.ms)}"),
            "" if fastest is None or fastest.ratio is None else f"{share_of(fastest)} of that",
            "" if each.max_abs_error is None else f"{each.max_abs_error:.1e}",
        )
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div>"


def _curve(report: RunReport) -> Iterator[str]:
    lines = report.baselines_before_ms or report.latency_ms.rivals
    picture = curve_svg(report.curve, dict(sorted(lines.items(), key=lambda item: item[1])))
    if picture:
        yield f"<h2>The search</h2><div class=wide tabindex=0>{picture}</div>"


def _operators(subgraphs: Sequence[SubgraphReport]) -> Iterator[str]:
    """A row for each distinct subgraph, the one with the largest part of the time first."""
    if not subgraphs:
        return
    whole = sum(_total_us(each) for each in subgraphs)
    columns = ("operators", "family", "occurs", "a run", "untuned", "together", "share", "GFLOP/s", "tried", "failed")
    yield "<h2>Gain of the search, by operator</h2><div class=wide tabindex=0><table><thead><tr>"
    yield "".join(f"<th>{name}</th>" for name in columns) + "</tr></thead><tbody>"
    for each in sorted(subgraphs, key=lambda each: -_total_us(each)):
        total = _total_us(each)
        share = total / whole if whole else 0.0
        bar = f'<i class="share" style="width:{60 * share:.1f}px;background:var(--accent)"></i>'
        cells = (
            escape(each.title),
            escape(each.family),
            str(each.weight),
            "" if each.best_us is None else _us(each.best_us),
            "" if each.untuned_us is None else _us(each.untuned_us),
            _us(total) if total else "",
            f"{share:.1%}{bar}" if total else "",
            f"{each.flops / each.best_us / 1e3:.1f}" if each.best_us and each.flops else "",
            str(each.trials),
            str(sum(each.failures.values()) or ""),
        )
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div>"


def _causes(failures: Mapping[str, int], *, is_normal: bool) -> Iterator[str]:
    if not failures:
        return
    yield "<h2>Candidates that failed</h2>"
    if is_normal:
        yield '<p class="facts">This is normal as long as most do not.</p>'
    yield "<div class=wide tabindex=0><table><tbody>"
    for cause, number in list(failures.items())[:_MOST_CAUSES]:
        yield f"<tr><td>{escape(cause)}</td><td>{number}</td></tr>"
    yield "</tbody></table></div>"
    if len(failures) > _MOST_CAUSES:
        yield f'<p class="facts">and {counted(len(failures) - _MOST_CAUSES, "more cause")}</p>'


def _times(report: RunReport) -> Iterator[str]:
    spent = report.stage_seconds
    stages = {"choose": spent.select, "build": spent.build, "measure": spent.profile, "learn": spent.update}
    stages["other"] = spent.other
    since = ", since it was resumed" if report.resumed else ""
    yield f"<h2>Tuning time by stage{since}</h2><div class=wide tabindex=0><table><tbody>"
    for name, seconds in stages.items():
        yield f"<tr><td>{name}</td><td>{clock(seconds)}</td></tr>"
    yield "</tbody></table></div>"


def _facts(report: RunReport | FailureReport) -> Iterator[str]:
    facts = {
        "target": report.target,
        "options": _options(report.options),
        "seeds": _listed(report.seeds),
        "versions": _listed(report.versions),
        "executable": report.output if isinstance(report, RunReport) else f"{report.output} was not written",
        "log": report.log or "",
        "digest of the model": report.model.digest,
    }
    yield "<h2>Run settings</h2><div class=wide tabindex=0><table><tbody>"
    for name, value in facts.items():
        if value:
            yield f'<tr><td>{name}</td><td class="text">{escape(value)}</td></tr>'
    yield "</tbody></table></div>"


def _options(options: Options) -> str:
    """The limits of the search, families and seed, and all else that was chosen."""
    limits = {"trials": options.trials, "minutes": options.minutes, "until": options.until}
    said = [f"{name} {value}" for name, value in limits.items() if value is not None]
    return ", ".join([*said, f"families {options.strategy.families}", f"seed {options.seed}", *_chosen(options)])


def _chosen(options: Options) -> Iterator[str]:
    """The options besides limits that are not as they are by default."""
    if not options.kin:
        yield "without records of other workloads"
    if (options.rtol, options.atol) != (_DEFAULTS.rtol, _DEFAULTS.atol):
        yield f"tolerances {options.rtol:g} (relative) and {options.atol:g} (absolute)"
    yield from described(options)
    if options.precision != _DEFAULTS.precision:
        yield f"precision {options.precision}"
    if options.weights:
        yield f"weights of {options.weights} bits"
    if options.metric is not None:
        yield f"metric {options.metric.name}, of which {options.metric.max_drop:g} may be lost"
    elif options.error_budget is not None:
        yield f"error of at most {options.max_error:g}"


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _total_us(subgraph: SubgraphReport) -> float:
    return subgraph.weight * (subgraph.best_us or 0.0)


def _us(value: float) -> str:
    return milliseconds(value / 1e3)
