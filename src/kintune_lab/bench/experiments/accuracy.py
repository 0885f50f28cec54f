"""How well one model for all subgraphs ranks programs, against one model for each family.

A pool with equally many samples of every subgraph is split again and again; each grouping's models learn from the same
samples, with the same settings, and rank the same other ones.  How many samples they learn from varies, since a search
begins with few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from kintune.errors import InputError
from kintune_lab.bench.strategy import STRATEGY
from kintune_lab.experiment.experiment import Cell, Method, ModelFacts, Show
from kintune_lab.experiment.option import Option, OptionError, OptionKind, OptionsByName
from kintune_lab.experiment.section import ReportSection
from kintune_lab.experiment.tables import Row, Tables
from kintune_lab.families.samples import group
from kintune_lab.pools.accuracy_report import accuracy_sections
from kintune_lab.pools.fitting import Capacity, Split, split_pool, train_models, try_models
from kintune_lab.pools.options import POOL_OPTIONS, Pace, check_pool, describe, obtain, seconds_to_collect

__all__ = ["EXPERIMENT", "Accuracy", "train_sizes"]

_LEAST = 12  # samples of a subgraph: the smallest that a search trains a model on
_SECONDS_A_FIT = 1.0  # all models of one grouping, a guess


_OPTIONS: dict[str, Option] = {
    **POOL_OPTIONS,
    "splits": Option(OptionKind.INTEGER, 10, "how often the pool is split", low=1, high=1000),
    "split": Option(
        OptionKind.TEXT, "random", "try on a random quarter, or on the one measured last", choices=("random", "later")
    ),
}
_METHODS: dict[str, OptionsByName] = {
    "trees": {
        "families": STRATEGY["families"],
        "rounds": Option(OptionKind.INTEGER, 100, "trees of a model", low=1, high=10_000),
        "depth": Option(OptionKind.INTEGER, 6, "levels of a tree", low=1, high=16),
        "rooted": Option(OptionKind.FLAG, False, "let the models of all families grow from a common one"),
    }
}


class Accuracy:
    """Implements `kintune_lab.experiment.experiment.Experiment`."""

    name = "accuracy"
    version = 1
    summary = "How well family models rank measured programs, against one model for all."
    options = _OPTIONS
    methods = _METHODS
    locks_cores = False  # nothing is timed but the pool, and the run that collects it takes the lock itself

    def check(self, cell: Cell) -> None:
        """Check the pool, and that there is a plain monolithic model of each model's size to compare it with.

        Raises:
            InputError: there is none, or the pool cannot be used.
        """
        check_pool(cell)
        if not cell.methods:
            raise InputError('name the models to compare: [[method]] name = "trees", families = ["none", "op"]')
        monolithic = {
            _size(method)
            for method in cell.methods
            if method.values["families"] == "none" and not method.values["rooted"]
        }
        for method in cell.methods:
            if _size(method) not in monolithic:
                raise OptionError(
                    "families",
                    "there is no model of the same rounds and depth with families none, not rooted, to compare it with",
                    method.label,
                )

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """Returns the seconds of collecting the pool, which take nearly all of it, and of fitting the models."""
        sizes = len(train_sizes(int(cell.values["samples"] or 0) * 3 // 4))
        fits = int(cell.values["splits"] or 0) * sizes * len(cell.methods) * _SECONDS_A_FIT
        return fits + seconds_to_collect(cell, models)

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Collect the pool unless it is there, then split, train and rank."""
        samples, splits = int(cell.values["samples"] or 0), int(cell.values["splits"] or 0)
        pool = obtain(cell, directory, show)
        rows: list[Row] = []
        pace = Pace("split", splits, show)
        for split in range(splits):
            pace.begin(split)
            parts = split_pool(pool, samples, seed=split, later=cell.values["split"] == "later")
            for method in cell.methods:
                rows += _rows(method, parts, split)
        return {"accuracy": rows, "pool": describe(pool)}

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """Accuracy over samples, and differences between models with their intervals."""
        return accuracy_sections(tables)


def train_sizes(most: int) -> list[int]:
    """How many samples of a subgraph models learn from: doubling, up to `most`."""
    sizes = []
    size = _LEAST
    while size < most:
        sizes.append(size)
        size *= 2
    return [*sizes, most]


def _rows(method: Method, parts: Split, split: int) -> Iterator[Row]:
    capacity = _capacity(method)
    for size in train_sizes(max(len(measured) for measured in parts.train.values())):
        part = parts.first(size)
        families = group(str(method.values["families"]), part.train)
        models = train_models(part.train, families, capacity, seed=split)
        for fit in try_models(part.test, families, models):
            yield {
                "method": method.label,
                **method.values,
                "split_number": split,
                "train_samples": size,
                "test_samples": len(part.test[fit.workload]),
                "operator": part.test[fit.workload].subject.operator,
                **msgspec.structs.asdict(fit),
            }


def _size(method: Method) -> tuple[object, object]:
    return method.values["rounds"], method.values["depth"]


def _capacity(method: Method) -> Capacity:
    values = method.values
    return Capacity(int(values["rounds"] or 0), int(values["depth"] or 0), bool(values["rooted"]))


EXPERIMENT = Accuracy()
"""The object that `experiment_of` returns."""
