"""Kintune's search, one round at a time.

With the stock builder and runner, only the search differs from the stock tuner.  With the workers of `kintune tune`,
building and timing differ as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import tvm

from kintune.compiler.graph.workload import is_tunable
from kintune.compiler.space.replay import Replayer
from kintune.compiler.space.sketches import generate_sketches
from kintune.compiler.space.tvm_space import TvmSpace
from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.device import Peak
from kintune.errors import OrderError
from kintune.hardware.cpu import data_caches, inspect_machine
from kintune.runtime.target import NATIVE, instruction_set
from kintune.search.family import Subject
from kintune.search.processor import Processor
from kintune.search.session import SearchSession
from kintune.tuning.loop import RoundDone, Timed, rounds
from kintune.wire.worker_client import interview
from kintune_lab.tuners.measurement import (
    STOCK_TOOLS,
    OwnMeasurements,
    RoundMeasurements,
    StockMeasurements,
    StockTools,
)
from kintune_lab.tuners.messages import BestProgram, KintuneSpec, TurnReport, WarmStart
from kintune_lab.tuners.setup import SharedSetup, structural_hash
from kintune_lab.tuners.turns import BestPrograms, StageTimer

__all__ = ["KintuneTuner"]


class KintuneTuner:
    """The session of `kintune tune` without its engine: a round is selected, built, run and learnt from."""

    def __init__(
        self, setup: SharedSetup, spec: KintuneSpec, seed: int, directory: Path, tools: StockTools = STOCK_TOOLS
    ) -> None:
        """`directory` is for logs, `tools` are the stock builder and runner."""
        self.timer = StageTimer()
        self._setup = setup
        self._spec = spec
        self._seed = seed
        self._directory = directory
        self._tools = tools
        self._warm_start = WarmStart()
        self._session: SearchSession | None = None
        self._rounds: Iterator[RoundDone] | None = None
        self._trivial: list[Candidate] = []
        self._best_programs: BestPrograms[Candidate] = BestPrograms()
        self._replayers: dict[str, Replayer] = {}
        self._sketches: dict[str, Sketch] = {}
        self._reported: set[str] = set()
        self._peak = _peak(setup.threads) if spec.strategy.budget == "prospect" else None

    def teach(self, warm_start: WarmStart) -> None:
        """Set the knowledge that the search starts with."""
        self._warm_start = warm_start

    def turn(self) -> bool:
        """Do one round, its update included; True when no subgraph is expected to gain any more."""
        if self._rounds is None:
            session, self._trivial = self._begin()
            measures = self._measure  # what is measured is the search, not the gain: no untuned programs
            self._rounds = rounds(session, measures, with_untuned=False, stage=self.timer.stage)
        done = next(self._rounds, None)
        if done is None:
            return True
        for workload in dict.fromkeys(entry.workload for entry in done.plan.entries):
            state = self._opened.states[workload]
            if state.best is not None:
                self._best_programs.set_best(workload, state.best, state.best_us)
        return False

    def _measure(self, picks: list[Candidate]) -> list[Timed]:
        """Build and time the candidates of a round, and with the first round the programs of trivial subgraphs."""
        session = self._opened
        trivial, self._trivial = self._trivial, []
        measured = [*picks, *trivial]
        best = {workload: state.best_us for workload, state in session.states.items()}
        again = [candidate for candidate in picks if session.knows(candidate)]
        outcomes = self._measurements.measure(measured, self._program, best, again)
        for candidate, outcome in zip(measured, outcomes, strict=True):
            new = candidate not in again
            self._best_programs.observe(
                candidate.workload, candidate, outcome, trial=new and candidate.sketch != UNTUNED
            )
        return [
            Timed(c, outcome, self._measurements.build_seconds(c))
            for c, outcome in zip(picks, outcomes[: len(picks)], strict=True)
        ]

    def report(self) -> TurnReport:
        """Report the last turn."""
        changed, measured, failures = self._best_programs.take()
        programs = tuple(
            BestProgram(candidate, time_us, structural_hash(self._program(candidate)))
            for candidate, time_us in changed.values()
        )
        wanted = {p.candidate.sketch for p in programs} - self._reported - {UNTUNED}
        self._reported |= wanted
        sketches = tuple(self._sketches[digest] for digest in sorted(wanted))
        return TurnReport(sum(measured.values()), failures, measured, self.timer.take(), programs, sketches)

    def close(self) -> None:
        """End all processes."""
        if self._session is not None:
            self._measurements.close()

    def _begin(self) -> tuple[SearchSession, list[Candidate]]:
        """The search, and the programs of trivial subgraphs, which get no budget: the rule's best and the untuned."""
        setup, workloads = self._setup, self._setup.lowered.workloads
        with self.timer.stage("other"):
            sketches = [s for w in workloads for s in generate_sketches(w.digest, w.module, setup.target)]
            self._sketches = {sketch.digest: sketch for sketch in sketches}
            self._measurements = self._make_measurements()
            modules = {w.digest: w.module for w in workloads}
            caches = data_caches(inspect_machine())
            machine = Processor.of(instruction_set(setup.canonical), setup.threads, caches)
            space = TvmSpace(modules, sketches, setup.target, machine, setup.threads)
            tunable = is_tunable(workloads)
            subjects = [
                Subject(w.digest, w.occurrences, w.flops, w.operator, w.signature)
                for w in workloads
                if w.digest in tunable
            ]
            strategy = self._spec.strategy
            if self._spec.tools != "own":  # there, a known program would be built anew to be timed again
                strategy = msgspec.structs.replace(strategy, again=0)
            session = SearchSession(subjects, space, strategy, seed=self._seed, threads=setup.threads)
            session.teach(self._warm_start.knowledge)
            if self._peak is not None:
                session.limit({w.digest: self._peak.least_us(w.flops, w.weight_bytes) for w in workloads})
            for suggestion in self._warm_start.suggestions:
                session.suggest(suggestion)
        trivial: list[Candidate] = []
        with self.timer.stage("select"):
            for workload in workloads:
                if workload.digest not in tunable:
                    drafts = space.verify(space.rules(workload.digest, 1))
                    trivial += [draft.candidate for draft in drafts if draft is not None]
                    trivial.append(Candidate.untuned(workload.digest))
        self._session = session
        return session, trivial

    @property
    def _opened(self) -> SearchSession:
        if self._session is None:
            raise OrderError("a turn must be begun first")
        return self._session

    def _make_measurements(self) -> RoundMeasurements:
        if self._spec.tools == "own":
            return OwnMeasurements(self._setup, self._sketches, self._directory / "workers.log", self.timer)
        return StockMeasurements(self._setup, self._tools, self.timer)

    def _program(self, candidate: Candidate) -> tvm.IRModule:
        if candidate.workload not in self._replayers:
            workload = next(w for w in self._setup.lowered.workloads if w.digest == candidate.workload)
            self._replayers[candidate.workload] = Replayer(workload.module, self._setup.target)
        replayer = self._replayers[candidate.workload]
        if candidate.sketch == UNTUNED:
            return replayer.module
        return replayer(self._sketches[candidate.sketch], candidate).schedule.mod


def _peak(threads: int) -> Peak:
    """The peak throughput of this machine; not charged, since a tuning job finds it in the records."""
    arguments = ("--target", NATIVE, "--threads", str(threads))
    with interview("kintune.workers.device_worker", arguments) as device:
        return msgspec.msgpack.decode(device.ask("peak"), type=Peak)
