"""Runs the cells of a spec one after the other, unattended; imports their models first and estimates the time left."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeAlias

import msgspec

from kintune.core.stage_results import Prepared
from kintune.errors import InputError, KintuneError
from kintune.files import write_whole
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.models.ref import parse_ref
from kintune.tuning.estimation import preparing
from kintune_lab.bench.directory import BenchDirectory, CellState, end_record, start_record
from kintune_lab.bench.display import BenchDisplay
from kintune_lab.bench.report.writer import write_report
from kintune_lab.bench.spec import BenchSpec
from kintune_lab.bench.summary import BenchSummary, collect, summary_of, write_tables
from kintune_lab.experiment.experiment import Cell, CellFailure, CellProgress, Concluding, ModelFacts, Settling, Show
from kintune_lab.experiment.option import OptionKind
from kintune_lab.experiment.tables import Tables, check_tables
from kintune_lab.spec_document import SpecError

__all__ = ["BenchRunner", "Importer", "check_imports", "import_models", "models_of", "seconds_left"]


ImportAll = Callable[[Sequence[str]], Mapping[str, ModelFacts]]
"""Imports models by what the spec calls them.

Raises:
    SpecError: a model cannot be used.
"""


class BenchRunner:
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
        self._directory = BenchDirectory(output)
        self._display = display
        self._import_all = import_all
        self._clock = clock
        self._facts: Mapping[str, ModelFacts] = {}
        self._past: list[tuple[float | None, float]] = []

    def plan(self, *, retry_failed: bool = False) -> list[Cell]:
        """The cells that are to be run: neither done nor, unless asked for again, failed."""
        return [cell for cell in self._spec.cells if self._is_due(cell, retry_failed)]

    def expected(self, cells: Sequence[Cell]) -> list[float | None]:
        """Return about how many seconds each cell will take, None where that is unknown; imports their models."""
        self._facts = self._import_all(models_of(self._spec, cells))
        return [self._spec.experiment.seconds(cell, self._facts) for cell in cells]

    def run(self, *, retry_failed: bool = False) -> BenchSummary:
        """Run what is due, then collect everything and write the report.

        A cell that fails is recorded and does not end the bench.  Ctrl-C ends it after the cell is recorded.

        Raises:
            InputError: the input is wrong (before any cell runs), or the directory cannot be written.
        """
        with self._directory.locked():
            due = self.plan(retry_failed=retry_failed)
            expected = self.expected(due)
            write_whole(self._directory.path / "spec.toml", self._spec.text.encode())
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
        files = write_tables(self._directory.path, collect(self._directory, self._spec.cells))
        return self._summarize(files)

    def report(self) -> BenchSummary:
        """Collect, and write the report with its plots.

        Raises:
            InputError: no bench was run in the directory.
        """
        if not self._directory.path.is_dir():
            raise InputError(f"{self._directory.path}: no bench has been run there; leave --report-only away")
        tables = collect(self._directory, self._spec.cells)
        files = write_tables(self._directory.path, tables)
        if isinstance(self._spec.experiment, Concluding):
            ended = [cell for cell in self._spec.cells if self._has_ended(cell)]
            places = [self._directory.cell_directory(cell) / "files" for cell in ended]
            files += self._spec.experiment.conclude(self._directory.path, places, tables)
        files += write_report(self._directory.path, self._spec, tables, self._summarize(files))
        return self._summarize(files)

    def _summarize(self, files: Sequence[str]) -> BenchSummary:
        summary = summary_of(self._spec, self._spec.cells, self._directory, files)
        text = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(summary, output=".")).decode(), indent=2)
        write_whole(self._directory.path / "bench.json", f"{text}\n".encode())
        return summary

    def _is_due(self, cell: Cell, retry_failed: bool) -> bool:
        if not self._has_ended(cell):
            return True
        return retry_failed and not self._directory.is_done(cell)

    def _has_ended(self, cell: Cell) -> bool:
        record = self._directory.record(cell)
        return record is not None and record.state in (CellState.DONE, CellState.FAILED)

    def _run(self, cell: Cell, expected: float | None, later: Sequence[float | None]) -> None:
        """Run one cell, and record how it ended."""
        record = start_record(cell)
        directory = self._directory.begin(record)
        started = self._clock()

        def show(progress: CellProgress) -> None:
            elapsed = self._clock() - started
            rest = seconds_left(later, self._past)
            this = progress.seconds_left
            if this is None and expected is not None:
                this = max(0.0, expected - elapsed)
            self._display.show(progress, elapsed, None if rest is None or this is None else rest + this)

        def failed(error: BaseException, observed: Tables | None = None) -> None:
            end = end_record(record, CellState.FAILED, self._clock() - started, error)
            self._directory.finish(end, observed)
            self._display.failed(end)

        try:
            with self._cores(cell, show):
                started = self._clock()
                tables = self._run_checked(cell, directory, show)
        except KeyboardInterrupt:
            self._directory.finish(end_record(record, CellState.INTERRUPTED, self._clock() - started))
            raise
        except CellFailure as failure:
            failed(failure.error, failure.tables)
        except Exception as error:
            failed(error)
        else:
            done = end_record(record, CellState.DONE, self._clock() - started)
            self._directory.finish(done, tables)
            if isinstance(self._spec.experiment, Settling):
                self._spec.experiment.settled(cell, directory)
            self._past.append((expected, done.seconds or 0.0))
            self._display.done(done)

    def _run_checked(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Run the cell and check its tables, whether it fails or not."""
        try:
            tables = self._spec.experiment.run(cell, directory, show)
        except CellFailure as failure:
            check_tables(failure.tables)
            raise
        check_tables(tables)
        return tables

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
                if option.kind is OptionKind.MODEL and isinstance(value, str):
                    found[value] = None
    return list(found)


