"""Times the best programs of all tuners again, alternately and under one protocol.

The tuners' own times are never compared: they were taken at different times, and the fastest of many is biased.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Protocol, TypeVar

import msgspec

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.device import DeviceDescription
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, BuildItem, Built, ProfileContext, ProfileItem
from kintune.errors import EngineError
from kintune.wire.worker_client import WorkerDied, WorkerProcess, WorkerRefused
from kintune_lab.race.turn_scheduler import RaceRecord

__all__ = [
    "LocalMeasurementWorkers",
    "MeasurementWorkers",
    "Remeasurement",
    "best_programs_of",
    "pass_order",
    "remeasure",
]


Item = TypeVar("Item")


class MeasurementWorkers(Protocol):
    """Builds programs and times them."""

    def build(self, candidates: Sequence[Candidate], done: Callable[[int], None]) -> dict[Candidate, Built]:
        """Build all candidates; `done` is called with the number of those built."""

    def measure(
        self, candidates: Sequence[Candidate], built: Mapping[Candidate, Built], done: Callable[[int], None]
    ) -> dict[Candidate, Outcome]:
        """Check and time each once, in this order, against its workload's untuned program."""


class Remeasurement(msgspec.Struct, frozen=True):
    """The result for one program: the median of each pass in microseconds, or why it is rejected."""

    candidate: Candidate
    passes_us: tuple[float, ...]
    status: Status
    cause: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was built, and ran with correct results in every pass."""
        return self.status is Status.OK

    @property
    def median_us(self) -> float:
        """The median of the passes; infinite when it is rejected."""
        return statistics.median(self.passes_us) if self.ok else math.inf


def best_programs_of(record: RaceRecord) -> dict[str, dict[str, list[Candidate]]]:
    """The programs that were the best of a tuner at the end of a turn, by workload and tuner, in the order of turns.

    The untuned program of each workload is listed under the empty name.
    """
    programs: dict[str, dict[str, list[Candidate]]] = {
        s.workload: {"": [Candidate.untuned(s.workload)]} for s in record.ground.subgraphs
    }
    for tuner, track in record.tracks.items():
        for turn in track.turns:
            for program in turn.programs:
                of_tuner = programs[program.candidate.workload].setdefault(tuner, [])
                if program.candidate not in of_tuner:
                    of_tuner.append(program.candidate)
    return programs


def pass_order(programs: Mapping[str, Mapping[str, Sequence[Candidate]]], number: int) -> list[Candidate]:
    """The order of pass `number`: by workload, tuners alternating; each pass begins with another workload and tuner.

    The latest programs of the tuners come first, so that the final ones are timed close together.
    """
    order: list[Candidate] = []
    for workload in _rotated(list(programs), number):
        tuners = _rotated(list(programs[workload].values()), number)
        for row in itertools.zip_longest(*(reversed(tuner) for tuner in tuners)):
            order += [candidate for candidate in row if candidate is not None]
    return list(dict.fromkeys(order))


def remeasure(
    record: RaceRecord, workers: MeasurementWorkers, passes: int, show: Callable[[str, float], None]
) -> dict[Candidate, Remeasurement]:
    """Build every program of `best_programs_of`, and time all of them `passes` times.

    `show` gets the name of the phase, and the share of the work that is done.
    """
    programs = best_programs_of(record)
    candidates = pass_order(programs, 0)
    steps = len(candidates) * (passes + 1)
    built = workers.build(candidates, lambda count: show("building for the judge", count / steps))
    times: dict[Candidate, list[float]] = {candidate: [] for candidate in candidates}
    failed: dict[Candidate, Outcome] = {c: b.failure for c, b in built.items() if b.failure is not None}
    for number in range(passes):
        remaining = [c for c in pass_order(programs, number) if c not in failed]
        before = len(candidates) * (number + 1)

        def shown(count: int, before: int = before) -> None:
            show("judging", (before + count) / steps)

        for candidate, outcome in workers.measure(remaining, built, shown).items():
            if outcome.ok:
                times[candidate].append(outcome.median_us)
            else:
                failed[candidate] = outcome
    return {
        candidate: Remeasurement(candidate, tuple(times[candidate]), failed[candidate].status, failed[candidate].cause)
        if candidate in failed
        else Remeasurement(candidate, tuple(times[candidate]), Status.OK)
        for candidate in candidates
    }


def _rotated(items: list[Item], by: int) -> list[Item]:
    return items[by % len(items) :] + items[: by % len(items)] if items else []


_BUILD_SECONDS = 240.0  # more than the stock builder allows itself
_RUN_SECONDS = 120.0  # with the untuned program's run
_SHOW_SECONDS = 1.0

_encode = msgspec.msgpack.encode


class LocalMeasurementWorkers:
    """Implements `MeasurementWorkers` with `threads` build workers and one device worker.

    A worker that dies costs the program it was at, and is replaced.  Use as a context manager.
    """

    def __init__(self, record: RaceRecord, threads: int, log: Path) -> None:
        self._record = record
        self._threads = threads
        self._log = log
        self._device: WorkerProcess | None = None

    def __enter__(self) -> LocalMeasurementWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def build(self, candidates: Sequence[Candidate], done: Callable[[int], None]) -> dict[Candidate, Built]:
        """See `MeasurementWorkers`."""
        waiting: SimpleQueue[Candidate] = SimpleQueue()
        for candidate in candidates:
            waiting.put(candidate)
        built: dict[Candidate, Built] = {}
        with ThreadPoolExecutor(self._threads) as pool, ExitStack() as started, ExitStack() as first:
            first.callback(_drain, waiting)  # before workers are closed, whose threads would start others
            working = {pool.submit(self._build_some, waiting, built, started) for _ in range(self._threads)}
            while working:
                done(len(built))
                over, working = wait(working, timeout=_SHOW_SECONDS, return_when=FIRST_COMPLETED)
                for future in over:
                    future.result()
        return built

    def measure(
        self, candidates: Sequence[Candidate], built: Mapping[Candidate, Built], done: Callable[[int], None]
    ) -> dict[Candidate, Outcome]:
        """See `MeasurementWorkers`."""
        outcomes: dict[Candidate, Outcome] = {}
        for candidate in candidates:
            done(len(outcomes))
            device = self._device_for(built)
            item = _encode(ProfileItem(candidate.workload, built[candidate]))
            try:
                outcomes[candidate] = msgspec.msgpack.decode(device.order(item, _RUN_SECONDS), type=Outcome)
            except WorkerRefused as error:
                outcomes[candidate] = Outcome(Status.RUN_FAILED, cause=str(error))
            except WorkerDied as error:
                self._close()
                outcomes[candidate] = Outcome(Status.RUN_FAILED, cause=str(error))
        return outcomes

    def _build_some(self, waiting: SimpleQueue[Candidate], built: dict[Candidate, Built], started: ExitStack) -> None:
        context = _encode(BuildContext(self._record.ground.target, self._record.ground.modules, self._record.sketches))
        worker: WorkerProcess | None = None
        while (candidate := _next(waiting)) is not None:
            if worker is None:
                worker = started.enter_context(self._start("build"))
                worker.greet()
                worker.begin("build", context)
            try:
                answer = worker.order(_encode(BuildItem(candidate)), _BUILD_SECONDS)
                built[candidate] = msgspec.msgpack.decode(answer, type=Built)
            except WorkerRefused as error:
                built[candidate] = Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=str(error)))
            except WorkerDied as error:
                worker = None
                built[candidate] = Built(candidate.digest, failure=Outcome(Status.BUILD_FAILED, cause=str(error)))

    def _device_for(self, built: Mapping[Candidate, Built]) -> WorkerProcess:
        """The device worker, told of the untuned programs that everything is checked against."""
        if self._device is None:
            device = self._device = self._start("device", "--target", "native", "--threads", str(self._threads))
            about = msgspec.msgpack.decode(device.greet(), type=DeviceDescription)
            if about.device_type.target != self._record.ground.target:
                raise EngineError("the judge's device is of another target than the programs")
            references = {c.workload: b for c, b in built.items() if c.sketch == UNTUNED and b.failure is None}
            protocol = about.protocol_for(self._record.ground.subgraphs)
            device.begin("profile", _encode(ProfileContext(protocol, references)))
        return self._device

    def _start(self, kind: str, *arguments: str) -> WorkerProcess:
        environment = {"TVM_NUM_THREADS": str(self._threads), "OMP_NUM_THREADS": str(self._threads)}
        return WorkerProcess(
            f"the judge's {kind} worker",
            f"kintune.workers.{kind}_worker",
            arguments,
            log=self._log,
            environment=environment,
        )

    def _close(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None


def _next(waiting: SimpleQueue[Candidate]) -> Candidate | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None


def _drain(waiting: SimpleQueue[Candidate]) -> None:
    while _next(waiting) is not None:
        pass
