"""All cells' observations put together: one tidy table each, one row an observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kintune.files import write_whole
from kintune_lab.bench.ledger import BenchDirectory
from kintune_lab.bench.record import COMPILER, CellState
from kintune_lab.experiment.cell import Cell
from kintune_lab.experiment.tables import CELLS, METHODS, Row, Scalar, Tables, joined, to_csv

__all__ = ["collect", "write_tables"]


def collect(ledger: BenchDirectory, cells: Sequence[Cell]) -> dict[str, list[Row]]:
    """The tables of `cells`, in their order: those that are done, and in the table `cells` all of them."""
    tables: dict[str, list[Row]] = {CELLS: [], METHODS: []}
    for cell in cells:
        record = ledger.record(cell)
        tables[CELLS] += joined([_outcome(ledger, cell)], cell.id, cell.values)
        tables[METHODS] += [{"cell": cell.id, "method": m.label, "name": m.name, **m.values} for m in cell.methods]
        if record is None or record.state is not CellState.DONE:
            continue
        labels = {was.label: now.label for was, now in zip(record.cell.methods, cell.methods, strict=True)}
        for name, rows in ledger.tables(cell).items():
            tables.setdefault(name, []).extend(joined((_relabelled(row, labels) for row in rows), cell.id, cell.values))
    return tables


def write_tables(directory: Path, tables: Tables) -> list[str]:
    """Write each table to `NAME.csv` in `directory`; the names of the files, those without rows left out."""
    names = []
    for name, rows in tables.items():
        if rows:
            write_whole(directory / f"{name}.csv", to_csv(rows))
            names.append(f"{name}.csv")
        else:
            (directory / f"{name}.csv").unlink(missing_ok=True)
    return names


def _outcome(ledger: BenchDirectory, cell: Cell) -> dict[str, Scalar]:
    record = ledger.record(cell)
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
    """The row under its method's label of today, which is no part of what a cell is."""
    method = row.get("method")
    if not isinstance(method, str) or labels.get(method, method) == method:
        return row
    return {**row, "method": labels[method]}
