"""The final summary of a run: first the speedup over other runtimes, then the details."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from kintune.core.kernel_bounds import KernelBounds
from kintune.core.model import spell_shapes
from kintune.core.quantisation import Quantised
from kintune.core.report import BaselineVerdict, RunReport, StopReason
from kintune.terminal.comparison import describe_against, describe_medians, describe_result
from kintune.terminal.formatting import clock, counted, describe_interference, milliseconds

__all__ = ["REASONS", "error_lines", "extreme_lines", "gain_lines", "summarize"]

_MAX_CAUSES = 6
REASONS = {
    StopReason.TRIALS: "all trials were spent",
    StopReason.TIME: "the time limit was reached",
    StopReason.TARGET_MET: "the target latency was reached",
    StopReason.CONVERGED: "no further gain was expected",
    StopReason.INTERRUPTED: "it was interrupted",
    StopReason.COMPILED: "no search was requested",
}
"""Why a search ended, in words."""


def summarize(
    report: RunReport, written: Path | None = None, job: str = "", files_removed: float | None = None
) -> list[str]:
    """The final summary, a line each.

    `written` is the file of the report itself; `job` is the job of a service that it is about, if it is, and
    `files_removed` when its files were (seconds since 1970).
    The comparison with the fastest other runtime comes first, after a warning if the outputs differ too much.
    """
    return [
        *_bad_news(report),
        *gain_lines(report),
        *(f"Uncertain: {line}" for line in report.uncertain),
        *report.notes,
        *_latencies(report),
        *_combinations(report),
        *error_lines(report),
        *(f"Not compared: {line}" for line in report.not_compared),
        *_bounds(report),
        *_regions(report),
        *_search(report),
        *_others(report),
        *_kin(report),
        *_failures(report),
        *(_at_service(report, job, files_removed) if job else [*_whereabouts(report, written), *_next_steps(report)]),
    ]


def _bad_news(report: RunReport) -> list[str]:
    if report.within_tolerance is False:
        return ["The outputs of the result differ from the model's by MORE than the tolerance."]
    return []


def gain_lines(report: RunReport) -> list[str]:
    """What was won, first over all; then a line on each combination of shapes that is slower than another runtime."""
    name, latency = report.model.name, report.latency_ms
    if report.reason is StopReason.COMPILED:
        measured = "without measuring anything" if report.options.error_budget is None else "its error measured"
        return [f"{name}: compiled, {measured}; its stages took {clock(report.seconds)}."]
    if report.combinations:
        name = f"{name}, one run with each of {len(report.combinations)} combinations of shapes"
    if latency.tuned is None:
        return [f"{name}: {'tuned' if report.trials else 'compiled'}; it was not timed as a whole."]
    said = describe_result(latency)
    return [f"{name}: {milliseconds(latency.tuned)}{f', {said}' if said else ' tuned'}.", *_slower(report)]


def _slower(report: RunReport) -> list[str]:
    lines = []
    for each in report.combinations:
        fastest = each.latency_ms.fastest_baseline
        if fastest is not None and fastest.verdict is BaselineVerdict.SLOWER:
            took = milliseconds(each.latency_ms.tuned or 0.0)
            lines.append(f"  with {spell_shapes(each.shapes)}: {took}, {describe_against(fastest)}.")
    return lines


def _bounds(report: RunReport) -> list[str]:
    """How many kernels are known to stay inside of their buffers, where it is not all that is proven."""
    is_proven = all(not each.unproven for each in report.bounds)
    return [] if is_proven else [f"{KernelBounds.described(report.bounds)}."]


def _latencies(report: RunReport) -> list[str]:
    latency = report.latency_ms
    medians = {"tuned": latency.tuned, **latency.rivals, "untuned": latency.untuned}
    wide = 20 if latency.onnxruntime_flushing is not None else 12
    lines = []
    for name, median in medians.items():
        spread = latency.spread.get(name)
        if median is not None and spread is not None:
            lines.append(
                f"  {name:<{wide}} {milliseconds(median):>9}   "
                f"(8 of 10 runs between {milliseconds(spread.p10)} and {milliseconds(spread.p90)})"
            )
    if said := describe_medians(latency):
        lines.append(f"  {said}")
    if latency.onnxruntime_flushing is not None:
        lines.append("  (onnxruntime_flushing has session.set_denormal_as_zero, an option of onnxruntime)")
    lines.extend(f"  {name:<{wide}} not compared: {reason}" for name, reason in sorted(report.skipped.items()))
    return lines


def _combinations(report: RunReport) -> list[str]:
    """A line for each combination of shapes: who took how long."""
    lines = []
    for each in report.combinations:
        times_ms = each.latency_ms
        medians = {"tuned": times_ms.tuned, **times_ms.rivals, "untuned": times_ms.untuned}
        ran = [f"{milliseconds(median)} {name}" for name, median in medians.items() if median is not None]
        if ran:
            lines.append(f"  with {spell_shapes(each.shapes)}: {', '.join(ran)}")
    return lines


def error_lines(report: RunReport) -> list[str]:
    """How far its outputs are from the model's, and what computes narrower than the model's types."""
    if report.max_abs_error is None or report.max_rel_error is None:
        return [] if report.not_compared else ["Its outputs were not compared with a reference."]
    if report.quantised is not None and report.quantised.int8:
        return [*_quantised(report, report.quantised), *_score(report), *_norm_error(report)]
    if report.narrow:
        return _narrow_errors(report)
    wide = [] if report.options.precision == "fp32" or report.quantised is not None else [_ALL_WIDE]
    if report.quantised is not None:
        wide = [_NOT_QUANTISED]
    return [
        *wide,
        f"Largest error of its outputs: {report.max_abs_error:.2g} absolute, {report.max_rel_error:.2g} relative"
        f"{_decided(report)}.",
        *extreme_lines(report.extreme_inputs),
    ]


def extreme_lines(names: Sequence[str]) -> list[str]:
    """On which sets of extreme inputs the outputs were right, by the names of these sets, in a line; none without."""
    if not names:
        return []
    return [f"They are right on {counted(len(names), 'further set')} of inputs: {'; '.join(names)}."]


def _decided(report: RunReport) -> str:
    """What decided whether these errors are small enough."""
    if report.within_tolerance is False:
        tolerance = f"{report.options.atol:g} absolute + {report.options.rtol:g} relative"
        return f", MORE than the tolerance of {tolerance}"
    return f"; {report.bound}" if report.bound else ""


def _narrow_errors(report: RunReport) -> list[str]:
    """Lines on what computes narrower than the model's types, and the error that this causes."""
    counts = Counter(report.narrow.values())
    parts = " and ".join(f"{count} in {precision}" for precision, count in sorted(counts.items()))
    share = _share_of_time(report)
    return [
        f"Of {counted(len(report.subgraphs), 'subgraph')}, {parts}{f', with {share:.0%} of the time' if share else ''};"
        " the others in the model's own types.",
        *_kept(report),
        *_score(report),
        *_norm_error(report),
    ]


