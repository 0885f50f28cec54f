"""One race from beginning to end: the contestants, their turns, the judge, the networks, the tables."""

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
from kintune_lab.contest.orders import ContestContext, Tuner
from kintune_lab.experiment.experiment import CellProgress, Show
from kintune_lab.experiment.tables import Tables
from kintune_lab.race.conductor import Conductor
from kintune_lab.race.course import Course
from kintune_lab.race.judge import entered, judge
from kintune_lab.race.laboratory import JudgeWorkers
from kintune_lab.race.networks import Assembler, time_networks
from kintune_lab.race.progress import Forecast
from kintune_lab.race.reckoning import Reckoning, reckon
from kintune_lab.race.reference import reference_kernel
from kintune_lab.race.side import CONTESTANT_MODULE, Contestant, Lesson
from kintune_lab.race.tables import AT_CROSSING, AT_EQUAL_TIME, FINAL, network_name, tables_of

__all__ = ["RaceSpec", "run_race", "without_torch"]


class RaceSpec(NamedTuple):
    """What is raced: the tuners by label (stock's first), on which model, and how thoroughly it is judged.

    `budgets` has for each of the others the share of stock's seconds that it may spend.
    `passes` is how often the judge times each program, `rounds` in how many the whole networks run (5 times each).
    `lessons` say by label what a tuner knows beforehand.
    """

    model: ModelRef
    tuners: Mapping[str, Tuner]
    threads: int
    seed: int
    budgets: Mapping[str, float]
    passes: int
    rounds: int
    lessons: Mapping[str, Lesson] = {}


def run_race(
    spec: RaceSpec,
    directory: Path,
    turns: Path,
    show: Show,
    between_turns: Callable[[], None] = lambda: None,
    contestant: str = CONTESTANT_MODULE,
) -> Tables:
    """Run one race; only logs stay in `directory`.  The caller holds the cores.

    What was raced is left in the file `turns`; where it is there already it is only judged, so that nothing else is
    repeated should that fail.  `between_turns` is called while everybody stands still, and may take its time.
    `contestant` is the module that is a contestant's process.

    Raises EngineError when a contestant dies, KintuneError when what was judged cannot be compared or `turns` is no
    such file.
    """
    forecast = Forecast(spec.budgets, show)
    raced = _raced_before(turns)
    if raced is None:
        raced = _conduct(spec, directory, forecast, between_turns, contestant)
        write_whole(turns, msgspec.msgpack.encode(raced))
    course = raced.course
    forecast.judging(course)
    programs = [c for sides in entered(course).values() for side in sides.values() for c in side]
    with JudgeWorkers(course, spec.threads, directory / "judge.log") as laboratory:
        judgements = judge(course, laboratory, spec.passes, forecast.judged)
    try:
        reckoning = reckon(course, judgements)
    except KintuneError as error:
        raise KintuneError(
            f"{error}; --retry-failed judges again, and races again where {turns} was removed"
        ) from error
    conditions = ValidationContext(
        spec.threads, rounds=spec.rounds, min_rounds=min(spec.rounds, 6), race_seconds=60.0, prepare_seconds=900.0
    )
    with Assembler(course, spec.model, spec.threads, directory / "assembler.log") as assembler:
        replayed = assembler.structures(list(dict.fromkeys(programs)))
        networks = time_networks(
            assembler, _wanted(course, reckoning), directory, conditions, lambda phase: show(CellProgress(phase))
        )
    return tables_of(course, judgements, reckoning, networks, replayed, raced.search_threads)


class _Raced(msgspec.Struct, frozen=True):
    """The turns, and with how many threads stock searched."""

    course: Course
    search_threads: int


def _raced_before(turns: Path) -> _Raced | None:
    if not turns.exists():
        return None
    try:
        return msgspec.msgpack.decode(turns.read_bytes(), type=_Raced)
    except msgspec.MsgspecError as error:
        raise KintuneError(f"{turns} is not from this version of Kintune ({error}); remove it to race again") from error


def _conduct(
    spec: RaceSpec, directory: Path, forecast: Forecast, between_turns: Callable[[], None], contestant: str
) -> _Raced:
    threads = str(spec.threads)
    environment = {"TVM_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
    hidden = directory / "hidden"
    if spec.model.kind != "exported":
        environment |= without_torch(hidden)
    with ExitStack() as stack:
        sides: list[Contestant] = []
        for number, (label, tuner) in enumerate(spec.tuners.items()):
            own = directory / f"side-{number}"
            own.mkdir()
            contest = ContestContext(tuner, spec.model, spec.threads, spec.seed, str(own))
            side = Contestant(
                label, contest, directory / f"side-{number}.log", environment, spec.lessons.get(label), contestant
            )
            stack.callback(side.close)
            sides.append(side)
        conductor = Conductor(sides, spec.budgets, time.monotonic, reference_kernel())
        forecast.watch_sides(sides)

        def watch(course: Course) -> None:
            forecast.turned(course)
            between_turns()

        course = conductor.conduct(watch)
    for own in filter(Path.is_dir, (*directory.glob("side-*"), hidden)):
        shutil.rmtree(own)  # stock's database of every candidate, mostly
    return _Raced(course, sides[0].search_threads)


def without_torch(hidden: Path) -> dict[str, str]:
    """An environment in which the compiler does not find PyTorch, nor do the workers of its builder.

    Where it is installed, the compiler imports it, and that doubles what a worker of the stock builder takes to start
    (14 to 26 seconds): no search is at fault for that.
    """
    hidden.mkdir()
    (hidden / "torch.py").write_text('raise ImportError("PyTorch takes no part in a race")\n')
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(hidden), os.environ.get("PYTHONPATH"))))}


def _wanted(course: Course, reckoning: Reckoning) -> dict[str, tuple[Candidate, ...]]:
    """The networks to compile: stock's at its end, the others' at equal time and where they became as good."""
    stock = next(iter(course.tracks))
    wanted: dict[str, tuple[Candidate, ...]] = {}
    for side, standing in reckoning.standings.items():
        last = standing.points[-1] if standing.points else None
        moments = (
            {FINAL: last} if side == stock else {AT_EQUAL_TIME: standing.equal_time, AT_CROSSING: standing.crossing}
        )
        for moment, point in moments.items():
            if point is not None:
                wanted[network_name(side, moment)] = tuple(point.programs.values())
    return wanted
