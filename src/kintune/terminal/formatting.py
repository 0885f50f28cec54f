"""Text for people: quantities with units, and the parts of a progress report."""

from __future__ import annotations

import math

from kintune.core.report import ProgressReport

__all__ = [
    "clock",
    "count",
    "counted",
    "describe_effort",
    "describe_failures",
    "describe_interference",
    "describe_stage",
    "duration",
    "milliseconds",
    "times",
]


_PREFIXES = ("", "k", "M", "G", "T", "P")


def milliseconds(value: float) -> str:
    """A latency with three significant digits; the unit follows the size: `850 us`, `15.5 ms`, `2.10 s`."""
    if value < 1.0:
        return f"{_three_digits(value * 1e3)} us"
    if value >= 1e3:
        return f"{_three_digits(value / 1e3)} s"
    return f"{_three_digits(value)} ms"


def clock(seconds: float) -> str:
    """A running time: `03:12`, or `1:03:12` from an hour on."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes:02}:{left:02}"


def duration(seconds: float) -> str:
    """An amount of time in words: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if left else f"{hours} h"


def count(value: float, unit: str = "") -> str:
    """A large number with a decimal prefix: `11.7 M`, `3.64 GFLOP`."""
    power = 0 if abs(value) < 1000 else min(int(math.log10(abs(value)) // 3), len(_PREFIXES) - 1)
    if power == 0:
        return f"{value:g} {unit}".rstrip()
    return f"{_three_digits(value / 1000**power)} {_PREFIXES[power]}{unit}"


def counted(number: int, noun: str) -> str:
    """A number of things: `1 program`, `2 programs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def times(ratio: float) -> str:
    """A ratio: `1.92x`."""
    return f"{ratio:.2f}x"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


_SOME = 16
_MANY = 0.25  # a few trials are disturbed even on an idle machine


def describe_stage(report: ProgressReport) -> str:
    """What is going on: `profile conv2d_7`, with the phase when there is one."""
    words = " ".join(part for part in (report.stage, report.subgraph) if part)
    return f"{words} ({report.phase})" if report.phase else words


def describe_effort(report: ProgressReport) -> str:
    """What was spent and what is left: `384 of 1000 trials, 03:12, about 5 min left`."""
    spent = counted(report.trials, "trial")
    if report.trials_total:
        spent = f"{report.trials} of {counted(report.trials_total, 'trial')}"
    parts = [spent] if report.searches else []
    parts.append(clock(report.elapsed_s))
    if report.time_left_s is not None:
        parts.append(f"about {duration(report.time_left_s)} left")
    return ", ".join(parts)


def describe_failures(report: ProgressReport) -> str:
    """Failed candidates by cause, most frequent first, and what was already known; empty when there is neither."""
    parts = []
    if report.failures:
        ordered = sorted(report.failures.items(), key=lambda item: (-item[1], item[0]))
        causes = ", ".join(f"{cause} {count}" for cause, count in ordered)
        failed = sum(report.failures.values())
        parts.append(f"{counted(failed, 'candidate')} failed ({causes})")
    if report.reused_records:
        parts.append(f"{counted(report.reused_records, 'measurement')} reused")
    return "; ".join(parts)


def describe_interference(trials: int, disturbed: int) -> str:
    """Say that other programs use the cores, where a quarter of at least 16 trials was disturbed; empty otherwise."""
    if trials < _SOME or disturbed < _MANY * trials:
        return ""
    return f"other programs use the cores: {disturbed} of {trials} candidates had to be timed again"
