"""Writes a bench's report: the page, and each plot as a file of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kintune.files import write_whole
from kintune.terminal.formatting import duration
from kintune_lab.bench.report.page import page
from kintune_lab.bench.report.plots import Drawing, can_draw, draw
from kintune_lab.bench.spec import BenchSpec
from kintune_lab.bench.summary import BenchSummary
from kintune_lab.experiment.section import Grid, ReportSection
from kintune_lab.experiment.tables import CELLS, Row, Tables, columns_of

__all__ = ["PLOTS", "REPORT", "write_report"]

REPORT = "report.html"
PLOTS = "plots"
"""The page, and the directory of the plots."""

_NO_PLOTS = "Plots were left out, since matplotlib is not installed: pip install 'kintune[bench]' brings it."


def write_report(directory: Path, spec: BenchSpec, tables: Tables, summary: BenchSummary) -> list[str]:
    """Write `report.html` and `plots/*.svg` to `directory`; returns their names.  Plots need matplotlib."""
    sections = _with_names_of_their_own(spec.experiment.report(tables))
    drawings = _drawings(sections)
    lead = [spec.description] if spec.description else []
    lead.append(_state(spec, summary))
    lead += _machines(tables.get(CELLS, ()))
    lead += _versions(tables.get(CELLS, ()))
    if not can_draw() and any(section.charts for section in sections):
        lead.append(_NO_PLOTS)
    text = page(
        spec.name,
        lead,
        [*_failures(summary), *sections],
        {drawing.name: drawing.inline for drawing in drawings},
        {
            f"All {summary.cells} cells": _cells(tables.get(CELLS, ())),
            "The spec": spec.text,
            "The data": "\n".join(summary.files),
        },
    )
    write_whole(directory / REPORT, text.encode())
    return [REPORT, *_write_plots(directory / PLOTS, drawings)]


def _with_names_of_their_own(sections: Sequence[ReportSection]) -> list[ReportSection]:
    """The sections, where of several charts of one name the later ones are numbered."""
    seen: dict[str, int] = {}
    renamed = []
    for section in sections:
        charts = []
        for chart in section.charts:
            seen[chart.name] = seen.get(chart.name, 0) + 1
            number = seen[chart.name]
            charts.append(chart if number == 1 else msgspec.structs.replace(chart, name=f"{chart.name}-{number}"))
        renamed.append(msgspec.structs.replace(section, charts=tuple(charts)))
    return renamed


def _drawings(sections: Sequence[ReportSection]) -> list[Drawing]:
    if not can_draw():
        return []
    return [draw(chart) for section in sections for chart in section.charts]


def _write_plots(directory: Path, drawings: Sequence[Drawing]) -> list[str]:
    """Write the plots, and remove those of an earlier report that are no more."""
    if drawings:
        directory.mkdir(exist_ok=True)
    names = [f"{drawing.name}.svg" for drawing in drawings]
    for old in directory.glob("*.svg"):
        if old.name not in names:
            old.unlink()
    for name, drawing in zip(names, drawings, strict=True):
        write_whole(directory / name, drawing.file)
    return [f"{PLOTS}/{name}" for name in names]


def _state(spec: BenchSpec, summary: BenchSummary) -> str:
    parts = [f"{summary.done} of {summary.cells} cells done"]
    if summary.failed:
        parts.append(f"{len(summary.failed)} failed")
    if summary.left:
        parts.append(f"{summary.left} not run yet")
    return f"Experiment {spec.experiment.name}: {', '.join(parts)}; {duration(summary.seconds)} of measuring."


def _machines(cells: Sequence[Row]) -> list[str]:
    """On what machines, and between which days."""
    machines = list(dict.fromkeys(str(row["cpu"]) for row in cells if row.get("cpu")))
    days = sorted({str(row["started"])[:10] for row in cells if row.get("started")})
    if not machines:
        return []
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return [f"Measured on {'; '.join(machines)}, {when}."]


def _versions(cells: Sequence[Row]) -> list[str]:
    """Return how many cells are of which versions, where there are several."""
    counts = Counter(f"kintune {row['kintune']} with compiler {row['compiler']}" for row in cells if row.get("kintune"))
    if len(counts) < 2:
        return []
    said = "; ".join(f"{count} with {versions}" for versions, count in counts.items())
    return [f"The cells were run with different versions, which may explain differences between them: {said}."]


def _failures(summary: BenchSummary) -> list[ReportSection]:
    if not summary.failed:
        return []
    rows = tuple((cell.title, cell.error, cell.reason, cell.id) for cell in summary.failed)
    return [ReportSection("Failed cells", grids=(Grid(("cell", "error", "reason", "id"), rows),))]


def _cells(rows: Sequence[Row]) -> Grid:
    columns = [column for column in columns_of(rows) if any(row.get(column) not in (None, "") for row in rows)]
    return Grid(tuple(columns), tuple(tuple(_text(row.get(column)) for column in columns) for row in rows))


def _text(value: object) -> str:
    return "" if value is None else str(value)
