"""Times the best programs of all tuners again, alternately and under one protocol.

The tuners' own times are never compared: they were taken at different times, and the fastest of many is biased.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

import msgspec

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, Built, ProfileContext
from kintune_lab.race.turn_scheduler import RaceRecord
from kintune_lab.tuners.worker_processes import BuildWorkers, DeviceWorker, thread_variables

__all__ = [
    "LocalMeasurementWorkers",
    "MeasurementWorkers",
    "Remeasurement",
    "best_programs_of",
    "pass_order",
    "remeasure",
]


_OWNER = "the judge's"  # in causes of failure, which the tables have
_BUILD_SECONDS = 240.0  # more than the stock builder allows itself
_RUN_SECONDS = 120.0  # with the untuned program's run

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
        s.workload: {"": [Candidate.untuned(s.workload)]} for s in record.network.subgraphs
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


class LocalMeasurementWorkers:
    """Implements `MeasurementWorkers` with `threads` build workers and one device worker.

    A worker that dies costs the program it was at, and is replaced.  Use as a context manager.
    """

    def __init__(self, record: RaceRecord, threads: int, log: Path) -> None:
        self._record = record
        self._threads = threads
        self._log = log
        self._device: DeviceWorker | None = None

    def __enter__(self) -> LocalMeasurementWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._device is not None:
            self._device.close()

    def build(self, candidates: Sequence[Candidate], done: Callable[[int], None]) -> dict[Candidate, Built]:
        """See `MeasurementWorkers`."""
        network = self._record.network
        context = BuildContext(network.target, network.modules, self._record.sketches)
        variables = thread_variables(self._threads)
        with BuildWorkers(_OWNER, self._threads, context, self._log, variables) as workers:
            workers.wait_ready()
            return workers.build(candidates, _BUILD_SECONDS, done)

    def measure(
        self, candidates: Sequence[Candidate], built: Mapping[Candidate, Built], done: Callable[[int], None]
    ) -> dict[Candidate, Outcome]:
        """See `MeasurementWorkers`."""
        device = self._device_for(built)
        outcomes: dict[Candidate, Outcome] = {}
        for candidate in candidates:
            done(len(outcomes))
            outcomes[candidate] = device.run(candidate.workload, built[candidate], _RUN_SECONDS)
        return outcomes

    def _device_for(self, built: Mapping[Candidate, Built]) -> DeviceWorker:
        """The device worker; outputs are checked against those of the untuned programs in `built`."""
        if self._device is None:
            network = self._record.network
            variables = thread_variables(self._threads)
            self._device = DeviceWorker(_OWNER, network.target, self._threads, self._log, variables)
            protocol = self._device.wait_ready().protocol_for(network.subgraphs)
            references = {c.workload: b for c, b in built.items() if c.sketch == UNTUNED and b.failure is None}
            self._device.begin(ProfileContext(protocol, references))
        return self._device
