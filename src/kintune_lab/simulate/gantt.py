"""Gantt charts of schedules: which stage runs where and when."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kintune.files import write_whole
from kintune.scheduler.resources import Device, Host, Resource
from kintune_lab.simulate.history import Ending, ScheduleHistory, Span

__all__ = ["draw_gantt", "rows_of"]

_COLORS = ("#0072b2", "#d55e00", "#009e73", "#8c6bb1", "#b8860b", "#c2578c", "#2c9fc9", "#7a5230")
_SHADES = {"select": 0.55, "build": 1.0, "profile": 0.8, "update": 0.3}
_MOST_ROWS = 60


def rows_of(history: ScheduleHistory, resources: Sequence[Resource]) -> list[tuple[str, list[Span]]]:
    """A row for each core of a host and for each device, with what runs there, in time.

    A stage that has several cores stands in as many rows.  Where a policy has booked more cores than there are, more
    rows stand for them.
    """
    rows: list[tuple[str, list[Span]]] = []
    for resource in resources:
        mine = [s for s in history.spans if resource.id in (s.placement.host, s.placement.device)]
        mine.sort(key=lambda span: (span.start, span.end))
        if isinstance(resource, Device):
            rows.append((resource.id, mine))
        else:
            rows += _cores(resource, [span for span in mine if span.placement.host == resource.id])
    return rows


def _cores(host: Host, spans: Sequence[Span]) -> list[tuple[str, list[Span]]]:
    lines: list[list[Span]] = [[] for _ in range(host.cores)]
    for span in spans:
        free = [line for line in lines if not line or line[-1].end <= span.start + 1e-9]
        while len(free) < span.placement.cores:
            lines.append([])
            free.append(lines[-1])
        for line in free[: span.placement.cores]:
            line.append(span)
    return [(host.id if len(lines) == 1 else f"{host.id} core {n}", line) for n, line in enumerate(lines)]


def draw_gantt(
    title: str, history: ScheduleHistory, resources: Sequence[Resource], path: Path, until: float | None = None
) -> None:
    """Draw the schedule, or its beginning, to a PNG or SVG file; colours are jobs, shades are kinds of stages.

    Needs matplotlib.

    Raises:
        InputError: the file cannot be written.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: dict[str, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": title, "font.family": "DejaVu Sans", "text.parse_math": False,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        everything = rows_of(history, resources)
        rows = everything[:_MOST_ROWS]
        if len(rows) < len(everything):
            title = f"{title} (first {len(rows)} of {len(everything)} rows)"
        figure = Figure(figsize=(11, 1.6 + 0.32 * len(rows)), layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure.add_subplot(), title, rows, until or max((s.end for s in history.spans), default=1.0))
        written = io.BytesIO()
        kind = path.suffix.lower()[1:]
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(written, format=kind, dpi=130, facecolor="white", metadata=metadata)
    write_whole(path, written.getvalue())


def _draw(axes: Any, title: str, rows: Sequence[tuple[str, list[Span]]], until: float) -> None:
    from matplotlib.patches import Patch

    jobs = list(dict.fromkeys(span.job for _, spans in rows for span in spans))
    colors = {job: _COLORS[n % len(_COLORS)] for n, job in enumerate(jobs)}
    scale, unit = (3600.0, "hours") if until > 7200 else (60.0, "minutes") if until > 180 else (1.0, "seconds")
    for row, (_, spans) in enumerate(rows):
        for span in spans:
            if span.start >= until:
                break
            failed = span.ending is not Ending.DONE
            axes.broken_barh(
                [(span.start / scale, (min(span.end, until) - span.start) / scale)],
                (row - 0.4, 0.8),
                facecolor="#bbbbbb" if failed else colors[span.job],
                alpha=_SHADES.get(span.kind, 0.9),
                hatch="///" if failed else None,
                edgecolor="white",
                linewidth=0.3,
            )
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, until / scale)
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=11, loc="left")
    if len(jobs) <= len(_COLORS):
        axes.legend(
            handles=[Patch(color=colors[job], label=job) for job in jobs],
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            frameon=False,
            fontsize=9,
        )
