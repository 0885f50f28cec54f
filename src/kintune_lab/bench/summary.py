"""The tables of all cells in one file each, and the summary: what `bench.json` and `--json` hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kintune.files import write_whole
from kintune_lab.bench.directory import COMPILER, BenchDirectory, CellState
from kintune_lab.bench.spec import BenchSpec
from kintune_lab.experiment.experiment import Cell
from kintune_lab.experiment.tables import CELLS, METHODS, Row, Scalar, Tables, joined, to_csv

__all__ = ["BenchSummary", "FailedCell", "collect", "summary_of", "write_tables"]


class FailedCell(msgspec.Struct, frozen=True):
    """A cell that failed: which, with what class of error, and why."""

    id: str
    title: str
    error: str
    reason: str


class BenchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How many cells there are, how many are done, which failed; `files` are the names of what `output` holds."""

    schema_version: int = 1
    name: str
    experiment: str
    cells: int
    done: int
    failed: tuple[FailedCell, ...]
    seconds: float
    output: str
    files: tuple[str, ...] = ()

    @property
    def left(self) -> int:
        """Cells that were not run to an end."""
        return self.cells - self.done - len(self.failed)


def summary_of(spec: BenchSpec, cells: Sequence[Cell], directory: BenchDirectory, files: Sequence[str]) -> BenchSummary:
    """Return the summary of these cells; `seconds` adds up those of the cells that are done."""
    records = [(cell, directory.record(cell)) for cell in cells]
    return BenchSummary(
        name=spec.name,
        experiment=spec.experiment.name,
        cells=len(cells),
        done=sum(record is not None and record.state is CellState.DONE for _, record in records),
        failed=tuple(
            FailedCell(cell.id, cell.title, record.error, record.reason)
            for cell, record in records
            if record is not None and record.state is CellState.FAILED
        ),
        seconds=sum(
            record.seconds or 0.0 for _, record in records if record is not None and record.state is CellState.DONE
        ),
        output=str(directory.path),
        files=tuple(files),
    )


def collect(directory: BenchDirectory, cells: Sequence[Cell]) -> dict[str, list[Row]]:
    """Returns the tables of all `cells`, in their order; the table `cells` has a row for each of them.

    Other tables have the rows of cells that are done, or that failed and left tables.
    """
    tables: dict[str, list[Row]] = {CELLS: [], METHODS: []}
    for cell in cells:
        record = directory.record(cell)
        tables[CELLS] += joined([_outcome(directory, cell)], cell.id, cell.values)
        tables[METHODS] += [{"cell": cell.id, "method": m.label, "name": m.name, **m.values} for m in cell.methods]
        if record is None or not directory.has_tables(cell):
            continue
        labels = {was.label: now.label for was, now in zip(record.cell.methods, cell.methods, strict=True)}
        for name, rows in directory.tables(cell).items():
            tables.setdefault(name, []).extend(joined((_relabelled(row, labels) for row in rows), cell.id, cell.values))
    return tables


def write_tables(directory: Path, tables: Tables) -> list[str]:
    """Write each table that has rows to `NAME.csv` in `directory`; returns the names of the files."""
    names = []
    for name, rows in tables.items():
        if rows:
            write_whole(directory / f"{name}.csv", to_csv(rows))
            names.append(f"{name}.csv")
        else:
            (directory / f"{name}.csv").unlink(missing_ok=True)
    return names


def _outcome(directory: BenchDirectory, cell: Cell) -> dict[str, Scalar]:
    record = directory.record(cell)
    if record is None:
        return {
            "state": "",
            "error": "",
            "reason": "",
            "started": "",
            "cell_seconds": None,
            "cpu": "",
            "load": None,
            "kintune": "",
            "compiler": "",
        }
    return {
        "state": record.state.value,
        "error": record.error,
        "reason": record.reason,
        "started": record.started,
        "cell_seconds": record.seconds,
        "cpu": record.machine.cpu,
        "load": record.load,
        "kintune": record.versions.get("kintune", ""),
        "compiler": record.versions.get(COMPILER, ""),
    }


def _relabelled(row: Row, labels: Mapping[str, str]) -> Row:
    """Returns the row with the current label of its method: labels are no part of a cell's identity."""
    method = row.get("method")
    if not isinstance(method, str) or labels.get(method, method) == method:
        return row
    return {**row, "method": labels[method]}
