"""Quantities as people read them."""

from __future__ import annotations

import math

__all__ = ["clock", "count", "duration", "milliseconds", "times"]

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


def times(ratio: float) -> str:
    """A ratio: `1.92x`."""
    return f"{ratio:.2f}x"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
