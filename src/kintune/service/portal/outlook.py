"""Forecasts what a new job will take and reach, from earlier jobs on the same type of device.  Pure."""

from __future__ import annotations

from kintune.core.quantiles import quantile
from kintune.service.job_listing import PastJobs
from kintune.terminal.formatting import counted, duration

__all__ = ["describe_outlook"]

_LEAST = 3  # jobs, below which nothing is foretold
_BETWEEN = (0.1, 0.9)


def describe_outlook(past: PastJobs, ahead: int, minutes_ahead: float, at_once: int) -> list[str]:
    """Lines on what to expect: what earlier jobs took and reached, and how many are ahead.

    `ahead` jobs are not over and may take `minutes_ahead` together, `at_once` of them at a time.
    """
    lines = []
    if len(past.seconds) >= _LEAST:
        low, high = _range(past.seconds)
        lines.append(f"Forecast: {_between(duration(low), duration(high))}, from {len(past.seconds)} jobs here.")
    else:
        lines.append("Forecast: none yet, since too few jobs were done here; it takes at most the minutes below.")
    if len(past.shares) >= _LEAST:
        least, most = _range(past.shares)
        ends = _between(f"{least:.2f}", f"{most:.2f}")
        lines.append(f"Earlier results have {ends} of the latency of the fastest other runtime.")
    if ahead >= at_once:
        wait = duration(60 * minutes_ahead / max(1, at_once))
        lines.append(f"{counted(ahead, 'job')} ahead of it: it waits for {wait} at most.")
    return lines


def _range(values: tuple[float, ...]) -> tuple[float, float]:
    ordered = sorted(values)
    return quantile(ordered, _BETWEEN[0]), quantile(ordered, _BETWEEN[1])


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