def seconds_left(expected: Sequence[float | None], past: Sequence[tuple[float | None, float]]) -> float | None:
    """Return the seconds for the cells with these `expected` seconds (None: unknown), None when nothing is known.

    `past` has pairs of what was expected and what it took.  Expectations are corrected by how they held so far; a cell
    without one is taken to be like the median of the past.
    """
    if not expected:
        return 0.0
    ratios = [took / thought for thought, took in past if thought]
    correction = statistics.median(ratios) if ratios else 1.0
    typical = statistics.median(took for _, took in past) if past else None
    total = 0.0
    for thought in expected:
        if thought is not None:
            total += thought * correction
        elif typical is not None:
            total += typical
        else:
            return None
    return total


Importer: TypeAlias = Callable[[str], ModelFacts]
"""Imports the model that a spec names.

Raises:
    InputError: the model cannot be used.
    KintuneError: the import crashes.
"""


def import_models(texts: Iterable[str], say: Callable[[str], None], places: Mapping[str, str]) -> dict[str, ModelFacts]:
    """Import and split each model as a tuning job would, on cores where no other process is timing anything.

    `say` gets messages for people; `places` has the start of an error message (file and line) by model.

    Raises:
        SpecError: a model cannot be used; the message names line and model.
    """
    wanted = list(dict.fromkeys(texts))
    if not wanted:
        return {}
    with preparing(on_wait=lambda holder: say(f"waiting for the cores, held by process {holder}")) as prepare:

        def importer(text: str) -> ModelFacts:
            say(f"importing {text}")
            return _facts(prepare(parse_ref(text)))

        return check_imports(wanted, importer, places)


def check_imports(texts: Iterable[str], importer: Importer, places: Mapping[str, str]) -> dict[str, ModelFacts]:
    """Return the facts of each model.

    Raises:
        SpecError: a model cannot be imported.
    """
    facts: dict[str, ModelFacts] = {}
    for text in texts:
        try:
            facts[text] = importer(text)
        except KintuneError as error:
            raise SpecError(f"{places.get(text, '')}cannot be imported: {error}") from error
    return facts


def _facts(prepared: Prepared) -> ModelFacts:
    if not prepared.subgraphs:
        raise InputError("it has no subgraph to tune")
    return ModelFacts(
        subgraphs=len(prepared.subgraphs),
        tunable=sum(subgraph.tunable for subgraph in prepared.subgraphs),
        flops=sum(subgraph.weight * subgraph.flops for subgraph in prepared.subgraphs),
    )
