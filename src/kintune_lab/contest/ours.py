"""Our search, one round at a time.

Through the stock builder and runner, only the search differs from stock: what a candidate becomes, how it is built,
run and judged fast is the same.  Through the workers of `kintune tune`, it is all of it that is compared.
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
from kintune_lab.contest.ground import ContestGround, structure_of
from kintune_lab.contest.incumbents import Incumbents
from kintune_lab.contest.laps import Laps
from kintune_lab.contest.orders import ContestProgram, Ours, Teach, Turned
from kintune_lab.contest.own_bench import OwnMeasurements
from kintune_lab.contest.stock_bench import Measurements, StockMeasurements
from kintune_lab.contest.stock_tools import STOCK_TOOLS, StockTools

__all__ = ["OurTuner"]


class OurTuner:
    """The session of `kintune tune` without its engine: a round is selected, built, run and learnt from."""

    def __init__(
        self, ground: ContestGround, ours: Ours, seed: int, directory: Path, tools: StockTools = STOCK_TOOLS
    ) -> None:
        """`directory` is for logs, `tools` are the stock builder and runner."""
        self.laps = Laps()
        self._ground = ground
        self._ours = ours
        self._seed = seed
        self._directory = directory
        self._tools = tools
        self._lesson = Teach()
        self._session: SearchSession | None = None
        self._rounds: Iterator[RoundDone] | None = None
        self._trivial: list[Candidate] = []
        self._incumbents: Incumbents[Candidate] = Incumbents()
        self._replayers: dict[str, Replayer] = {}
        self._sketches: dict[str, Sketch] = {}
        self._told: set[str] = set()
        self._peak = _peak(ground.threads) if ours.strategy.budget == "prospect" else None

    def teach(self, lesson: Teach) -> None:
        """Begin with what was learnt before."""
        self._lesson = lesson

    def turn(self) -> bool:
        """Do one round, its update included; True when no subgraph is expected to gain any more."""
        if self._rounds is None:
            session, self._trivial = self._begin()
            measures = self._measure  # what is measured is the search, not the gain: no untuned programs
            self._rounds = rounds(session, measures, with_untuned=False, stage=self.laps.stage)
        done = next(self._rounds, None)
        if done is None:
            return True
        for workload in dict.fromkeys(entry.workload for entry in done.plan.entries):
            state = self._opened.states[workload]
            if state.best is not None:
                self._incumbents.settle(workload, state.best, state.best_us)
        return False

    def _measure(self, picks: list[Candidate]) -> list[Timed]:
        """Build and time the candidates of a round, and with the first round the programs of trivial subgraphs."""
        session = self._opened
        trivial, self._trivial = self._trivial, []
        measured = [*picks, *trivial]
        best = {workload: state.best_us for workload, state in session.states.items()}
        again = [candidate for candidate in picks if session.knows(candidate)]
        outcomes = self._bench.measure(measured, self._program, best, again)
        for candidate, outcome in zip(measured, outcomes, strict=True):
            new = candidate not in again
            self._incumbents.observe(candidate.workload, candidate, outcome, trial=new and candidate.sketch != UNTUNED)
        return [
            Timed(c, outcome, self._bench.build_seconds(c))
            for c, outcome in zip(picks, outcomes[: len(picks)], strict=True)
        ]

    def tell(self) -> Turned:
        """What the last turn brought."""
        changed, measured, failures = self._incumbents.take()
        programs = tuple(
            ContestProgram(candidate, time_us, structure_of(self._program(candidate)))
            for candidate, time_us in changed.values()
        )
        wanted = {p.candidate.sketch for p in programs} - self._told - {UNTUNED}
        self._told |= wanted
        sketches = tuple(self._sketches[digest] for digest in sorted(wanted))
        return Turned(sum(measured.values()), failures, measured, self.laps.take(), programs, sketches)

    def close(self) -> None:
        """End what was started."""
        if self._session is not None:
            self._bench.close()

    def _begin(self) -> tuple[SearchSession, list[Candidate]]:
        """The search, and the programs of trivial subgraphs, which get no budget: the rule's best and the untuned."""
        ground, workloads = self._ground, self._ground.lowered.workloads
        with self.laps.stage("other"):
            sketches = [s for w in workloads for s in generate_sketches(w.digest, w.module, ground.target)]
            self._sketches = {sketch.digest: sketch for sketch in sketches}
            self._bench = self._make_bench()
            modules = {w.digest: w.module for w in workloads}
            caches = data_caches(inspect_machine())
            machine = Processor.of(instruction_set(ground.canonical), ground.threads, caches)
            space = TvmSpace(modules, sketches, ground.target, machine, ground.threads)
            tunable = is_tunable(workloads)
            subjects = [
                Subject(w.digest, w.occurrences, w.flops, w.operator, w.signature)
                for w in workloads
                if w.digest in tunable
            ]
            strategy = self._ours.strategy
            if self._ours.tools != "own":  # there, a known program would be built anew to be timed again
                strategy = msgspec.structs.replace(strategy, again=0)
            session = SearchSession(subjects, space, strategy, seed=self._seed, threads=ground.threads)
            session.teach(self._lesson.knowledge)
            if self._peak is not None:
                session.limit({w.digest: self._peak.least_us(w.flops, w.weight_bytes) for w in workloads})
            for suggestion in self._lesson.suggestions:
                session.suggest(suggestion)
        trivial: list[Candidate] = []
        with self.laps.stage("select"):
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

    def _make_bench(self) -> Measurements:
        if self._ours.tools == "own":
            return OwnMeasurements(self._ground, self._sketches, self._directory / "workers.log", self.laps)
        return StockMeasurements(self._ground, self._tools, self.laps)

    def _program(self, candidate: Candidate) -> tvm.IRModule:
        if candidate.workload not in self._replayers:
            workload = next(w for w in self._ground.lowered.workloads if w.digest == candidate.workload)
            self._replayers[candidate.workload] = Replayer(workload.module, self._ground.target)
        replayer = self._replayers[candidate.workload]
        if candidate.sketch == UNTUNED:
            return replayer.module
        return replayer(self._sketches[candidate.sketch], candidate).schedule.mod


def _peak(threads: int) -> Peak:
    """What this machine reaches at its best: tuning jobs find it in the records, so nobody is charged for it."""
    arguments = ("--target", NATIVE, "--threads", str(threads))
    with interview("kintune.workers.device_worker", arguments) as device:
        return msgspec.msgpack.decode(device.ask("peak"), type=Peak)
