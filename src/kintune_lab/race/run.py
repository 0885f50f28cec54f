"""Runs a race: turns of the tuners, re-measurement, whole networks, tables."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.model import ModelRef
from kintune.core.stage_requests import ValidationContext
from kintune.errors import KintuneError
from kintune.files import write_whole
from kintune_lab.experiment.experiment import CellProgress, Show
from kintune_lab.experiment.tables import Tables
from kintune_lab.race.analysis import RaceAnalysis, analyse
from kintune_lab.race.networks import Assembler, time_networks
from kintune_lab.race.progress import RaceProgress
from kintune_lab.race.remeasurement import LocalMeasurementWorkers, best_programs_of, remeasure
from kintune_lab.race.tables import AT_CROSSING, AT_EQUAL_TIME, FINAL, network_name, tables_of
from kintune_lab.race.tuner_process import TUNER_MODULE, TunerProcess, WarmStartSource
from kintune_lab.race.turn_scheduler import RaceRecord, TurnScheduler, reference_kernel
from kintune_lab.tuners.messages import TunerContext, TunerSpec
from kintune_lab.tuners.worker_processes import thread_variables

__all__ = ["RaceSpec", "run_race", "without_torch"]


class RaceSpec(NamedTuple):
    """The parameters of a race: the tuners by label (stock's first), the model, and the effort of re-measurement.

    `budgets` has for each of the others the share of stock's seconds that it may spend.
    `passes` is how often each program is timed again, `rounds` the number of rounds of whole networks (5 runs each).
    `warm_starts` say by label what a tuner knows beforehand.
    """

    model: ModelRef
    tuners: Mapping[str, TunerSpec]
    threads: int
    seed: int
    budgets: Mapping[str, float]
    passes: int
    rounds: int
    warm_starts: Mapping[str, WarmStartSource] = {}


def run_race(
    spec: RaceSpec,
    directory: Path,
    turns: Path,
    show: Show,
    between_turns: Callable[[], None] = lambda: None,
    tuner_module: str = TUNER_MODULE,
) -> Tables:
    """Run one race; only logs stay in `directory`.  The caller holds the cores.

    The record is written to the file `turns`.  If that exists, its programs are only re-measured, so a failure does not
    repeat the turns.  `between_turns` is called while all tuners are stopped, and may wait.
    `tuner_module` is the module that runs a tuner under test.

    Raises:
        EngineError: a tuner's process died.
        KintuneError: the re-measurements cannot be compared, or the file `turns` is of another version.
    """
    progress = RaceProgress(spec.budgets, show)
    raced = _raced_before(turns)
    if raced is None:
        raced = _run_turns(spec, directory, progress, between_turns, tuner_module)
        write_whole(turns, msgspec.msgpack.encode(raced))
    record = raced.record
    progress.remeasuring(record)
    programs = [c for tuners in best_programs_of(record).values() for found in tuners.values() for c in found]
    with LocalMeasurementWorkers(record, spec.threads, directory / "judge.log") as workers:
        remeasurements = remeasure(record, workers, spec.passes, progress.remeasured)
    try:
        analysis = analyse(record, remeasurements)
    except KintuneError as error:
        raise KintuneError(
            f"{error}; --retry-failed judges again, and races again where {turns} was removed"
        ) from error
    conditions = ValidationContext(
        spec.threads, rounds=spec.rounds, min_rounds=min(spec.rounds, 6), race_seconds=60.0, prepare_seconds=3600.0
    )
    with Assembler(record, spec.model, spec.threads, directory / "assembler.log") as assembler:
        replayed = assembler.structures(list(dict.fromkeys(programs)))
        networks = time_networks(
            assembler, _wanted(record, analysis), directory, conditions, lambda phase: show(CellProgress(phase))
        )
    return tables_of(record, remeasurements, analysis, networks, replayed, raced.search_threads)


class _Raced(msgspec.Struct, frozen=True):
    """The turns, and with how many threads stock searched."""

    record: RaceRecord = msgspec.field(name="course")
    search_threads: int


def _raced_before(turns: Path) -> _Raced | None:
    if not turns.exists():
        return None
    try:
        return msgspec.msgpack.decode(turns.read_bytes(), type=_Raced)
    except msgspec.MsgspecError as error:
        raise KintuneError(f"{turns} is not from this version of Kintune ({error}); remove it to race again") from error


def _run_turns(
    spec: RaceSpec, directory: Path, progress: RaceProgress, between_turns: Callable[[], None], tuner_module: str
) -> _Raced:
    environment = thread_variables(spec.threads)
    hidden = directory / "hidden"
    if spec.model.kind != "exported":
        environment |= without_torch(hidden)
    with ExitStack() as stack:
        processes: list[TunerProcess] = []
        for number, (label, tuner) in enumerate(spec.tuners.items()):
            own = directory / f"side-{number}"
            own.mkdir()
            context = TunerContext(tuner, spec.model, spec.threads, spec.seed, str(own))
            process = TunerProcess(
                label, context, directory / f"side-{number}.log", environment, spec.warm_starts.get(label), tuner_module
            )
            stack.callback(process.close)
            processes.append(process)
        scheduler = TurnScheduler(processes, spec.budgets, time.monotonic, reference_kernel())
        progress.watch_tuners(processes)

        def watch(record: RaceRecord) -> None:
            progress.turned(record)
            between_turns()

        record = scheduler.run(watch)
    for own in filter(Path.is_dir, (*directory.glob("side-*"), hidden)):
        shutil.rmtree(own)  # stock's database of every candidate, mostly
    return _Raced(record, processes[0].search_threads)


def without_torch(hidden: Path) -> dict[str, str]:
    """An environment in which the compiler does not find PyTorch, nor do the workers of its builder.

    Where it is installed, the compiler imports it, and that doubles what a worker of the stock builder takes to start
    (14 to 26 seconds): no search is at fault for that.
    """
    hidden.mkdir()
    (hidden / "torch.py").write_text('raise ImportError("PyTorch takes no part in a race")\n')
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(hidden), os.environ.get("PYTHONPATH"))))}


def _wanted(record: RaceRecord, analysis: RaceAnalysis) -> dict[str, tuple[Candidate, ...]]:
    """The networks to compile: stock's at its end, the others' at equal time and where they became as good."""
    stock = next(iter(record.tracks))
    wanted: dict[str, tuple[Candidate, ...]] = {}
    for tuner, result in analysis.results.items():
        last = result.points[-1] if result.points else None
        moments = {FINAL: last} if tuner == stock else {AT_EQUAL_TIME: result.equal_time, AT_CROSSING: result.crossing}
        for moment, point in moments.items():
            if point is not None:
                wanted[network_name(tuner, moment)] = tuple(point.programs.values())
    return wanted
