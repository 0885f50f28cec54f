"""`experiment = "tune"`: one run of `kintune tune` a cell, with every option that a search has."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from kintune.core.config import Options, TuneConfig
from kintune.core.latency_target import parse_target
from kintune.core.report import ProgressReport, RunReport, StopReason
from kintune.errors import InputError
from kintune.files import write_whole
from kintune.models.ref import parse_ref
from kintune.tuning.front import driver
from kintune.tuning.front.request import TuneRequest
from kintune_lab.bench.report.charts import curve_charts, numbers, spread_of, stage_charts
from kintune_lab.bench.strategy import STRATEGY, strategy_of
from kintune_lab.experiment.experiment import Cell, CellProgress, ModelFacts, Show
from kintune_lab.experiment.option import Option, OptionKind, OptionsByName, Value, option_of, threads_option
from kintune_lab.experiment.section import Grid, ReportSection
from kintune_lab.experiment.tables import Row, Tables, by, varying, words

__all__ = ["EXPERIMENT", "Tune"]

_FIGURES = {
    "tuned_ms": "tuned, ms",
    "untuned_ms": "untuned, ms",
    "gain": "times faster",
    "measured": "programs measured",
    "seconds": "seconds",
}


def _records(value: Value) -> None:
    path = Path(str(value))
    if not path.is_file():
        return  # which is said of every file
    try:
        with closing(_look_into(path)) as known:
            known.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        raise InputError(f"cannot be used as records: {error}") from error


def _target(value: Value) -> None:
    parse_target(str(value))


_OPTIONS: dict[str, Option] = {
    "model": Option(OptionKind.MODEL, help="what to tune", required=True),
    "seed": option_of(TuneConfig, "seed"),
    "trials": option_of(TuneConfig, "trials"),
    "minutes": option_of(TuneConfig, "minutes", low=0.01),
    "until": option_of(TuneConfig, "until", check=_target),
    "target": option_of(TuneConfig, "target"),
    "threads": threads_option("model"),
    **STRATEGY,
    "records": Option(
        OptionKind.FILE, help="what is known beforehand (nothing); each cell starts from a copy", check=_records
    ),
    "compare": Option(OptionKind.FLAG, True, "time other runtimes as well"),
}
_METHODS: dict[str, OptionsByName] = {}


class Tune:
    """Runs `kintune tune` for each combination of the options that a spec varies."""

    name = "tune"
    version = 1
    summary = "One run of `kintune tune` a cell."
    options = _OPTIONS
    methods = _METHODS
    locks_cores = False  # the run takes the lock itself

    def check(self, cell: Cell) -> None:
        """Check that something ends the search.

        Raises:
            InputError: nothing does.
        """
        values = cell.values
        if values["trials"] is None and values["minutes"] is None and values["until"] is None:
            raise InputError("nothing ends the search; set trials, minutes or until in [matrix]")

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """Returns the seconds of the time limit; None if there is none, or trials may end the search first."""
        minutes = cell.values["minutes"]
        return minutes * 60 if isinstance(minutes, float) and cell.values["trials"] is None else None

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Tune with records of the cell's own."""
        records = directory / "records.sqlite"
        known = cell.values["records"]
        if isinstance(known, str):
            _copy_records(Path(known), records)
        work = directory / "executable"
        work.mkdir()
        try:
            report = driver.tune(_request(cell, directory, work), lambda progress: show(_progress(progress)))
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if report.reason is StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        portable = msgspec.structs.replace(report, output=Path(report.output).name, log="tune.log")
        write_whole(directory / "report.json", msgspec.json.encode(portable))
        return _tables(report)

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """Latencies, curves and stage times by model and whatever else varies."""
        results = list(tables.get("results", ()))
        if not results:
            return []
        lines = varying(results, self.options, besides=("model", "seed")) or ["method"]
        curve, stages = list(tables.get("curve", ())), list(tables.get("stages", ()))
        asked = {"trials": "asked_trials"}  # tables have a column of their own of that name
        lines_of_curve = [asked.get(name, name) for name in lines]
        charts = [
            chart
            for x, label, stem, title in (
                ("seconds", "seconds", "latency-over-time", "Latency over time"),
                ("trials", "programs measured", "latency-over-trials", "Latency over trials"),
            )
            for chart in curve_charts(
                curve, x=x, y="estimate_ms", x_label=label, y_label="estimated latency, ms", stem=stem, title=title,
                panels=["model"], lines=lines_of_curve,
            )
        ]  # fmt: skip
        return [
            ReportSection(
                "What was reached",
                ("Medians over seeds; in brackets the smallest and the largest.",),
                (_figures(results, lines),),
            ),
            ReportSection(
                "Latency over time and over trials",
                ("The tuner's own estimates.  Lines are medians over seeds, bands go from smallest to largest.",),
                charts=tuple(charts),
            ),
            ReportSection("Where the time went", charts=tuple(stage_charts(stages, panels=["model"], groups=lines))),
        ]


