"""The turn scheduler of a race, the race record, and the reference kernel that is timed before each turn.

The tuner with the fewest charged seconds goes next; the others are stopped.  A tuner is charged from the request until
it answers that its round is complete, on one clock.  The first tuner (stock) goes on until it ends by itself; the
others may spend as many seconds as it did, times their budget.  A tuner whose budget is below 1 goes less often, so
that its seconds are spread over all of stock's.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from kintune.core.candidate import Sketch
from kintune.core.workload import Subgraph
from kintune.errors import EngineError
from kintune_lab.race.tuner_process import TunerUnderTest
from kintune_lab.tuners.messages import BestProgram, CandidateFailure, TunerReady

__all__ = ["OnTurn", "RaceNetwork", "RaceRecord", "TunerRecord", "TurnRecord", "TurnScheduler", "reference_kernel"]


class RaceNetwork(msgspec.Struct, frozen=True):
    """The network that all tune: canonical target (JSON), subgraphs, their serialised programs by workload."""

    target: str
    subgraphs: tuple[Subgraph, ...]
    modules: dict[str, bytes]
    tasks: int


class TurnRecord(msgspec.Struct, frozen=True):
    """One turn of one tuner.

    `seconds` is what it is charged, `active_seconds` what it was charged until its end; `began_s` is when, in seconds
    of the race; `reference_us` is the reference kernel's time just before.  `stages` are seconds by stage on the
    tuner's own clock.  `programs` are the best programs that changed.
    """

    tuner: str = msgspec.field(name="side")
    number: int
    order: int
    began_s: float
    seconds: float
    active_seconds: float
    trials: int
    failures: tuple[CandidateFailure, ...]
    measured: dict[str, int]
    stages: dict[str, float]
    programs: tuple[BestProgram, ...]
    reference_us: float


class TunerRecord(msgspec.Struct, frozen=True):
    """All turns of one tuner; `finished` when it ended by itself rather than for lack of time."""

    tuner: str = msgspec.field(name="side")
    turns: tuple[TurnRecord, ...]
    prepare_seconds: float
    finished: bool

    @property
    def active_seconds(self) -> float:
        """What it is charged in all."""
        return self.turns[-1].active_seconds if self.turns else 0.0

    @property
    def trials(self) -> int:
        """How many candidates it measured."""
        return sum(turn.trials for turn in self.turns)


class RaceRecord(msgspec.Struct, frozen=True):
    """A race that is over: the network, the tracks by tuner (stock's first), and the sketches of all programs."""

    network: RaceNetwork = msgspec.field(name="ground")
    tracks: dict[str, TunerRecord]
    sketches: dict[str, Sketch]


OnTurn = Callable[[RaceRecord], None]
"""Called with the record so far after each turn."""


class TurnScheduler:
    """Lets tuners take turns, so that their charged seconds, relative to budgets below 1, grow together.

    The first of `tuners` is stock; `budgets` has for each of the others the share of stock's seconds that it may spend.
    `clock` gives seconds; `reference` times the reference kernel, in microseconds, while all tuners are stopped.
    """

    def __init__(
        self,
        tuners: Sequence[TunerUnderTest],
        budgets: Mapping[str, float],
        clock: Callable[[], float],
        reference: Callable[[], float],
    ) -> None:
        self._tuners = list(tuners)
        self._budgets = {**budgets, self._tuners[0].name: 1.0}
        self._clock = clock
        self._reference = reference
        self._turns: dict[str, list[TurnRecord]] = {tuner.name: [] for tuner in tuners}
        self._prepared_s: dict[str, float] = {}
        self._finished: set[str] = set()
        self._sketches: dict[str, Sketch] = {}
        self._order = 0

    def run(self, on_turn: OnTurn) -> RaceRecord:
        """Run all turns, and return the record.

        Raises:
            EngineError: a tuner's process died, or two tuners lowered the network differently.
        """
        network = self._prepare()
        began = self._clock()
        while (tuner := self._next()) is not None:
            self._turn(tuner, began)
            on_turn(self._record(network))
        return self._record(network)

    def _prepare(self) -> RaceNetwork:
        ready: dict[str, TunerReady] = {}
        for tuner in self._tuners:
            began = self._clock()
            ready[tuner.name] = tuner.prepare()
            self._prepared_s[tuner.name] = self._clock() - began
            tuner.stop()
        first = ready[self._tuners[0].name]
        for name, other in ready.items():
            if (other.target, other.subgraphs, other.modules) != (first.target, first.subgraphs, first.modules):
                raise EngineError(f"{name} has lowered the network otherwise than {self._tuners[0].name}")
        return RaceNetwork(first.target, first.subgraphs, first.modules, first.tasks)

    def _next(self) -> TunerUnderTest | None:
        """The next tuner: of those that may go, the one with the fewest seconds relative to its budget."""
        stock = self._tuners[0].name
        total = self._spent(stock) if stock in self._finished else math.inf
        waiting = [
            tuner
            for tuner in self._tuners
            if tuner.name not in self._finished
            and (tuner.name == stock or self._spent(tuner.name) < self._budgets[tuner.name] * total)
        ]
        return min(waiting, key=lambda one: self._spent(one.name) / min(1.0, self._budgets[one.name]), default=None)

    def _turn(self, tuner: TunerUnderTest, began: float) -> None:
        reference_us = self._reference()
        tuner.resume()
        start = self._clock()
        finished = tuner.run_turn()
        seconds = self._clock() - start
        report = tuner.report()
        tuner.stop()
        if finished:
            self._finished.add(tuner.name)
        self._sketches.update((sketch.digest, sketch) for sketch in report.sketches)
        turns = self._turns[tuner.name]
        turns.append(
            TurnRecord(
                tuner=tuner.name,
                number=len(turns),
                order=self._order,
                began_s=start - began,
                seconds=seconds,
                active_seconds=self._spent(tuner.name) + seconds,
                trials=report.trials,
                failures=report.failures,
                measured=report.measured,
                stages=report.seconds,
                programs=report.programs,
                reference_us=reference_us,
            )
        )
        self._order += 1

    def _spent(self, name: str) -> float:
        turns = self._turns[name]
        return turns[-1].active_seconds if turns else 0.0

    def _record(self, network: RaceNetwork) -> RaceRecord:
        tracks = {
            name: TunerRecord(name, tuple(turns), self._prepared_s[name], name in self._finished)
            for name, turns in self._turns.items()
        }
        return RaceRecord(network, tracks, self._sketches)


_SIZE = 768
_SECONDS = 0.1
_LEAST_RUNS = 5


def reference_kernel(clock: Callable[[], float] = time.perf_counter) -> Callable[[], float]:
    """Return a function that times a product of two matrices (768 x 768, fp32) for about 0.1 seconds.

    The function returns the median of its runs in microseconds, which shows how fast the machine was at each turn.
    """
    random = np.random.default_rng(0)
    left = random.standard_normal((_SIZE, _SIZE), np.float32)
    right = random.standard_normal((_SIZE, _SIZE), np.float32)
    product = np.empty_like(left)

    def measure() -> float:
        np.matmul(left, right, out=product)
        times: list[float] = []
        while len(times) < _LEAST_RUNS or sum(times) < _SECONDS:
            begun = clock()
            np.matmul(left, right, out=product)
            times.append(clock() - begun)
        return 1e6 * statistics.median(times)

    return measure
