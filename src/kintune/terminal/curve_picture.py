"""The curve of a search as a picture: estimated latency over time, with a line for each other runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TypeAlias

from kintune.core.report import CurvePoint
from kintune.terminal.formatting import duration, milliseconds

__all__ = ["curve_svg"]

_WIDTH, _HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 220, 16, 42
_LOGARITHMIC = 6.0  # the largest latency by the smallest, from which on the scale is logarithmic
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
_TICKS = 7
_LABEL = 15  # pixels that a line of text takes
_COLOURS = ("var(--second)", "var(--third)", "var(--fourth)")


_Place: TypeAlias = Callable[[float], float]


def curve_svg(curve: Sequence[CurvePoint], lines_ms: Mapping[str, float]) -> str:
    """The picture as an SVG element; `lines_ms` are latencies to compare with, in milliseconds by name.

    A picture of no point is empty.
    """
    if not curve:
        return ""
    latest = max(point.seconds for point in curve) or 1.0
    values = [*(point.latency_ms for point in curve), *lines_ms.values()]
    scale = _Scale([value for value in values if value > 0])

    def x(seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / latest

    best = min(point.latency_ms for point in curve)
    said = f"estimated latency over time, from {milliseconds(curve[0].latency_ms)} to {milliseconds(best)}"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(said, quote=True)}">']
    parts += _axes(scale, latest, x)
    ends = {"Kintune, estimated": (curve[-1].latency_ms, "var(--accent)")}
    colours = [*_COLOURS, *["var(--faint)"] * max(0, len(lines_ms) - len(_COLOURS))]
    for (name, value), colour in zip(lines_ms.items(), colours, strict=False):
        y = scale.y(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" '
            'stroke-width="1.5" stroke-dasharray="6 4"/>'
        )
        ends[name] = (value, colour)
    parts.append(f'<path d="{_steps(curve, x, scale)}" fill="none" stroke="var(--accent)" stroke-width="2.5"/>')
    parts += _labels(ends, scale)
    return "\n".join([*parts, "</svg>"])


class _Scale:
    """The vertical axis: from 0, or logarithmic where the values are of different sizes."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = min(values), max(values)
        self._is_log = high / low > _LOGARITHMIC
        self._low = low / 1.15 if self._is_log else 0.0
        self._high = high * 1.08

    def y(self, value: float) -> float:
        if self._is_log:
            share = math.log(max(value, self._low) / self._low) / math.log(self._high / self._low)
        else:
            share = value / self._high
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def ticks(self) -> list[float]:
        """Round values within the axis."""
        powers = range(-6, 9)
        if self._is_log:
            every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
            return [value for value in every if self._low <= value <= self._high]
        step = next(
            (d * 10.0**p for p in powers for d in (1, 2, 5) if self._high / (d * 10.0**p) <= _TICKS), self._high
        )
        return [number * step for number in range(int(self._high / step) + 1)]


def _axes(scale: _Scale, latest: float, x: _Place) -> Iterator[str]:
    for value in scale.ticks():
        y = scale.y(value)
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--line)"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{milliseconds(value) if value else "0"}</text>'
        )
    step = next((step for step in _STEPS_S if latest / step <= _TICKS), _STEPS_S[-1])
    y = _HEIGHT - _BOTTOM
    for number in range(int(latest / step) + 1):
        at = x(number * step)
        yield (
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + 4}" stroke="var(--faint)"/>'
            f'<text x="{at:.1f}" y="{y + 18}" text-anchor="middle">{duration(number * step)}</text>'
        )
    yield f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">time of tuning</text>'


def _steps(curve: Sequence[CurvePoint], x: _Place, scale: _Scale) -> str:
    """The way of the curve: an estimate holds until there is the next one."""
    way = [f"M{x(curve[0].seconds):.1f} {scale.y(curve[0].latency_ms):.1f}"]
    for point in curve[1:]:
        way.append(f"H{x(point.seconds):.1f}V{scale.y(point.latency_ms):.1f}")
    return "".join(way)


def _labels(ends: Mapping[str, tuple[float, str]], scale: _Scale) -> Iterator[str]:
    """The names at the right, moved apart where they would cover each other."""
    ordered = sorted(ends.items(), key=lambda item: scale.y(item[1][0]))
    places: list[float] = []
    for _, (value, _) in ordered:
        places.append(max(scale.y(value) + 4, places[-1] + _LABEL if places else 0.0))
    below = _HEIGHT - _BOTTOM / 2
    for number in reversed(range(len(places))):
        places[number] = min(places[number], below)
        below = places[number] - _LABEL
    at = _WIDTH - _RIGHT + 8
    for (name, (value, colour)), y in zip(ordered, places, strict=True):
        yield (
            f'<rect x="{at}" y="{y - 9:.1f}" width="10" height="10" rx="2" fill="{colour}"/>'
            f'<text x="{at + 16}" y="{y:.1f}">{escape(name)} {milliseconds(value)}</text>'
        )
