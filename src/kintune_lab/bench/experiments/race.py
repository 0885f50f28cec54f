"""`experiment = "race"`: the stock tuner and ours take turns on the same network; their programs are re-measured."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast, get_args

import msgspec

from kintune.core.config import TuneConfig
from kintune.errors import InputError
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.models.ref import ZOO, parse_ref
from kintune_lab.bench.report.race import race_sections
from kintune_lab.bench.strategy import STRATEGY, strategy_of
from kintune_lab.experiment.experiment import Cell, CellProgress, Method, ModelFacts, Show
from kintune_lab.experiment.option import (
    Option,
    OptionError,
    OptionKind,
    OptionsByName,
    Value,
    option_of,
    threads_option,
)
from kintune_lab.experiment.section import ReportSection
from kintune_lab.experiment.tables import Tables
from kintune_lab.race.progress import Pause
from kintune_lab.race.run import RaceSpec, run_race
from kintune_lab.race.tuner_process import WarmStartSource
from kintune_lab.race.warm_start import HITS, KIN, NONE, TeachingPlan, tune_teachers, warm_start_from
from kintune_lab.tuners.messages import KintuneSpec, StockFamilySpec, StockSpec, ToolsName, TunerSpec

__all__ = ["EXPERIMENT", "Race"]

STOCK, STOCK_FAMILY, KINTUNE = "stock", "stock_family", "kintune"

TIME_GOAL, QUALITY_GOAL = 2.5, 1.14
"""The ratios to be reached: of time to quality, and of quality at equal time."""

PAUSE = "pause"
"""The name of a file: while it is in a bench's directory, a race pauses after the current turn."""

_SECONDS_A_TRIAL = 1.1  # of stock, a guess
_KNOWLEDGE: dict[str, Option] = {
    "knowledge": Option(
        OptionKind.TEXT, NONE, "what it knows beforehand of what the teachers taught", choices=(NONE, HITS, KIN)
    ),
}


def _teachers(value: Value) -> None:
    for teacher in _names(value):
        parse_ref(teacher)


def _teacher_files(value: Value) -> list[str]:
    return [ref.source for ref in map(parse_ref, _names(value)) if ref.kind != ZOO]


_OPTIONS: dict[str, Option] = {
    "model": Option(OptionKind.MODEL, help="what is tuned", required=True),
    "seed": option_of(TuneConfig, "seed"),
    "trials_per_subgraph": Option(
        OptionKind.INTEGER, 128, "stock's trials for each subgraph that it would tune", low=1
    ),
    "budget_ratio": Option(
        OptionKind.NUMBER,
        1.0,
        "how many times stock's seconds the others may spend, unless they say so",
        low=0.01,
        high=100,
    ),
    "threads": threads_option("model"),
    "teachers": Option(
        OptionKind.TEXT,
        help="networks, separated by commas, that warm methods know",
        check=_teachers,
        files=_teacher_files,
    ),
    "teaching_minutes": Option(OptionKind.NUMBER, 10.0, "how long each teacher is tuned", low=0.01),
    "passes": Option(OptionKind.INTEGER, 3, "how often the judge times each program", low=1, high=100),
    "rounds": Option(OptionKind.INTEGER, 12, "rounds in which whole networks are timed, 5 runs each", low=1, high=1000),
}

_TOOLS: dict[str, Option] = {
    "tools": Option(
        OptionKind.TEXT,
        "stock",
        "builder, runner and protocol: the stock tuner's, or our own",
        choices=get_args(ToolsName),
    ),
}

_BUDGET: dict[str, Option] = {
    "budget_ratio": Option(
        OptionKind.NUMBER, help="how many times stock's seconds this one may spend", low=0.01, high=100
    ),
}

_METHODS: dict[str, OptionsByName] = {
    STOCK: {},
    STOCK_FAMILY: {**{name: STRATEGY[name] for name in ("families", "foresee")}, **_BUDGET},
    KINTUNE: {**STRATEGY, **_TOOLS, **_KNOWLEDGE, **_BUDGET},
}


