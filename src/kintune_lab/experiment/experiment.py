"""The interface of experiments, and the cells and methods that they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from kintune.core.candidate import digest_of
from kintune.errors import KintuneError
from kintune_lab.experiment.option import OptionsByName, Value
from kintune_lab.experiment.section import ReportSection
from kintune_lab.experiment.tables import Tables

__all__ = [
    "Cell",
    "CellFailure",
    "CellProgress",
    "Concluding",
    "Experiment",
    "Method",
    "ModelFacts",
    "Settling",
    "Show",
]


class CellProgress(msgspec.Struct, frozen=True):
    """Where a cell stands: a few words, the share that is done (0 to 1), and seconds left, both None while unknown."""

    phase: str
    done: float | None = None
    seconds_left: float | None = None


Show: TypeAlias = Callable[[CellProgress], None]
"""Called with the progress of a cell, in the thread that runs it, any number of times."""


class ModelFacts(msgspec.Struct, frozen=True):
    """What importing a model has shown: how many distinct subgraphs it has, how many of them are worth a budget."""

    subgraphs: int
    tunable: int
    flops: float


class Experiment(Protocol):
    """One kind of experiment.  Its module is imported without the compiler, which runs in processes it starts.

    `name` is what a spec says; `version` goes into the identity of cells: raise it when a cell would come out otherwise
    than before, and all are run again.  `options` are those of `[matrix]`, `methods` the options of each `[[method]]`
    by name (empty when nothing competes).  The runner holds the cores (as many as the option `threads` says) while a
    cell runs if `locks_cores`; an experiment that does it otherwise takes the lock itself.
    """

    name: str
    version: int
    summary: str
    options: OptionsByName
    methods: Mapping[str, OptionsByName]
    locks_cores: bool

    def check(self, cell: Cell) -> None:
        """Refuse what single options cannot show: values or methods that do not go together.

        Called for every cell before the first runs; quick, and without side effects.

        Raises:
            InputError: the cell cannot be run; an `OptionError` also names the option, so that its line is found.
        """

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """Return about how many seconds the cell will take, None if unknown; `models` is by the text of the option."""

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Do the cell's work and return what was observed; the rows' `method` is a method's label.

        `directory` is empty, and what is left there stays.  Any exception fails this cell and no other one;
        `KeyboardInterrupt` ends the bench, and the cell is repeated from its start next time.
        """

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """What the report shows of all cells that are done.

        Rows have the column `cell` and one for each option besides those that `run` returned.
        """


@runtime_checkable
class Settling(Protocol):
    """An experiment that keeps something outside a cell's directory until the cell is done."""

    def settled(self, cell: Cell, directory: Path) -> None:
        """The cell's tables are on disk: what was kept for another attempt may go.  `directory` is that of `run`."""


@runtime_checkable
class Concluding(Protocol):
    """An experiment that writes files about all cells together, beside the tables."""

    def conclude(self, directory: Path, cells: Sequence[Path], tables: Tables) -> Sequence[str]:
        """Write files to `directory`, that of the bench, and return their names.

        `cells` are the directories of `run` of the cells that ended, done or failed, in the order of the spec; `tables`
        are those that `Experiment.report` gets.  Called at the end of each run of the bench, and when a report is
        asked for.
        """


class CellFailure(KintuneError):
    """A cell failed, and yet something was observed.

    `tables` are kept as those of a cell that is done; `error` is what the cell failed with.
    """

    def __init__(self, error: KintuneError, tables: Tables) -> None:
        self.error = error
        self.tables = tables
        super().__init__(str(error))


class Method(msgspec.Struct, frozen=True):
    """One method that is compared with others in a cell.

    `label` is unique in the cell and names it in tables and plots; `values` has every option of the method, those that
    the spec does not set at their default (None: not set).
    """

    name: str
    label: str
    values: dict[str, Value | None] = {}
    changed: dict[str, Value] = {}


class Cell(msgspec.Struct, frozen=True):
    """One piece of work that is done as a whole or not at all.

    `values` has every option of the experiment, `changed` those that are not at their default; `contents` digests the
    files that options name.  Its `id` depends on these alone: the order of options, defaults
    written out, the spec's other cells, labels and the `title` that people see are no part of it.
    """

    experiment: str
    version: int
    values: dict[str, Value | None]
    changed: dict[str, Value]
    methods: tuple[Method, ...] = ()
    contents: dict[str, str] = {}
    title: str = ""

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that name the cell for good."""
        methods = [(method.name, _ordered(method.changed)) for method in self.methods]
        parts = (self.experiment, self.version, _ordered(self.changed), methods, _ordered(self.contents))
        return digest_of(msgspec.json.encode(parts))[:12]


def _ordered(values: Mapping[str, Value]) -> list[tuple[str, Value]]:
    return sorted(values.items())
