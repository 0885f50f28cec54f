"""Charts drawn with matplotlib: as a file of their own, and as a part of a page that follows its reader's colours."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from kintune_lab.experiment.section import BarChart, Chart, LineChart, Series, StackedChart

__all__ = ["Drawing", "can_draw", "draw"]

_COLORS = ("#0072b2", "#d55e00", "#009e73", "#8c6bb1", "#b8860b", "#c2578c", "#2c9fc9", "#7a5230")
"""Told apart by those who see colours otherwise, and visible on white as on near black."""

_REFERENCE = "#808080"
_INK = "#1f2328"
_GRID = "#c9d1d9"
_ON_COLOR = "#fffffe"  # white that stays white
_DASHES = ("solid", (0, (6, 2)), (0, (2, 2)), (0, (6, 2, 2, 2)))
_MARKERS = "osD^vPX*"
_WIDTH = 8.0  # inches, of a hundred dots
_PALEST = 0.16


class Drawing(msgspec.Struct, frozen=True):
    """One chart, twice: `file` is an SVG image on white, `inline` one whose ink and grid take the page's colours."""

    name: str
    file: bytes
    inline: str


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(chart: Chart) -> Drawing:
    """Draw a chart; the same chart gives the same bytes.  Needs matplotlib."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: dict[str, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": f"chart-{chart.name}", "font.size": 11, "font.family": "DejaVu Sans",
        "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left", "axes.titleweight": "bold",
        "axes.titlesize": 12, "axes.grid": True, "grid.color": _GRID, "grid.linewidth": 0.6, "axes.axisbelow": True,
        "text.parse_math": False,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(_WIDTH, _height(chart)), dpi=100, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        match chart:
            case LineChart():
                _lines(axes, chart)
            case BarChart():
                _points(axes, chart)
            case StackedChart():
                _stacks(axes, chart)
        axes.set_title(chart.title)
        written = io.BytesIO()
        figure.savefig(written, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    svg = re.sub(r"<metadata>.*?</metadata>", "", written.getvalue().decode(), flags=re.DOTALL)
    return Drawing(chart.name, svg.encode(), _inline(svg, chart.name))


def _inline(svg: str, name: str) -> str:
    """The image as a part of a page: a transparent ground, ids of its own, the page's colours for ink and grid."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"(<svg[^>]*?)\s(?:width|height)=\"[^\"]*\"", r"\1", body, count=1)
    body = re.sub(r"(<svg[^>]*?)\s(?:width|height)=\"[^\"]*\"", r"\1", body, count=1)
    body = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    for color, taken in (("#ffffff", "none"), ("white", "none"), (_INK, "currentColor"), (_GRID, "var(--grid)")):
        body = body.replace(f"fill: {color}", f"fill: {taken}").replace(f"stroke: {color}", f"stroke: {taken}")
    return body.strip()


def _height(chart: Chart) -> float:
    match chart:
        case LineChart():
            return 4.4
        case BarChart():
            series = len({bar.series for bar in chart.bars})
            groups = len({bar.group for bar in chart.bars})
            return 1.5 + groups * (0.22 + 0.24 * max(1, series))
        case StackedChart():
            return 1.7 + 0.5 * len(chart.groups)


