"""What came of a bench: the value behind the last lines, `bench.json` and `--json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune_lab.bench.ledger import BenchDirectory
from kintune_lab.bench.record import CellState
from kintune_lab.bench.spec import BenchSpec
from kintune_lab.experiment.cell import Cell

__all__ = ["BenchSummary", "FailedCell", "summary_of"]


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


def summary_of(spec: BenchSpec, cells: Sequence[Cell], ledger: BenchDirectory, files: Sequence[str]) -> BenchSummary:
    """What the ledger knows of these cells; `seconds` adds up those of the cells that are done."""
    records = [(cell, ledger.record(cell)) for cell in cells]
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
        output=str(ledger.directory),
        files=tuple(files),
    )
