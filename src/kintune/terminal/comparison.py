"""Describes in words how a network compares with other runtimes; all such texts are defined here."""

from __future__ import annotations

from kintune.core.paired_ratio import PairedRatio
from kintune.core.report import BaselineVerdict, FastestBaseline, Latencies, ProgressReport
from kintune.terminal.formatting import milliseconds, times

__all__ = [
    "describe_against",
    "describe_estimate",
    "describe_forecast",
    "describe_medians",
    "describe_result",
    "describe_share",
    "describe_untuned",
    "gain_of",
    "ratio_of_medians",
    "share_of",
]

_HARDLY_FASTER = 0.98  # of another runtime's time
_LARGEST = 20.0  # speedup that is said: above it, the other was no rival, or overheads of calls are compared
_LEAST = 1e-9
_ALIKE = 1.05  # times one ratio that another may be without a word on it


def share_of(fastest: FastestBaseline) -> str:
    """The network's share of the fastest other runtime's time: `0.76`, or `0.93 to 1.05` where it is not certain.

    Empty while the share is not known.
    """
    ratio = fastest.interval
    if ratio is None:
        return ""
    low, high = f"{ratio.low:.2f}", f"{ratio.high:.2f}"
    return f"{ratio.ratio:.2f}" if fastest.tells or low == high else f"{low} to {high}"


def gain_of(gain: float) -> str:
    """How many times as fast as an untuned program or network: `1.92x`, or `over 20x`."""
    return times(gain) if gain <= _LARGEST else f"over {_LARGEST:.0f}x"


def describe_share(fastest: FastestBaseline) -> str:
    """The same with what it is a share of: `0.76 of onnxruntime's 1.74 ms`.

    While the share is not known, what that runtime takes.
    """
    if share := share_of(fastest):
        return f"{share} of {fastest.name}'s {milliseconds(fastest.ms)}"
    return f"{fastest.name} takes {milliseconds(fastest.ms)}"


def describe_against(fastest: FastestBaseline) -> str:
    """The speedup over the fastest other runtime, or that there is none; empty while that is not known.

    It stands after the network's own latency: `1.32x as fast as onnxruntime (1.74 ms)`.  What is less certain than the
    speedup is large is said as a range.
    """
    ratio, verdict = fastest.interval, fastest.verdict
    if ratio is None or verdict is None:
        return ""
    theirs = f"{fastest.name} ({milliseconds(fastest.ms)})"
    if verdict is BaselineVerdict.LEVEL:
        return f"level with {theirs}"
    if verdict is BaselineVerdict.UNCERTAIN:
        return f"{describe_share(fastest)}: the timings do not tell which is faster"
    if verdict is BaselineVerdict.FASTER:
        return _as_fast(1.0 / max(ratio.ratio, _LEAST), theirs, 1.0 / ratio.high, fastest.tells)
    slower = times(ratio.ratio) if fastest.tells else f"{times(ratio.low)} to {times(ratio.high)}"
    return f"slower than {fastest.name}: {slower} its {milliseconds(fastest.ms)}"


def _as_fast(gain: float, other: str, least: float, tells: bool) -> str:
    """A speedup over `other`; one that is too large to be a figure of merit is said without its number."""
    if gain > _LARGEST:
        return f"faster than {other}"
    if not tells and times(least) != times(gain):
        return f"at least {times(least)} as fast as {other}"
    return f"{times(gain)} as fast as {other}"


def describe_result(latency: Latencies) -> str:
    """The speedup of a result, in a clause without its latency.

    Against the fastest other runtime; where none ran, against the untuned network; empty where there is nothing.
    """
    if (fastest := latency.fastest_baseline) is not None and fastest.ratio is not None:
        return describe_against(fastest)
    untuned = FastestBaseline.of(
        {} if latency.untuned is None else {"untuned": latency.untuned}, latency.tuned, latency.paired
    )
    if untuned is None or (ratio := untuned.interval) is None:
        return ""
    before = f"the untuned network ({milliseconds(untuned.ms)})"
    if ratio.ratio >= 1.0 or untuned.verdict is BaselineVerdict.LEVEL:
        return f"nothing was gained over {before}"
    if untuned.verdict is BaselineVerdict.UNCERTAIN:
        return f"{share_of(untuned)} of {before}: the timings do not tell which is faster"
    return _as_fast(
        1.0 / max(ratio.ratio, _LEAST), f"untuned ({milliseconds(untuned.ms)})", 1.0 / ratio.high, untuned.tells
    )


def describe_medians(latency: Latencies) -> str:
    """Why the ratio to the fastest other runtime is not that of the medians; empty where it is, or nearly."""
    fastest = latency.fastest_baseline
    if fastest is None or latency.tuned is None or (paired := latency.paired.get(fastest.name)) is None:
        return ""
    return ratio_of_medians(latency.tuned / max(fastest.ms, _LEAST), paired)


def ratio_of_medians(pooled: float, paired: PairedRatio) -> str:
    """Why a ratio of rounds is not that of the medians of all runs, `pooled`; empty where it is, or nearly."""
    if max(pooled, paired.ratio) <= _ALIKE * min(pooled, paired.ratio):
        return ""
    return (
        f"Ratios are those of {paired.rounds} rounds in turns ({paired.ratio:.2f}), not of the medians of all runs"
        f" ({pooled:.2f}): times changed from round to round."
    )


def describe_estimate(report: ProgressReport) -> str:
    """Where a search stands: `estimated 1.32 ms, 0.76 of onnxruntime's 1.74 ms`.

    Where no other runtime was timed, what was gained over the untuned network is said in its place.  It is empty of a
    run that only compiles.
    """
    if not report.searches:
        return ""
    fastest = report.fastest_baseline
    if report.best_ms is None:
        return f"no latency known yet{f'; {describe_share(fastest)}' if fastest is not None else ''}"
    best = f"estimated {milliseconds(report.best_ms)}{' without what runs in onnxruntime' if report.partial else ''}"
    if fastest is not None:
        return f"{best}, {describe_share(fastest)}"
    said = describe_untuned(report)
    return f"{best}, {said}" if said else best


def describe_untuned(report: ProgressReport) -> str:
    """A detail: how the estimate stands against the untuned network; empty while that is not known."""
    if report.gain is None or report.untuned_ms is None:
        return ""
    return _as_fast(report.gain, f"untuned ({milliseconds(report.untuned_ms)})", report.gain, tells=True)


def describe_forecast(report: ProgressReport) -> str:
    """What the result will likely take: `likely 1.10 to 1.30 ms at the end (0.70 to 0.85 of onnxruntime)`.

    Whether little is left to gain is said as well, or that the result will hardly be faster than what else there is.
    Empty while there is no forecast.
    """
    forecast, fastest = report.forecast, report.fastest_baseline
    if forecast is None:
        return ""
    said = f"likely {milliseconds(forecast.low_ms)} to {milliseconds(forecast.high_ms)} at the end"
    if fastest is not None and fastest.ms > 0:
        low, high = forecast.low_ms / fastest.ms, forecast.high_ms / fastest.ms
        said = f"{said} ({low:.2f} to {high:.2f} of {fastest.name})"
        if low >= _HARDLY_FASTER:
            return f"{said}; it is unlikely to be faster than {fastest.name}"
    return f"{said}; little is left to gain" if forecast.little_left else said