def _style(index: int, series: Series) -> dict[str, Any]:
    if series.role == "reference":
        return {"color": _REFERENCE, "linestyle": "solid", "linewidth": 1.6}
    return {
        "color": _COLORS[index % len(_COLORS)],
        "linestyle": _DASHES[index // len(_COLORS) % len(_DASHES)],
        "linewidth": 2.0,
    }


def _lines(axes: Any, chart: LineChart) -> None:
    labels: list[tuple[float, str, str]] = []  # height, text, color
    index = 0
    end = max((series.x[-1] for series in chart.series if series.x), default=1.0)
    for series in chart.series:
        style = _style(index, series)
        index += series.role != "reference"
        x, y = [*series.x, end], [*series.y, series.y[-1]]
        drawn = {"drawstyle": "steps-post"} if chart.stepped else {"marker": "o", "markersize": 4}
        axes.plot(series.x, series.y, **drawn, **style)
        axes.plot(x[-2:], y[-2:], color=style["color"], linewidth=0.8, linestyle=":")
        if series.low:
            axes.fill_between(
                series.x, series.low, series.high, step="post" if chart.stepped else None, color=style["color"],
                alpha=_PALEST, linewidth=0,
            )  # fmt: skip
        labels.append((series.y[-1], series.label, style["color"]))
    for label, level in chart.levels.items():
        axes.axhline(level, color=_REFERENCE, linewidth=1.2, linestyle=(0, (4, 3)))
        axes.annotate(
            label, (1.0, level), (-4, 4), xycoords=("axes fraction", "data"), textcoords="offset points",
            color=_REFERENCE, fontsize=9, ha="right",
        )  # fmt: skip
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    axes.margins(x=0.01)
    if not chart.log_x:
        axes.set_xlim(left=0.0)
    lowest = min((min(series.y) for series in chart.series), default=0.0)
    if chart.top is not None and lowest < chart.top < axes.get_ylim()[1]:
        axes.set_ylim(min([lowest, *chart.levels.values()]) * 0.93, chart.top)
    for log, axis in ((chart.log_x, axes.xaxis), (chart.log_y, axes.yaxis)):
        if log:
            _plain_ticks(axes, axis)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    _label_ends(axes, labels)


def _label_ends(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Each line's name at its right end, moved apart where they would touch."""
    low, high = axes.get_ylim()
    log = axes.get_yscale() == "log"
    place = (lambda v: (math.log(v) - math.log(low)) / (math.log(high) - math.log(low))) if log else (
        lambda v: (v - low) / (high - low)
    )  # fmt: skip
    ordered = sorted((place(value), text, color) for value, text, color in labels)
    heights = spread_out([height for height, _, _ in ordered], 0.065)
    for height, (_, text, color) in zip(heights, ordered, strict=True):
        axes.text(1.012, height, text, transform=axes.transAxes, color=color, va="center", fontsize=10)


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights moved as little as a simple pass can so that neighbours are `gap` apart, within 0 to 1."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    ceiling = 1.0
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def _points(axes: Any, chart: BarChart) -> None:
    groups = list(dict.fromkeys(bar.group for bar in chart.bars))
    names = list(dict.fromkeys(bar.series for bar in chart.bars))
    lowest = min((bar.value for bar in chart.bars if bar.value > 0), default=1.0)
    floor = min(lowest / 2, 0.5) if chart.log else 0.0
    for bar in chart.bars:
        place = names.index(bar.series)
        y = groups.index(bar.group) + (place - (len(names) - 1) / 2) * 0.7 / max(1, len(names))
        color, marker = _mark(place)
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            axes.plot(
                [max(bar.low, floor), bar.high], [y, y], color=color, linewidth=5, alpha=0.3, solid_capstyle="butt"
            )
        reached = bar.value > 0
        axes.plot(
            max(bar.value, floor), y, color=color, linestyle="none",
            marker=marker if reached else "<", markerfacecolor=color if reached else "none",
        )  # fmt: skip
        plain = f"{bar.value:.0f}" if chart.baseline is None and bar.value.is_integer() else f"{bar.value:.2f}"
        text = plain if reached else "not reached"
        axes.annotate(text, (max(bar.high or 0.0, bar.value, floor), y), (7, 0), textcoords="offset points",
                      va="center", fontsize=9, color=color)  # fmt: skip
    if chart.log:
        axes.set_xscale("log")
    for level, said, style in ((chart.baseline, "equal", "-"), (chart.goal, "goal", (0, (4, 3)))):
        if level is not None:
            axes.axvline(level, color=_REFERENCE, linewidth=1.2, linestyle=style, zorder=0)
            outward = -1 if chart.goal is not None and level < chart.goal else 1  # where the other's name is not
            axes.annotate(
                f"{said} {level:g}", (level, 1.0), (3 * outward, 2), xycoords=("data", "axes fraction"),
                textcoords="offset points", fontsize=9, color=_REFERENCE, va="top",
                ha="left" if outward > 0 else "right",
            )  # fmt: skip
    axes.set_yticks(range(len(groups)), groups)
    axes.set_ylim(len(groups) - 0.4, -0.7)
    axes.margins(x=0.12)
    if chart.log:
        _plain_ticks(axes, axes.xaxis)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(chart.value_label)
    if any(names):
        _key(axes, names)


def _mark(number: int) -> tuple[str, str]:
    """The color and marker of the series of this number; where colors begin again, they come with other markers."""
    return _COLORS[number % len(_COLORS)], _MARKERS[(number + number // len(_COLORS)) % len(_MARKERS)]


def _key(axes: Any, names: Sequence[str]) -> None:
    """Add a legend of the markers; the marker of values that were not reached is not in it."""
    from matplotlib.lines import Line2D

    marks = [_mark(number) for number in range(len(names))]
    handles = [Line2D([], [], linestyle="none", marker=marker, color=color) for color, marker in marks]
    axes.legend(
        handles, names, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=10, handletextpad=0.2
    )


def _stacks(axes: Any, chart: StackedChart) -> None:
    groups = list(chart.groups)
    left = [0.0] * len(groups)
    for place, part in enumerate(chart.parts):
        sizes = [chart.groups[group][place] for group in groups]
        axes.barh(
            range(len(groups)), sizes, left=left, height=0.62, color=_COLORS[place % len(_COLORS)], label=part,
            edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        whole = max((sum(chart.groups[group]) for group in groups), default=0.0)
        for row, (start, size) in enumerate(zip(left, sizes, strict=True)):
            if whole and size / whole > 0.07:
                axes.text(start + size / 2, row, f"{size:.0f}", color=_ON_COLOR, ha="center", va="center", fontsize=9)
        left = [start + size for start, size in zip(left, sizes, strict=True)]
    axes.set_yticks(range(len(groups)), groups)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(chart.value_label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=10)


def _plain_ticks(axes: Any, axis: Any) -> None:
    """Numbers instead of powers on a logarithmic axis, and enough of them on a short one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axes.get_ylim() if axis is axes.yaxis else axes.get_xlim()
    span = high / max(low, 1e-12)
    if span < 3:
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    else:
        subs = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if span < 12 else (1.0, 2.0, 5.0) if span < 1000 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
