"""Runs the cells of a spec one after the other, unattended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from kintune.errors import InputError
from kintune.files import write_whole
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune_lab.bench.collect import collect, write_tables
from kintune_lab.bench.display import BenchDisplay
from kintune_lab.bench.forecast import seconds_left
from kintune_lab.bench.ledger import BenchDirectory
from kintune_lab.bench.record import CellState, begun, ended
from kintune_lab.bench.report.writer import write_report
from kintune_lab.bench.spec import BenchSpec
from kintune_lab.bench.summary import BenchSummary, summary_of
from kintune_lab.experiment.cell import Cell
from kintune_lab.experiment.experiment import CellProgress, ModelFacts, Settling
from kintune_lab.experiment.option import Kind
from kintune_lab.experiment.tables import check_tables

__all__ = ["Bench", "models_of"]

ImportAll = Callable[[Sequence[str]], Mapping[str, ModelFacts]]
"""Imports models by what the spec calls them; raises SpecError for one that cannot be used."""


class Bench:
    """One spec and the directory that its results are collected in.

    `clock` tells seconds; tests have their own.
    """

    def __init__(
        self,
        spec: BenchSpec,
        output: Path,
        display: BenchDisplay,
        import_all: ImportAll,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._ledger = BenchDirectory(output)
        self._display = display
        self._import_all = import_all
        self._clock = clock
        self._facts: Mapping[str, ModelFacts] = {}
        self._past: list[tuple[float | None, float]] = []

    def plan(self, *, retry_failed: bool = False) -> list[Cell]:
        """The cells that are to be run: neither done nor, unless asked for again, failed."""
        return [cell for cell in self._spec.cells if self._is_due(cell, retry_failed)]

    def expected(self, cells: Sequence[Cell]) -> list[float | None]:
        """About how many seconds each cell will take, None where nobody can say; imports their models."""
        self._facts = self._import_all(models_of(self._spec, cells))
        return [self._spec.experiment.seconds(cell, self._facts) for cell in cells]

    def run(self, *, retry_failed: bool = False) -> BenchSummary:
        """Run what is due, then collect everything and write the report.

        A cell that fails is recorded and does not end the rest.  Ctrl-C ends the bench after noting so.  Raises
        InputError when something handed in is wrong, before any cell runs, or when the disk refuses.
        """
        with self._ledger.locked():
            due = self.plan(retry_failed=retry_failed)
            expected = self.expected(due)
            write_whole(self._ledger.directory / "spec.toml", self._spec.text.encode())
            try:
                for position, cell in enumerate(due):
                    self._display.begin(cell, len(self._spec.cells) - len(due) + position, len(self._spec.cells))
                    self._run(cell, expected[position], expected[position + 1 :])
                    self.collect()
            finally:
                self._display.close()
            return self.report()

    def collect(self) -> BenchSummary:
        """Put together what all cells observed, and write it to the directory."""
        files = write_tables(self._ledger.directory, collect(self._ledger, self._spec.cells))
        return self._summarize(files)

    def report(self) -> BenchSummary:
        """Collect, and write the report with its plots; raises InputError where no bench has been."""
        if not self._ledger.directory.is_dir():
            raise InputError(f"{self._ledger.directory}: no bench has been run there; leave --report-only away")
        tables = collect(self._ledger, self._spec.cells)
        files = write_tables(self._ledger.directory, tables)
        files += write_report(self._ledger.directory, self._spec, tables, self._summarize(files))
        return self._summarize(files)

    def _summarize(self, files: Sequence[str]) -> BenchSummary:
        summary = summary_of(self._spec, self._spec.cells, self._ledger, files)
        text = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(summary, output=".")).decode(), indent=2)
        write_whole(self._ledger.directory / "bench.json", f"{text}\n".encode())
        return summary

    def _is_due(self, cell: Cell, retry_failed: bool) -> bool:
        record = self._ledger.record(cell)
        if record is None or record.state not in (CellState.DONE, CellState.FAILED):
            return True
        return retry_failed and record.state is CellState.FAILED

    def _run(self, cell: Cell, expected: float | None, later: Sequence[float | None]) -> None:
        """Run one cell to whatever end."""
        record = begun(cell)
        directory = self._ledger.begin(record)
        started = self._clock()

        def show(progress: CellProgress) -> None:
            elapsed = self._clock() - started
            rest = seconds_left(later, self._past)
            this = progress.seconds_left
            if this is None and expected is not None:
                this = max(0.0, expected - elapsed)
            self._display.show(progress, elapsed, None if rest is None or this is None else rest + this)

        try:
            with self._cores(cell, show):
                started = self._clock()
                tables = self._spec.experiment.run(cell, directory, show)
            check_tables(tables)
        except KeyboardInterrupt:
            self._ledger.finish(ended(record, CellState.INTERRUPTED, self._clock() - started))
            raise
        except Exception as error:
            failed = ended(record, CellState.FAILED, self._clock() - started, error)
            self._ledger.finish(failed)
            self._display.failed(failed)
        else:
            done = ended(record, CellState.DONE, self._clock() - started)
            self._ledger.finish(done, tables)
            if isinstance(self._spec.experiment, Settling):
                self._spec.experiment.settled(cell, directory)
            self._past.append((expected, done.seconds or 0.0))
            self._display.done(done)

    def _cores(self, cell: Cell, show: Callable[[CellProgress], None]) -> AbstractContextManager[None]:
        """Hold the cores if the experiment wants the runner to."""
        if not self._spec.experiment.locks_cores:
            return nullcontext()
        threads = cell.values.get("threads")
        cores = choose_cores(threads if isinstance(threads, int) else 0)
        return cores_lock(cores, lambda holder: show(CellProgress(f"waiting for the cores, held by process {holder}")))


def models_of(spec: BenchSpec, cells: Sequence[Cell]) -> list[str]:
    """The models that options of these cells name, each once."""
    experiment = spec.experiment
    found: dict[str, None] = {}
    for cell in cells:
        pairs = [(experiment.options, cell.values)]
        pairs += [(experiment.methods[method.name], method.values) for method in cell.methods]
        for options, values in pairs:
            for name, option in options.items():
                value = values.get(name)
                if option.kind is Kind.MODEL and isinstance(value, str):
                    found[value] = None
    return list(found)
