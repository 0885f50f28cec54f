"""Strategies of search compared on a pool: the same measured programs for all, many seeds, no device.

Costs are counted in trials.  Proposers cannot be compared this way, since nothing new can be proposed; budgets,
families and foresee tuning can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kintune.core.config import Strategy
from kintune.errors import InputError
from kintune_lab.bench.strategy import STRATEGY
from kintune_lab.experiment.experiment import Cell, Method, ModelFacts, Show
from kintune_lab.experiment.option import Option, OptionKind, OptionsByName
from kintune_lab.experiment.section import ReportSection
from kintune_lab.experiment.tables import Row, Tables
from kintune_lab.pools.options import POOL_OPTIONS, Pace, check_pool, describe, obtain, seconds_to_collect
from kintune_lab.pools.pool import Pool
from kintune_lab.pools.replay import Point, replay, trials_to_reach
from kintune_lab.pools.replay_report import replay_sections

__all__ = ["EXPERIMENT", "ReplayExperiment"]

_QUALITIES = (0.8, 0.9, 0.95, 0.99)  # of the speed that the pool's best programs give the network
_SECONDS_A_TRIAL = 0.002  # of a replay, a guess
_OPTIONS: dict[str, Option] = {
    **POOL_OPTIONS,
    "runs": Option(OptionKind.INTEGER, 10, "searches of each strategy, with different seeds", low=1, high=1000),
    "trials_per_subgraph": Option(OptionKind.INTEGER, None, "trials of a search (half of the pool)", low=1),
}
_METHODS: dict[str, OptionsByName] = {
    "search": {
        **{name: STRATEGY[name] for name in ("families", "foresee", "budget", "foresee_size", "width")},
        "round_size": msgspec.structs.replace(STRATEGY["round_size"], default=64),
    }
}


class ReplayExperiment:
    """Implements `kintune_lab.experiment.experiment.Experiment`."""

    name = "replay"
    version = 1
    summary = "Strategies of search compared on measured programs, many seeds and no device."
    options = _OPTIONS
    methods = _METHODS
    locks_cores = False  # nothing is timed but the pool, and the run that collects it takes the lock itself

    def check(self, cell: Cell) -> None:
        """Check the pool, and that there are strategies to compare.

        Raises:
            InputError: there are none, or the pool cannot be used.
        """
        check_pool(cell)
        if not cell.methods:
            raise InputError('name the strategies to compare: [[method]] name = "search", families = ["none", "op"]')

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """Returns the seconds of collecting the pool, which take nearly all of it, and of the replays."""
        facts = models.get(str(cell.values["model"]))
        samples, asked = int(cell.values["samples"] or 0), cell.values["trials_per_subgraph"]
        trials = (samples // 2 if asked is None else min(samples, int(asked))) * (facts.tunable if facts else 10)
        replays = int(cell.values["runs"] or 0) * len(cell.methods)
        return seconds_to_collect(cell, models) + replays * trials * _SECONDS_A_TRIAL

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Collect the pool unless it is there, then play each strategy with each seed."""
        pool = obtain(cell, directory, show)
        runs = int(cell.values["runs"] or 0)
        asked = cell.values["trials_per_subgraph"]
        everything = sum(len(measured) for measured in pool.subgraphs.values())
        trials = everything // 2 if asked is None else min(everything, int(asked) * len(pool.subgraphs))
        curve: list[Row] = []
        reached: list[Row] = []
        total = runs * len(cell.methods)
        pace = Pace("search", total, show)
        for number in range(total):
            run, method = divmod(number, len(cell.methods))
            pace.begin(number)
            points = list(replay(pool, _strategy(cell.methods[method]), seed=run, trials=trials))
            curve += _curve(cell.methods[method], run, points, pool)
            reached += _reached(cell.methods[method], run, points, pool)
        return {"replay": curve, "reached": reached, "pool": describe(pool)}

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """Quality over trials, and the trials that each quality takes."""
        return replay_sections(tables)


def _strategy(method: Method) -> Strategy:
    factors: dict[str, object] = dict(method.values)
    return Strategy(**factors, carry=False, rules=False, survey=())  # type: ignore[arg-type]


def _curve(method: Method, run: int, points: Sequence[Point], pool: Pool) -> list[Row]:
    best_us = pool.best_us()
    return [
        {
            "method": method.label,
            **method.values,
            "run": run,
            "trials": point.trials,
            "trials_a_subgraph": point.trials / len(pool.subgraphs),
            "network_us": point.network_us if math.isfinite(point.network_us) else None,
            "quality": best_us / point.network_us,
            "family_count": point.families,
        }
        for point in points
    ]


def _reached(method: Method, run: int, points: list[Point], pool: Pool) -> list[Row]:
    best_us = pool.best_us()
    return [
        {
            "method": method.label,
            **method.values,
            "run": run,
            "quality": quality,
            "trials": trials_to_reach(points, best_us / quality),
            "spent": points[-1].trials if points else 0,
        }
        for quality in _QUALITIES
    ]


EXPERIMENT = ReplayExperiment()
"""The object that `experiment_of` returns."""