class Race:
    """Implements `kintune_lab.experiment.experiment.Experiment`."""

    name = "race"
    version = 3
    summary = "The stock tuner and ours in turns, judged afterwards."
    options: OptionsByName = _OPTIONS
    methods: Mapping[str, OptionsByName] = _METHODS
    locks_cores = False  # teaching takes the lock itself, as any tuning does

    def check(self, cell: Cell) -> None:
        """Check that exactly one method is stock, with which the others are compared, and that warm ones have teachers.

        Raises:
            InputError: that is not so.
        """
        stock = [method for method in cell.methods if method.name == STOCK]
        if len(stock) != 1 or len(cell.methods) < 2:
            raise InputError("a race has the method stock once and at least one other; write [[method]] for each")
        for method in cell.methods:
            if method.values.get("knowledge", NONE) != NONE and not _names(cell.values["teachers"] or ""):
                raise OptionError("knowledge", "needs networks that teach it; name teachers in [matrix]", method.label)

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """Returns the seconds of stock's trials, and the share of them that each of the others may spend."""
        facts = models.get(str(cell.values["model"]))
        if facts is None:
            return None
        trials = int(cell.values["trials_per_subgraph"] or 0) * facts.subgraphs
        return trials * _SECONDS_A_TRIAL * (1.0 + sum(_budgets(cell).values()))  # teaching is done once for all cells

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Tune the teachers unless that is done, run the race, and return its tables."""
        values = cell.values
        threads = values["threads"]
        cores = choose_cores(threads if isinstance(threads, int) else 0)
        ordered = sorted(cell.methods, key=lambda method: method.name != STOCK)
        spec = RaceSpec(
            model=parse_ref(str(values["model"])),
            tuners={method.label: _tuner(cell, method) for method in ordered},
            threads=len(cores),
            seed=int(values["seed"] or 0),
            budgets=_budgets(cell),
            passes=int(values["passes"] or 0),
            rounds=int(values["rounds"] or 0),
            warm_starts=_warm_starts(cell, directory.parents[2] / "teaching", len(cores), show),
        )
        turns = _turns(cell, directory)
        turns.parent.mkdir(exist_ok=True)

        def hold() -> AbstractContextManager[None]:
            return cores_lock(cores, lambda who: show(CellProgress(f"waiting for the cores, held by process {who}")))

        with Pause(directory.parents[2] / PAUSE, hold, show) as pause:
            return run_race(spec, directory, turns, show, pause.between_turns)

    def settled(self, cell: Cell, directory: Path) -> None:
        """Delete the record of the turns."""
        with contextlib.suppress(OSError):
            _turns(cell, directory).unlink()

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """Ratios, curves and stage times against stock."""
        return race_sections(
            tables, self.options, reference=_stock_label(tables), time_goal=TIME_GOAL, quality_goal=QUALITY_GOAL
        )


EXPERIMENT = Race()


def _turns(cell: Cell, directory: Path) -> Path:
    """Where the turns of a cell lie until it is done; `directory` is that of its files."""
    return directory.parents[2] / "turns" / f"{cell.id}.msgpack"


def _budgets(cell: Cell) -> dict[str, float]:
    """What share of stock's seconds each of the others may spend, by label."""
    others = {method.label: method.values.get("budget_ratio") for method in cell.methods if method.name != STOCK}
    return {label: float((own or cell.values["budget_ratio"]) or 0.0) for label, own in others.items()}


def _tuner(cell: Cell, method: Method) -> TunerSpec:
    each = int(cell.values["trials_per_subgraph"] or 0)
    match method.name:
        case "stock":
            return StockSpec(each)
        case "stock_family":
            return msgspec.convert(
                {"type": STOCK_FAMILY, "trials_per_subgraph": each, **method.values}, StockFamilySpec
            )
        case _:
            return KintuneSpec(strategy_of(method.values), cast(ToolsName, method.values["tools"]))


def _warm_starts(cell: Cell, directory: Path, threads: int, show: Show) -> dict[str, WarmStartSource]:
    """Returns the warm start of each method that has one, by label.

    The teachers are tuned first if no earlier cell of the bench has done so.
    """
    warm = {m.label: m for m in cell.methods if m.values.get("knowledge", NONE) != NONE}
    if not warm:
        return {}
    teachers = str(cell.values["teachers"] or "")
    minutes = float(cell.values["teaching_minutes"] or 0.0)
    plan = TeachingPlan(_names(teachers), minutes, threads, cell.contents.get(teachers, ""))
    records = tune_teachers(plan, directory, lambda phase, share: show(CellProgress(phase)))
    seed = int(cell.values["seed"] or 0)
    return {
        label: warm_start_from(records, str(method.values["knowledge"]), str(method.values["families"]), seed, threads)
        for label, method in warm.items()
    }


def _names(value: Value) -> tuple[str, ...]:
    return tuple(name.strip() for name in str(value).split(",") if name.strip())


def _stock_label(tables: Tables) -> str:
    """Returns the label of stock, which has the first row of each cell's results."""
    results = tables.get("results", ())
    return str(results[0]["method"]) if results else STOCK