def _quantised(report: RunReport, quantised: Quantised) -> list[str]:
    """Lines on what computes in which precision, and the error of onnxruntime with the same graph."""
    counts = " and ".join(f"{count} in {precision}" for precision, count in report.precisions.items() if count)
    left = f"; left out because of their error: {_listed(quantised.left)}" if quantised.left else ""
    error = (
        "" if quantised.error is None else f"onnxruntime's error with the same quantised graph: {quantised.error:.2g}."
    )
    what = "large products" if quantised.bits else "convolutions and products"
    return [f"Of {quantised.products} {what}, {counts}{left}.", *filter(None, [error])]


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _norm_error(report: RunReport) -> list[str]:
    if report.norm_error is None:
        return []
    single = f"{report.max_abs_error:.2g}"
    return [
        f"Error of its outputs: {report.norm_error:.2g} of their norm{_allowed(report)};"
        f" largest single error {single}. {_seen(report)}",
    ]


def _seen(report: RunReport) -> str:
    calibrated = report.quantised is not None and not report.quantised.bits
    option = "--calibrate" if calibrated else "--input"
    return _ON_UNSEEN if report.held_back else _ON_SEEN.format(option)


def _kept(report: RunReport) -> list[str]:
    number = report.kept_tensors
    if not number:
        return []
    return [f"{number} tensor{'s' * (number > 1)} between kernels {'are' if number > 1 else 'is'} kept in bf16."]


def _regions(report: RunReport) -> list[str]:
    """A line on each of the first regions that compute narrower than the model's types."""
    narrow = [each for each in report.regions if set(each.precisions) - {"fp32"}]
    lines = []
    for each in narrow[:_MOST_NAMES]:
        parts = " and ".join(f"{count} in {precision}" for precision, count in sorted(each.precisions.items()))
        lines.append(f"Of the subgraphs of {each.name} ({counted(each.nodes, 'node')}), {parts}.")
    rest = len(narrow) - _MOST_NAMES
    return [*lines, f"{counted(rest, 'more region')} like these."] if rest > 0 else lines


