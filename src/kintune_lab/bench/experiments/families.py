"""How many families the subgraphs of a network fall into, by each algorithm; nothing is measured for it.

Families that are found from samples need a pool of them, which another experiment has collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kintune.errors import InputError
from kintune.models.ref import parse_ref
from kintune.search.family import algorithms
from kintune.tuning.estimation import preparing
from kintune_lab.experiment.experiment import Cell, CellProgress, ModelFacts, Show
from kintune_lab.experiment.option import Option, OptionError, OptionKind, OptionsByName
from kintune_lab.experiment.section import Bar, BarChart, Grid, ReportSection
from kintune_lab.experiment.tables import Row, Tables, by, words
from kintune_lab.families.document import families_of
from kintune_lab.families.samples import SubgraphSamples, group, is_dynamic, subject_of
from kintune_lab.pools.pool import load_pool

__all__ = ["EXPERIMENT", "FamilyCounts"]

_SECONDS = 15.0  # to import a network and list its subgraphs, a guess
_OPTIONS: dict[str, Option] = {
    "model": Option(OptionKind.MODEL, required=True, help="the network"),
    "pool": Option(OptionKind.FILE, None, "the .npz of its measured programs, for families found from samples"),
}
_METHODS: dict[str, OptionsByName] = {}


class FamilyCounts:
    """Implements `kintune_lab.experiment.experiment.Experiment`."""

    name = "families"
    version = 1
    summary = "How many families each algorithm finds in a network."
    options = _OPTIONS
    methods = _METHODS
    locks_cores = False  # nothing is timed, and the import takes the lock itself

    def check(self, cell: Cell) -> None:
        """Check that the pool, if one is named, is of the cell's own network.

        Raises:
            OptionError: it is not, or cannot be read.
        """
        if cell.values["pool"] is None:
            return
        try:
            pool = load_pool(Path(str(cell.values["pool"])))
        except InputError as error:
            raise OptionError("pool", f"cannot be used: {error}") from error
        if pool.origin.model != cell.values["model"]:
            raise OptionError("pool", f"is one of {pool.origin.model}, not of {cell.values['model']}")

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """Returns the seconds that the import of the network takes, a guess."""
        del cell, models
        return _SECONDS

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Import the network and group its subgraphs by each algorithm."""
        del directory
        show(CellProgress("importing the model"))
        with preparing(
            on_wait=lambda who: show(CellProgress(f"waiting for the cores, held by process {who}"))
        ) as prepare:
            prepared = prepare(parse_ref(str(cell.values["model"])))
        subjects = [subject_of(subgraph) for subgraph in prepared.subgraphs if subgraph.tunable]
        known = {subject.workload for subject in subjects}
        measured: dict[str, SubgraphSamples] = {}
        if cell.values["pool"] is not None:
            pool = load_pool(Path(str(cell.values["pool"])))
            measured = {workload: samples for workload, samples in pool.subgraphs.items() if workload in known}
        counts: list[Row] = []
        found: list[Row] = []
        for algorithm in algorithms():
            if is_dynamic(algorithm) and not measured:
                continue
            document = families_of(prepared, algorithm, group(algorithm, measured, subjects))
            counts.append(
                {
                    "families": algorithm,
                    "family_count": len(document.families),
                    "subgraphs": document.subgraphs,
                    "tunable": document.tunable,
                }
            )
            found += [
                {
                    "families": algorithm,
                    "family": family.key,
                    "members": len(family.members),
                    "occurrences": sum(member.weight for member in family.members),
                    "flops_share": family.share,
                }
                for family in document.families
            ]
        return {"family_counts": counts, "families": found}

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """The number of families by network, and what the families by core operator are made of."""
        rows = tables.get("family_counts", ())
        if not rows:
            return ()
        text = (
            "Only subgraphs worth tuning have a family. The published method's choice is `op`, by core operator; "
            "`none` is one family for all and `ind` one for each. FamilySeer (arXiv 2201.00194) reports fewer than "
            "eight families for most networks, five for ResNet-50.",
        )
        bars = [
            Bar(words(("model",), (row["model"],)), float(row["family_count"] or 0), series=str(row["families"]))
            for row in rows
            if row["families"] not in ("none", "ind")
        ]
        chart = BarChart("families", "Families a network", "families", tuple(bars))
        return (
            ReportSection("Families a network", text, (_counts(rows), _by_op(tables.get("families", ()))), (chart,)),
        )


def _counts(rows: Sequence[Row]) -> Grid:
    named = [name for name in algorithms() if any(row["families"] == name for row in rows)]
    lines = []
    for (model,), part in by(rows, "model").items():
        found = {str(row["families"]): str(row["family_count"]) for row in part}
        head = (words(("model",), (model,)), str(part[0]["subgraphs"]), str(part[0]["tunable"]))
        lines.append((*head, *(found.get(name, "") for name in named)))
    return Grid(("model", "distinct subgraphs", "worth tuning", *named), tuple(lines))


def _by_op(rows: Sequence[Row]) -> Grid:
    lines = []
    for (model,), part in by([row for row in rows if row["families"] == "op"], "model").items():
        said = [f"{str(row['family']).partition(':')[2]} ({row['members']})" for row in part]
        lines.append((words(("model",), (model,)), ", ".join(said)))
    return Grid(("model", "families by core operator (subgraphs)"), tuple(lines))


EXPERIMENT = FamilyCounts()
"""The object that `experiment_of` returns."""