EXPERIMENT = Tune()


def _request(cell: Cell, directory: Path, work: Path) -> TuneRequest:
    values = cell.values
    strategy = strategy_of(values)
    limits = {name: values[name] for name in ("trials", "minutes", "until", "seed")}
    compare = {} if values["compare"] else {"compare": ()}
    options = msgspec.convert({**limits, **compare, "strategy": strategy}, Options)
    threads = values["threads"]
    return TuneRequest(
        model=parse_ref(str(values["model"])),
        target=str(values["target"]),
        threads=threads if isinstance(threads, int) else None,
        options=options,
        records=str(directory / "records.sqlite"),
        output=str(work / "tuned.kt"),
        log=str(directory / "tune.log"),
    )


def _look_into(records: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{records.absolute().as_uri()}?mode=ro", uri=True)


def _copy_records(source: Path, target: Path) -> None:
    """Copy a records file as it is at one moment, whoever else has it open."""
    try:
        with (
            closing(_look_into(source)) as known,
            closing(sqlite3.connect(target)) as own,
        ):
            known.backup(own)
    except sqlite3.Error as error:
        raise InputError(f"{source}: cannot be copied as records: {error}") from error


def _progress(report: ProgressReport) -> CellProgress:
    done = None
    if report.trials_total:
        done = min(1.0, report.trials / report.trials_total)
    elif report.time_left_s is not None:
        done = report.elapsed_s / max(report.elapsed_s + report.time_left_s, 1e-9)
    return CellProgress(report.phase or report.stage, done, report.time_left_s)


def _tables(report: RunReport) -> Tables:
    latency = report.latency_ms
    spread = latency.spread.get("tuned")
    result = {
        "method": "kintune",
        "reason": report.reason.value,
        "measured": report.trials,
        "reused": report.reused_records,
        "seconds": report.seconds,
        "overhead_seconds": report.overhead_seconds,
        "tuned_ms": latency.tuned,
        "tuned_p10_ms": spread.p10 if spread else None,
        "tuned_p90_ms": spread.p90 if spread else None,
        "untuned_ms": latency.untuned,
        "gain": latency.gain,
        "kernels_ms": report.kernels_ms,
        **{f"{rival}_ms": median for rival, median in sorted(latency.rivals.items())},
        "max_abs_error": report.max_abs_error,
        "within_tolerance": report.within_tolerance,
    }
    stages = msgspec.structs.asdict(report.stage_seconds)
    return {
        "results": [result],
        "curve": [
            {"method": "kintune", "seconds": point.seconds, "trials": point.trials, "estimate_ms": point.latency_ms}
            for point in report.curve
        ],
        "stages": [{"method": "kintune", "stage": name, "seconds": seconds} for name, seconds in stages.items()],
        "subgraphs": [
            {
                "method": "kintune",
                "subgraph": subgraph.name,
                "family": subgraph.family,
                "weight": subgraph.weight,
                "flops": subgraph.flops,
                "measured": subgraph.trials,
                "best_us": subgraph.best_us,
                "untuned_us": subgraph.untuned_us,
                "failures": sum(subgraph.failures.values()),
            }
            for subgraph in report.subgraphs
        ],
    }


def _figures(results: Sequence[Row], lines: Sequence[str]) -> Grid:
    rows = []
    for key, group in by(results, "model", *lines).items():
        spreads = [spread_of(numbers(row.get(column) for row in group)) for column in _FIGURES]
        named = words(["model", *lines], key)
        rows.append((named, str(len(group)), *("" if spread is None else str(spread) for spread in spreads)))
    return Grid(("cell", "runs", *_FIGURES.values()), tuple(rows))
