"""`experiment = "compare"`: a file a cell, compiled, tuned, and timed beside other runtimes in turns."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kintune.core.config import DEFAULT_MAX_ERROR, TuneConfig
from kintune.core.latency_target import COMPARED
from kintune.errors import InputError
from kintune.files import readable_files, write_whole
from kintune.validate.baselines import INT8
from kintune_lab.comparison.files import check_constants, check_shapes, constant_files, find_models, own_files
from kintune_lab.comparison.quantised import DRAWN
from kintune_lab.comparison.records import collect_records
from kintune_lab.comparison.report import comparison_sections, markdown, to_json
from kintune_lab.comparison.run import FileSettings, compare_file
from kintune_lab.comparison.timing import OTHERS
from kintune_lab.experiment.experiment import Cell, CellFailure, ModelFacts, Show
from kintune_lab.experiment.option import Option, OptionKind, OptionsByName, Value, option_of, threads_option
from kintune_lab.experiment.section import ReportSection
from kintune_lab.experiment.tables import Tables

__all__ = ["EXPERIMENT", "Compare"]

NONE = "none"
JSON, MARKDOWN = "comparison.json", "comparison.md"
"""What a run of the bench writes besides its tables and its report."""

_SECONDS_BESIDES = 90.0  # compiling, checking and timing a file, a guess


def _names(value: Value | None) -> tuple[str, ...]:
    return () if value == NONE else tuple(name.strip() for name in str(value).split(",") if name.strip())


def _check_others(value: Value) -> None:
    for name in _names(value):
        if name not in OTHERS:
            raise InputError(f"there is no runtime {name!r}; there are {', '.join(OTHERS)}, or {NONE} for none")


def _check_calibration(value: Value) -> None:
    if value not in ("", DRAWN):
        readable_files(str(value), ".npz", "the calibration files")


def _calibration_files(value: Value) -> list[str]:
    return [] if value in ("", DRAWN) else [*map(str, readable_files(str(value), ".npz", "the calibration files"))]


_OPTIONS: dict[str, Option] = {
    "model": Option(
        OptionKind.TEXT,
        help="files, folders, patterns of names, or networks of the zoo",
        required=True,
        files=lambda value: own_files(str(value)),
        expand=find_models,
    ),
    "shapes": Option(
        OptionKind.TEXT, "", "shapes of the inputs, with spaces between", check=lambda value: check_shapes(str(value))
    ),
    "constants": Option(
        OptionKind.TEXT,
        "",
        "inputs with fixed values, with spaces between",
        check=lambda value: check_constants(str(value)),
        files=lambda value: constant_files(str(value)),
    ),
    "inputs": Option(OptionKind.FILE, help="an .npz file with the inputs (they are drawn)"),
    "minutes": Option(OptionKind.NUMBER, 2.0, "how long a file is tuned; 0 compiles it only", low=0.0),
    "seed": option_of(TuneConfig, "seed"),
    "threads": threads_option("model, in every runtime"),
    "rtol": option_of(TuneConfig, "rtol"),
    "atol": option_of(TuneConfig, "atol"),
    "baselines": Option(
        OptionKind.TEXT, ", ".join(COMPARED), "runtimes to compare with, where they are installed", check=_check_others
    ),
    "rounds": Option(OptionKind.INTEGER, 10, "rounds in which each runtime has a turn of 5 runs", low=1, high=1000),
    "keep": Option(OptionKind.FLAG, False, "keep the executables"),
    "precision": option_of(TuneConfig, "precision"),
    "max_error": option_of(TuneConfig, "max_error", default=DEFAULT_MAX_ERROR, low=0.0),
    "calibrate": Option(
        OptionKind.TEXT,
        "",
        f"inputs to quantise with: an .npz file, a folder of them, or {DRAWN!r} for eight that are drawn; for int8, for"
        " auto, and for baselines in int8",
        check=_check_calibration,
        files=_calibration_files,
    ),
}
_METHODS: dict[str, OptionsByName] = {}


class Compare:
    """Implements `kintune_lab.experiment.experiment.Experiment` and `Concluding`."""

    name = "compare"
    version = 1
    summary = "Files tuned and timed beside other runtimes."
    options: OptionsByName = _OPTIONS
    methods: Mapping[str, OptionsByName] = _METHODS
    locks_cores = False  # tuning takes the lock itself, and so does the timing afterwards

    def check(self, cell: Cell) -> None:
        """Check that there are inputs to quantise with; options are checked singly, and a wrong model becomes a row.

        Raises:
            InputError: something is to be quantised, and there are no inputs for that.
        """
        values = cell.values
        quantised = [name for name in ("int8",) if values["precision"] == name]
        quantised += [name for name in _names(values["baselines"]) if name in INT8]
        if quantised and not values["calibrate"]:
            raise InputError(f"{quantised[0]} needs inputs to quantise with: set calibrate, to {DRAWN!r} for example")

    def seconds(self, cell: Cell, models: Mapping[str, ModelFacts]) -> float | None:
        """The time of the search, and a guess of the rest."""
        return 60 * float(cell.values["minutes"] or 0.0) + _SECONDS_BESIDES

    def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
        """Compile, tune and time one file; its executable is deleted unless it is to be kept.

        Raises:
            CellFailure: Kintune has no result, or not the one that was asked for; what was timed is in its tables.
        """
        work = directory / "executable"
        work.mkdir()
        try:
            found = compare_file(_settings(cell), directory, work, show)
        finally:
            if not cell.values["keep"]:
                shutil.rmtree(work, ignore_errors=True)
        if found.error is not None:
            raise CellFailure(found.error, found.tables)
        return found.tables

    def conclude(self, directory: Path, cells: Sequence[Path], tables: Tables) -> Sequence[str]:
        """Write the comparison as JSON and as Markdown, and all records as one file a CPU."""
        write_whole(directory / JSON, to_json(tables))
        write_whole(directory / MARKDOWN, markdown(tables).encode())
        return [JSON, MARKDOWN, *collect_records(directory, cells)]

    def report(self, tables: Tables) -> Sequence[ReportSection]:
        """Ratios, files and failures."""
        return comparison_sections(tables)


EXPERIMENT = Compare()
"""The object that `experiment_of` returns."""


def _settings(cell: Cell) -> FileSettings:
    values = cell.values
    threads, inputs = values["threads"], values["inputs"]
    return FileSettings(
        model=str(values["model"]),
        shapes=str(values["shapes"]),
        constants=str(values["constants"]),
        inputs=inputs if isinstance(inputs, str) else None,
        minutes=float(values["minutes"] or 0.0),
        seed=int(values["seed"] or 0),
        threads=threads if isinstance(threads, int) else None,
        rtol=float(values["rtol"] or 0.0),
        atol=float(values["atol"] or 0.0),
        others=_names(values["baselines"]),
        rounds=int(values["rounds"] or 1),
        precision=str(values["precision"]),
        max_error=float(values["max_error"] or 0.0),
        calibrate=str(values["calibrate"] or ""),
    )
