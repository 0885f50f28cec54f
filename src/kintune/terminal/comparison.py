"""Describes in words how a network compares with other runtimes; all such texts are defined here."""

from __future__ import annotations

from kintune.core.report import BaselineVerdict, FastestBaseline, Latencies, ProgressReport
from kintune.terminal.formatting import milliseconds, times

__all__ = [
    "describe_against",
    "describe_estimate",
    "describe_forecast",
    "describe_result",
    "describe_share",
    "describe_untuned",
]

_HARDLY_FASTER = 0.98  # of another runtime's time


def describe_share(fastest: FastestBaseline) -> str:
    """The network's share of the fastest other runtime's time: `0.76 of onnxruntime's 1.74 ms`.

    While the share is not known, what that runtime takes.
    """
    if fastest.ratio is None:
        return f"{fastest.name} takes {milliseconds(fastest.ms)}"
    return f"{fastest.ratio:.2f} of {fastest.name}'s {milliseconds(fastest.ms)}"


def describe_against(fastest: FastestBaseline) -> str:
    """The speedup over the fastest other runtime, or that there is none; empty while that is not known.

    It stands after the network's own latency: `1.32x as fast as onnxruntime (1.74 ms)`.
    """
    ours, verdict = fastest.network_ms, fastest.verdict
    if ours is None or verdict is None:
        return ""
    if verdict is BaselineVerdict.LEVEL:
        return f"level with {fastest.name}: nothing to gain here"
    if verdict is BaselineVerdict.FASTER:
        return f"{times(fastest.ms / ours)} as fast as {fastest.name} ({milliseconds(fastest.ms)})"
    return f"slower than {fastest.name}: {times(ours / fastest.ms)} its {milliseconds(fastest.ms)}"


def describe_result(latency: Latencies) -> str:
    """The speedup of a result, in a clause without its latency.

    Against the fastest other runtime; where none ran, against the untuned network; empty where there is nothing.
    """
    if (fastest := latency.fastest_baseline) is not None and fastest.ratio is not None:
        return describe_against(fastest)
    if latency.gain is None or latency.untuned is None:
        return ""
    if latency.gain <= 1.0:
        return f"nothing was gained over the untuned network ({milliseconds(latency.untuned)})"
    return f"{times(latency.gain)} as fast as untuned ({milliseconds(latency.untuned)})"


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
    return f"{times(report.gain)} as fast as untuned ({milliseconds(report.untuned_ms)})"


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
