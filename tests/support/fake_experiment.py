"""An experiment that measures nothing, for tests of whatever runs experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kintune_lab.experiment.experiment import Cell, CellProgress, ModelFacts, Show
from kintune_lab.experiment.option import Option, OptionError, OptionKind, OptionsByName
from kintune_lab.experiment.section import ReportSection
from kintune_lab.experiment.tables import Tables

__all__ = ["FakeExperiment"]

_OPTIONS: dict[str, Option] = {
    "model": Option(OptionKind.MODEL),
    "data": Option(OptionKind.FILE),
    "seed": Option(OptionKind.INTEGER, 0, low=0),
    "size": Option(OptionKind.INTEGER, 64, low=1, high=4096),
    "rate": Option(OptionKind.NUMBER, 1.0, low=0.0),
    "mode": Option(OptionKind.TEXT, "calm", choices=("calm", "wild")),
    "carry": Option(OptionKind.FLAG, True),
}
_METHODS: dict[str, OptionsByName] = {
    "one": {},
    "needy": {"width": Option(OptionKind.INTEGER, required=True)},
    "two": {"families": Option(OptionKind.TEXT, "op"), "width": Option(OptionKind.INTEGER, 1)},
}


class FakeExperiment:
    """Counts how often each cell was run to its end, in `ran` by id.

    `upset` is called at the beginning of each run and may raise.  A `wild` cell of size 13 is refused beforehand.
    """

    name = "fake"
    version = 1
    summary = "Nothing is measured."
    options = _OPTIONS
    methods = _METHODS
    locks_cores = False

    def __init__(self, upset: Callable[[Cell], None] | None = None) -> None:
        self.ran: dict[str, int] = {}
        self._upset = upset

    def check(self, cell: Cell) -> None:
        """Refuse what does not go together."""
        if cell.values["mode"] == "wild" and cell.values["size"] == 13:
            raise OptionError("size", "must not be 13 where the mode is wild")
        for method in cell.methods:
            if method.values.get("width") == 13:
                raise OptionError("width", "must not be 13", method.label)

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """As many as its size."""
        size = cell.values["size"]
        return float(size) if isinstance(size, int) else None

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Observe two rows a method, or two rows without one."""
        show(CellProgress("at work", 0.5))
        if self._upset is not None:
            self._upset(cell)
        self.ran[cell.id] = self.ran.get(cell.id, 0) + 1
        labels = [method.label for method in cell.methods] or ["none"]
        return {
            "results": [{"method": label, "turn": turn, "size": turn * 2} for label in labels for turn in (0, 1)],
            "empty": [],
        }

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """How many rows there are."""
        return [ReportSection("Rows", (f"{len(tables.get('results', ()))} rows",))]