def _allowed(report: RunReport) -> str:
    return "" if report.options.metric is not None else f", of {report.options.max_error:g} that is allowed"


def _score(report: RunReport) -> list[str]:
    metric = report.options.metric
    if metric is None or report.score is None:
        return []
    return [
        f"Its score by {metric.name} is {report.score:g}; that of the original model is {metric.reference:g}, of which"
        f" {metric.max_drop:g} may be lost at most."
    ]


_ON_UNSEEN = "Measured on inputs that were not used for the choice."
_ON_SEEN = "Measured on the input that was used for the choice: give several with {} to have some held back."


_NOT_QUANTISED = "Nothing was quantised: no part of the model stayed within the allowed error."
_MOST_NAMES = 4

_ALL_WIDE = "All of it computes in the model's own types: no narrower type was faster within the allowed error."


def _share_of_time(report: RunReport) -> float:
    """The share of the network's time that narrow subgraphs take."""
    times = {each.name: each.weight * (each.best_us or 0.0) for each in report.subgraphs}
    total = sum(times.values())
    return sum(times[name] for name in report.narrow) / total if total else 0.0


def _search(report: RunReport) -> list[str]:
    if report.reason is StopReason.COMPILED:
        return _programs_of_compiled(report)
    reused = f", {report.reused_records} known before" if report.reused_records else ""
    programs = counted(report.trials, "program")
    return [f"{programs} measured{reused}, in {clock(report.seconds)}; {REASONS[report.reason]}."]


def _programs_of_compiled(report: RunReport) -> list[str]:
    """Where the programs of a network that was only compiled come from; nothing where it has none."""
    if not report.subgraphs:
        return []
    if not report.reused_records:
        return ["None of its programs was measured before: all are made by a rule, or are the compiler's default."]
    return [f"{counted(report.reused_records, 'measured program')} known before; the others are made by a rule."]


def _others(report: RunReport) -> list[str]:
    said = describe_interference(report.trials, report.disturbed)
    if not said:
        return []
    return [
        f"{said[0].upper()}{said[1:]}, which takes time and makes times less certain.",
        "  End those programs, or leave a core to them with --threads.",
    ]


def _kin(report: RunReport) -> list[str]:
    use = report.knowledge
    lines = []
    if use.programs or use.models:
        told = [counted(number, noun) for number, noun in ((use.programs, "program"), (use.models, "model")) if number]
        carried = f"; {counted(use.measured, 'trial')} came from them" if use.measured else ""
        lines.append(f"Started from {' and '.join(told)} of similar workloads{carried}.")
    if use.lost:
        lines.append(f"{counted(use.lost, 'record')} of similar workloads are unusable; run 'kintune records check'.")
    return lines


def _failures(report: RunReport) -> list[str]:
    causes = report.failures
    if not causes:
        return []
    shown = list(causes.items())[:_MAX_CAUSES]
    failed = sum(causes.values())
    lines = [f"{counted(failed, 'candidate')} failed; this is normal if it is a minority:"]
    lines.extend(f"  {count:>5}  {cause}" for cause, count in shown)
    if len(causes) > _MAX_CAUSES:
        lines.append(f"  and {counted(len(causes) - _MAX_CAUSES, 'more cause')}; the log lists all")
    return lines


def _whereabouts(report: RunReport, written: Path | None) -> list[str]:
    lines = [f"The executable is {report.output}"]
    if report.log:
        lines.append(f"The log is {report.log}")
    if written is not None:
        lines.append(f"The report is {written}")
    return lines


def _at_service(report: RunReport, job: str, files_removed: float | None) -> list[str]:
    if files_removed is not None:
        day = datetime.fromtimestamp(files_removed, timezone.utc).date().isoformat()
        return [
            f"The files of job {job} were deleted on {day}.",
            "Next: kintune submit MODEL.onnx --compile-only, with the job's options, makes them again from what was "
            "measured",
        ]
    return [f"Next: kintune job download {job} --output {shlex.quote(report.output)}"]


def _next_steps(report: RunReport) -> list[str]:
    lines = [f"Next: kintune evaluate {shlex.quote(report.output)}"]
    if not report.subgraphs:
        return lines  # there is nothing to tune
    if report.reason is StopReason.COMPILED:
        lines.append("      kintune tune makes it faster")
    elif report.reason is not StopReason.CONVERGED:
        lines.append("      run the same command again to continue the search")
    return lines
