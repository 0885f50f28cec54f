"""The curve of a search as a picture that fits the theme and the screen: SVG, drawn by the service."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kintune.service.portal.markup import tag, text
from kintune.terminal.formatting import clock, duration, milliseconds

__all__ = ["Curve", "Line", "curves", "thin"]

_LOGARITHMIC = 6.0  # the largest latency by the smallest, from which on the scale is logarithmic
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800)
_LABEL = 15  # pixels that a line of text takes
_TARGET = "target"
_MOST_POINTS = 240

Points = Sequence[tuple[float, float]]
"""(seconds, milliseconds), by time."""


class Curve(NamedTuple):
    """Estimated latency over time; it holds until `seconds`, at least."""

    name: str
    points: Points
    seconds: float = 0.0


class Line(NamedTuple):
    """A latency to compare with: another runtime's, or the target."""

    name: str
    ms: float


class _Size(NamedTuple):
    width: int
    height: int
    right: int
    ticks: int


_WIDE, _NARROW = _Size(900, 320, 190, 7), _Size(340, 260, 12, 4)
_LEFT, _TOP, _BOTTOM = 62, 14, 42


def thin(points: Points, most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """Returns about `most` points at most: the first one, and the last one in each of `most` equal spans of time.

    A curve that falls looks the same when it is drawn from these.
    """
    if len(points) <= most:
        return list(points)
    begin, end = points[0][0], points[-1][0]
    width = (end - begin) / most or 1.0
    kept: dict[int, tuple[float, float]] = {}
    for point in points:
        kept[int((point[0] - begin) / width)] = point
    return [points[0], *(point for point in kept.values() if point is not points[0])]


def curves(shown: Sequence[Curve], lines: Sequence[Line], now: float | None = None) -> str:
    """The picture for a wide and for a narrow screen, and a legend; `now` marks the time of a search that goes on.

    Empty where there is nothing to be drawn.
    """
    drawn = [curve._replace(points=thin([point for point in curve.points if point[1] > 0])) for curve in shown]
    drawn = [curve for curve in drawn if curve.points]
    lines = [line for line in lines if line.ms > 0]
    if not drawn:
        return ""
    said = "; ".join(
        f"{curve.name}: from {milliseconds(curve.points[0][1])} to {milliseconds(curve.points[-1][1])}"
        for curve in drawn
    )
    pictures = (
        tag("div", _picture(drawn, lines, now, size, f"Estimated latency over time. {said}"), class_=f"only-{kind}")
        for kind, size in (("wide", _WIDE), ("narrow", _NARROW))
    )
    return tag("div", pictures, class_="picture") + _legend(drawn, lines, now)


def _legend(drawn: Sequence[Curve], lines: Sequence[Line], now: float | None) -> str:
    entries = [
        (f"var(--series-{number % 5})", f"{_called(curve, drawn)}: {milliseconds(curve.points[-1][1])}")
        for number, curve in enumerate(drawn)
    ]
    entries += [(_colour(line, number), f"{line.name}: {milliseconds(line.ms)}") for number, line in enumerate(lines)]
    if now is not None:
        entries.append(("var(--faint)", f"now: {clock(now)}"))
    items = (tag("li", tag("i", style=f"background:{colour}") + text(words)) for colour, words in entries)
    return tag("ul", items, class_="legend" if len(drawn) > 1 else "legend only-narrow", aria_label="Legend")


def _called(curve: Curve, drawn: Sequence[Curve]) -> str:
    """What a curve is called in the picture: by its name where there are others."""
    return curve.name if len(drawn) > 1 else "Kintune"


def _colour(line: Line, number: int) -> str:
    if line.name == _TARGET:
        return "var(--good)"
    return f"var(--series-{1 + 2 * (number % 2)})" if number < 2 else "var(--faint)"


class _Scale:
    """The vertical axis: from 0, or logarithmic where the values are of different sizes."""

    def __init__(self, values: Sequence[float], size: _Size) -> None:
        low, high = min(values), max(values)
        self.is_log = high / low > _LOGARITHMIC
        self._low = low / 1.15 if self.is_log else 0.0
        self._high = high * 1.08
        self._size = size

    def y(self, value: float) -> float:
        if self.is_log:
            share = math.log(max(value, self._low) / self._low) / math.log(self._high / self._low)
        else:
            share = value / self._high
        return self._size.height - _BOTTOM - share * (self._size.height - _TOP - _BOTTOM)

    def ticks(self) -> list[float]:
        """Round values within the axis."""
        powers = range(-6, 9)
        if self.is_log:
            digits = (1, 2, 5) if self._high / self._low < 200 else (1,)
            every = [digit * 10.0**power for power in powers for digit in digits]
            return [value for value in every if self._low <= value <= self._high]
        step = next((d * 10.0**p for p in powers for d in (1, 2, 5) if self._high / (d * 10.0**p) <= 6), self._high)
        return [number * step for number in range(int(self._high / step) + 1)]


def _picture(drawn: Sequence[Curve], lines: Sequence[Line], now: float | None, size: _Size, said: str) -> str:
    latest = max(max(curve.points[-1][0], curve.seconds) for curve in drawn)
    latest = max(latest, now or 0.0) * (1.03 if now is not None else 1.0) or 1.0
    values = [ms for curve in drawn for _, ms in curve.points] + [line.ms for line in lines]
    scale, room = _Scale(values, size), size.width - _LEFT - size.right

    def x(seconds: float) -> float:
        return _LEFT + room * seconds / latest

    parts = list(_axes(scale, latest, x, size))
    ends: list[tuple[str, float, str]] = []
    for number, line in enumerate(lines):
        y, colour = scale.y(line.ms), _colour(line, number)
        dashes = "2 4" if line.name == _TARGET else "7 4"
        parts.append(
            f'<line x1="{_LEFT}" x2="{size.width - size.right}" y1="{y:.1f}" y2="{y:.1f}" '
            f'style="stroke:{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
        ends.append((f"{line.name} {milliseconds(line.ms)}", line.ms, colour))
    if now is not None:
        parts.append(
            f'<line x1="{x(now):.1f}" x2="{x(now):.1f}" y1="{_TOP}" y2="{size.height - _BOTTOM}" '
            'style="stroke:var(--faint)" stroke-width="1.5" stroke-dasharray="3 3"/>'
            f'<text x="{x(now) - 4:.1f}" y="{_TOP + 10}" text-anchor="end" class="faint">now</text>'
        )
    for number, curve in enumerate(drawn):
        colour = f"var(--series-{number % 5})"
        end = max(curve.seconds, now or 0.0, curve.points[-1][0])
        way = f"{_steps(curve.points, x, scale)}H{x(end):.1f}"
        parts.append(f'<path d="{way}" fill="none" style="stroke:{colour}" stroke-width="2.5"/>')
        last = curve.points[-1][1]
        ends.append((f"{_called(curve, drawn)} {milliseconds(last)}", last, colour))
        parts.append(
            f'<circle cx="{x(curve.points[-1][0]):.1f}" cy="{scale.y(curve.points[-1][1]):.1f}" r="4" '
            f'style="fill:{colour}"/>'
        )
        if len(drawn) == 1:
            parts += _columns(curve.points, end, x, size)
    if size.right > _LEFT:
        parts += _labels(ends, scale, size)
    frame = f'viewBox="0 0 {size.width} {size.height}" role="img" aria-label="{text(said)}"'
    return f"<svg {frame}>{''.join(parts)}</svg>"


def _axes(scale: _Scale, latest: float, x: Callable[[float], float], size: _Size) -> Iterator[str]:
    for value in scale.ticks():
        y = scale.y(value)
        yield (
            f'<line x1="{_LEFT}" x2="{size.width - size.right}" y1="{y:.1f}" y2="{y:.1f}" '
            f'style="stroke:var(--line)"/><text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" class="faint">'
            f"{milliseconds(value) if value else '0'}</text>"
        )
    step = next((step for step in _STEPS_S if latest / step <= size.ticks), _STEPS_S[-1])
    y = size.height - _BOTTOM
    for number in range(int(latest / step) + 1):
        at = x(number * step)
        yield (
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y}" y2="{y + 4}" style="stroke:var(--faint)"/>'
            f'<text x="{at:.1f}" y="{y + 18}" text-anchor="middle" class="faint">{_moment(number * step, step)}</text>'
        )
    middle = (_LEFT + size.width - size.right) / 2
    yield f'<text x="{middle:.0f}" y="{size.height - 4}" text-anchor="middle" class="faint">time of tuning</text>'


def _moment(seconds: float, step: float) -> str:
    """A time on the axis; where minutes do not tell its marks apart, with seconds."""
    return duration(seconds) if seconds < 60 or step % 60 == 0 else clock(seconds)


def _steps(points: Points, x: Callable[[float], float], scale: _Scale) -> str:
    """The way of a curve: an estimate holds until there is the next one."""
    way = [f"M{x(points[0][0]):.1f} {scale.y(points[0][1]):.1f}"]
    way += [f"H{x(seconds):.1f}V{scale.y(ms):.1f}" for seconds, ms in points[1:]]
    return "".join(way)


def _columns(points: Points, end: float, x: Callable[[float], float], size: _Size) -> Iterator[str]:
    """Invisible columns that say what the curve was there, when the mouse rests on them."""
    height = size.height - _TOP - _BOTTOM
    following = [seconds for seconds, _ in points[1:]] + [end]
    for (seconds, ms), until in zip(points, following, strict=True):
        wide = max(1.0, x(until) - x(seconds))
        yield (
            f'<rect x="{x(seconds):.1f}" y="{_TOP}" width="{wide:.1f}" height="{height}" fill="transparent">'
            f"<title>after {clock(seconds)}: {milliseconds(ms)}</title></rect>"
        )


def _labels(ends: Sequence[tuple[str, float, str]], scale: _Scale, size: _Size) -> Iterator[str]:
    """The names at the right, moved apart where they would cover each other."""
    ordered = sorted(ends, key=lambda end: scale.y(end[1]))
    places: list[float] = []
    for _, ms, _ in ordered:
        places.append(max(scale.y(ms) + 4, places[-1] + _LABEL if places else 0.0))
    below = size.height - _BOTTOM / 2
    for number in reversed(range(len(places))):
        places[number] = min(places[number], below)
        below = places[number] - _LABEL
    at = size.width - size.right + 8
    for (words, _, colour), y in zip(ordered, places, strict=True):
        shown = words if len(words) < 27 else f"{words[:12]}...{words[-12:]}"
        yield (
            f'<rect x="{at}" y="{y - 9:.1f}" width="10" height="10" rx="2" style="fill:{colour}"/>'
            f'<text x="{at + 16}" y="{y:.1f}">{text(shown)}</text>'
        )
