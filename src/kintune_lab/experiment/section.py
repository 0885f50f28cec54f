"""The contents of a report: sections with text, tables and charts, as values independent of drawing."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["Bar", "BarChart", "Chart", "Grid", "LineChart", "ReportSection", "Series", "StackedChart"]


class Series(msgspec.Struct, frozen=True):
    """A line of `y` over `x`, with a band from `low` to `high` where these are given (all of one length).

    `role` "reference" draws it quietly, as what others are compared with.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    role: str = ""


class LineChart(msgspec.Struct, frozen=True, tag=True):
    """Lines over a common axis.  `name` is the stem of the plot's file; `levels` are horizontal lines by label.

    `stepped` lines hold each value until the next, as a best time does; others connect points, which are marked.  What
    lies above `top` is cut off, unless everything does.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    levels: dict[str, float] = {}
    log_x: bool = False
    log_y: bool = False
    stepped: bool = True
    top: float | None = None


class Bar(msgspec.Struct, frozen=True):
    """A value with the interval it lies in; `series` tells bars of one group apart."""

    group: str
    value: float
    low: float | None = None
    high: float | None = None
    series: str = ""


class BarChart(msgspec.Struct, frozen=True, tag=True):
    """Values side by side, as points with intervals; at `baseline` nothing is gained, `goal` is what is asked."""

    name: str
    title: str
    value_label: str
    bars: tuple[Bar, ...]
    baseline: float | None = None
    goal: float | None = None
    log: bool = False


class StackedChart(msgspec.Struct, frozen=True, tag=True):
    """What a whole is made of: for each group the parts' sizes, in the order of `parts`."""

    name: str
    title: str
    value_label: str
    parts: tuple[str, ...]
    groups: dict[str, tuple[float, ...]]


Chart: TypeAlias = LineChart | BarChart | StackedChart


class Grid(msgspec.Struct, frozen=True):
    """A table for people: texts in rows under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class ReportSection(msgspec.Struct, frozen=True):
    """One part of a report: a title, paragraphs, tables, charts."""

    title: str
    text: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    charts: tuple[Chart, ...] = ()
