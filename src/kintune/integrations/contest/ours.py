"""Our search, one round at a time, through the stock builder and runner.

Only the search differs from stock: what a candidate becomes, how it is built, run and judged fast is the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import tvm
from tvm.s_tir import meta_schedule as ms

from kintune.graph.worth import is_tunable
from kintune.integrations.contest.ground import Ground, structure_of
from kintune.integrations.contest.incumbents import Incumbents
from kintune.integrations.contest.laps import Laps
from kintune.integrations.contest.orders import Ours, Program, Teach, Turned
from kintune.integrations.contest.results import build_failure, run_outcome
from kintune.integrations.contest.stock_tools import STOCK_TOOLS, StockTools
from kintune.measure.outcome import Outcome
from kintune.measure.target import instruction_set
from kintune.search.family import Subject
from kintune.search.session import Session
from kintune.space.candidate import UNTUNED, Candidate, Sketch
from kintune.space.lower import Replayer
from kintune.space.rules import Machine
from kintune.space.sketches import generate_sketches
from kintune.space.tvm_space import TvmSpace

__all__ = ["OurTuner"]


class OurTuner:
    """The session of `kintune tune` without its engine: a round is selected, built, run and learnt from."""

    def __init__(self, ground: Ground, ours: Ours, seed: int, tools: StockTools = STOCK_TOOLS) -> None:
        self.laps = Laps()
        self._ground = ground
        self._ours = ours
        self._seed = seed
        self._tools = tools
        self._lesson = Teach()
        self._session: Session | None = None
        self._incumbents: Incumbents[Candidate] = Incumbents()
        self._programs: dict[Candidate, tvm.IRModule] = {}
        self._replayers: dict[str, Replayer] = {}
        self._sketches: dict[str, Sketch] = {}
        self._told: set[str] = set()

    def teach(self, lesson: Teach) -> None:
        """Begin with what was learnt before."""
        self._lesson = lesson

    def turn(self) -> bool:
        """Do one round, its update included; True when no subgraph is expected to gain any more."""
        session = self._session
        trivial: list[Candidate] = []
        if session is None:
            session, trivial = self._begin()
        with self.laps.stage("select"):
            plan = session.plan(None)
            if plan is None:
                return True
            proposals, _ = session.select(plan)
            chosen = [p for p in proposals if p.origin != "untuned"]  # what is measured is the search, not the gain
            picks = {p.draft.candidate: p.draft.features for p in chosen}
            session.begin(plan, picks, {p.draft.candidate: p.predicted for p in chosen})
        for candidate, outcome in self._measure([*picks, *trivial]):
            self._incumbents.observe(candidate.workload, candidate, outcome, trial=candidate.sketch != UNTUNED)
            if candidate in picks:
                session.observe(candidate, outcome)
        with self.laps.stage("update"):
            learnt = session.learn()
            session.adopt(learnt.models, learnt.families)
        return False

    def tell(self) -> Turned:
        """What the last turn brought."""
        changed, measured, failures = self._incumbents.take()
        programs = tuple(
            Program(candidate, time_us, structure_of(self._programs[candidate]))
            for candidate, time_us in changed.values()
        )
        wanted = {p.candidate.sketch for p in programs} - self._told - {UNTUNED}
        self._told |= wanted
        sketches = tuple(self._sketches[digest] for digest in sorted(wanted))
        return Turned(sum(measured.values()), failures, measured, self.laps.take(), programs, sketches)

    def _begin(self) -> tuple[Session, list[Candidate]]:
        """The search, and the programs of trivial subgraphs, which get no budget: the rule's best and the untuned."""
        ground, workloads = self._ground, self._ground.lowered.workloads
        with self.laps.stage("other"):
            self._builder = self._tools.builder(ground.threads)
            self._runner = self._tools.runner()
            sketches = [s for w in workloads for s in generate_sketches(w.digest, w.module, ground.target)]
            self._sketches = {sketch.digest: sketch for sketch in sketches}
            modules = {w.digest: w.module for w in workloads}
            machine = Machine.of(instruction_set(ground.canonical))
            space = TvmSpace(modules, sketches, ground.target, machine, ground.threads)
            tunable = is_tunable(workloads)
            subjects = [
                Subject(w.digest, w.weight, w.flops, w.operator, w.signature) for w in workloads if w.digest in tunable
            ]
            session = Session(subjects, space, self._ours.strategy, seed=self._seed, threads=ground.threads)
            session.teach(self._lesson.knowledge)
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

    def _measure(self, candidates: Sequence[Candidate]) -> list[tuple[Candidate, Outcome]]:
        """Build all by one call of the stock builder, as stock builds a round, then run them one by one."""
        if not candidates:
            return []
        with self.laps.stage("select"):
            modules = [self._program(candidate) for candidate in candidates]
        target = self._ground.target
        with self.laps.stage("build"):
            built = self._builder.build([ms.builder.BuilderInput(module, target) for module in modules])
        outcomes: list[Outcome | None] = [
            build_failure(str(result.error_msg)) if result.error_msg is not None else None for result in built
        ]
        with self.laps.stage("profile"):
            inputs = [
                ms.runner.RunnerInput(result.artifact_path, "cpu", ms.arg_info.ArgInfo.from_entry_func(module))
                for result, module, failure in zip(built, modules, outcomes, strict=True)
                if failure is None
            ]
            ran = iter(self._runner.run(inputs))
            results = [run_outcome(next(ran).result()) if failure is None else failure for failure in outcomes]
        with self.laps.stage("other"):
            self._programs = dict(zip(candidates, modules, strict=True))
            for result in built:
                if result.artifact_path is not None:
                    shutil.rmtree(Path(str(result.artifact_path)).parent, ignore_errors=True)
        return list(zip(candidates, results, strict=True))

    def _program(self, candidate: Candidate) -> tvm.IRModule:
        if candidate.workload not in self._replayers:
            workload = next(w for w in self._ground.lowered.workloads if w.digest == candidate.workload)
            self._replayers[candidate.workload] = Replayer(workload.module, self._ground.target)
        replayer = self._replayers[candidate.workload]
        if candidate.sketch == UNTUNED:
            return replayer.module
        return replayer(self._sketches[candidate.sketch], candidate).schedule.mod
