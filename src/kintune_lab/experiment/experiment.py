"""What the runner asks of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from kintune_lab.experiment.cell import Cell
from kintune_lab.experiment.option import Options
from kintune_lab.experiment.section import Section
from kintune_lab.experiment.tables import Tables

__all__ = ["CellProgress", "Experiment", "ModelFacts", "Settling", "Show"]


class CellProgress(msgspec.Struct, frozen=True):
    """Where a cell stands: a few words, the share that is done (0 to 1), and seconds left, both None while unknown."""

    phase: str
    done: float | None = None
    seconds_left: float | None = None


Show: TypeAlias = Callable[[CellProgress], None]
"""Told of progress, from the thread that runs the cell, as often as it likes."""


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
    options: Options
    methods: Mapping[str, Options]
    locks_cores: bool

    def check(self, cell: Cell) -> None:
        """Refuse what single options cannot show: values or methods that do not go together.

        Called for every cell before the first runs; quick, and without side effects.  Raises InputError; an
        `OptionError` also names the option, so that the spec's line is found.
        """

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """About how long the cell will take, None when nobody can say; `models` is by the text of the option."""

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Do the cell's work and return what was observed; the rows' `method` is a method's label.

        `directory` is empty, and what is left there stays.  Any exception fails this cell and no other one;
        `KeyboardInterrupt` ends the bench, and the cell is repeated from its start next time.
        """

    def report(self, tables: Tables) -> Sequence[Section]:
        """What the report shows of all cells that are done.

        Rows have the column `cell` and one for each option besides those that `run` returned.
        """


@runtime_checkable
class Settling(Protocol):
    """An experiment that keeps something outside a cell's directory until the cell is done."""

    def settled(self, cell: Cell, directory: Path) -> None:
        """The cell's tables are on disk: what was kept for another attempt may go.  `directory` is that of `run`."""
