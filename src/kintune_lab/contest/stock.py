"""The stock tuner, as it comes, one round at a time.

`tune_relax` runs in a thread and halts when a round is complete: all its candidates are built and have run.  Nothing is
under way then, so that the process can be stopped without a time limit running out.  The builder and the runner are
the stock ones; around them is only what notes the time and halts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.graph.workload import StandaloneWorkload, describe, standalone
from kintune.compiler.space.sketches import parse_trace
from kintune.core.candidate import Candidate, Sketch
from kintune.core.outcome import Outcome
from kintune.errors import EngineError
from kintune_lab.contest.ground import ContestGround, structure_of
from kintune_lab.contest.incumbents import Incumbents
from kintune_lab.contest.laps import PAUSED, Laps
from kintune_lab.contest.orders import ContestProgram, Turned
from kintune_lab.contest.relay import Relay
from kintune_lab.contest.results import build_failure, run_outcome
from kintune_lab.contest.stock_tools import STOCK_TOOLS, StockTools

__all__ = ["StockTuner"]


class _Sent(NamedTuple):
    """A round on its way: the number of its task, its candidates, what the builder and the runner made of them."""

    task: int
    candidates: list[Any]
    built: list[Any]
    ran: Any = None


class StockTuner:
    """One call of `tune_relax` with `trials` trials in all; `arguments` are laid over its defaults."""

    def __init__(
        self,
        ground: ContestGround,
        directory: Path,
        trials: int,
        seed: int,
        arguments: Mapping[str, Any] | None = None,
        tools: StockTools = STOCK_TOOLS,
    ) -> None:
        self.laps = Laps()
        self._ground = ground
        self._directory = directory
        self._trials = trials
        self._seed = seed
        self._tools = tools
        self._arguments = dict(arguments or {})
        self._scheduler: Any = self._arguments.setdefault("task_scheduler", ms.TaskScheduler.create("gradient"))
        self._sent: _Sent | None = None
        self._incumbents: Incumbents[Any] = Incumbents()
        self._workloads: dict[int, StandaloneWorkload] = {}
        self._told: set[str] = set()
        self._relay = Relay(self._tune)

    def turn(self) -> bool:
        """Tune until a round is complete; True when there is no further one."""
        return self._relay.turn()

    def tell(self) -> Turned:
        """What the last turn brought."""
        if self._sent is not None:
            self._note(self._sent)
            self._sent = None
        changed, measured, failures = self._incumbents.take()
        programs: list[ContestProgram] = []
        sketches: list[Sketch] = []
        for digest, (candidate, time_us) in changed.items():
            workload = next(w for w in self._workloads.values() if w.digest == digest)
            sketch, decisions = parse_trace(digest, workload.module, candidate.sch.trace)
            programs.append(
                ContestProgram(Candidate(digest, sketch.digest, decisions), time_us, structure_of(candidate.sch.mod))
            )
            if sketch.digest not in self._told:
                self._told.add(sketch.digest)
                sketches.append(sketch)
        return Turned(sum(measured.values()), failures, measured, self.laps.take(), tuple(programs), tuple(sketches))

    def _note(self, sent: _Sent) -> None:
        digest = self._workload(sent.task).digest
        ran = iter(sent.ran)
        for candidate, built in zip(sent.candidates, sent.built, strict=True):
            outcome: Outcome
            if built.error_msg is not None:
                outcome = build_failure(str(built.error_msg))
            else:
                outcome = run_outcome(next(ran).result())
            self._incumbents.observe(digest, candidate, outcome)

    def _workload(self, task: int) -> StandaloneWorkload:
        if task not in self._workloads:
            context = self._scheduler.tasks_[task].ctx
            module = standalone(context.mod["main"])
            digest = describe(str(context.task_name), module, 1).digest
            known = next((w for w in self._ground.lowered.workloads if w.digest == digest), None)
            if known is None:
                raise EngineError(f"stock tunes {context.task_name}, which is no subgraph of the network")
            self._workloads[task] = known
        return self._workloads[task]

    # -- in the tuner's thread --------------------------------------------------------------------------------

    def _tune(self) -> None:
        ground = self._ground
        with self.laps.stage("other"):
            builder = _Builder(self._tools.builder(ground.threads), self)
            runner = _Runner(self._tools.runner(), self)
        with self.laps.stage("select"):
            ms.relax_integration.tune_relax(
                ground.lowered.module,
                {},
                ground.target,
                str(self._directory),
                self._trials,
                seed=self._seed,
                builder=builder,
                runner=runner,
                measure_callbacks=[
                    _Mark(self._update_begins),
                    *ms.MeasureCallback.create("default"),
                    _Mark(self._update_ends),
                ],
                **self._arguments,
            )

    def build(self, builder: Any, inputs: Any) -> Any:
        """Build a round's candidates by `builder`, and note whose they are."""
        with self.laps.stage("build"):
            built = builder.build(inputs)
        with self.laps.stage("other"):
            task = self._sending()
            candidates = list(self._scheduler.tasks_[task].measure_candidates)
            if len(candidates) != len(built):
                raise EngineError(f"stock sent {len(built)} candidates, its task {task} has {len(candidates)}")
            self._sent = _Sent(task, candidates, list(built))
        return built

    def run(self, runner: Any, inputs: Any) -> Any:
        """Run what was built by `runner`; the turn is over then."""
        with self.laps.stage("profile"):
            futures = runner.run(inputs)
        if self._sent is None:
            raise EngineError("stock ran what it did not build")
        self._sent = self._sent._replace(ran=futures)
        with self.laps.stage(PAUSED):
            self._relay.halt()
        return futures

    def _sending(self) -> int:
        """The task whose candidates are being built: those that were built before have builder results."""
        found = [
            number
            for number, task in enumerate(self._scheduler.tasks_)
            if task.measure_candidates is not None and task.builder_results is None
        ]
        if len(found) != 1:
            raise EngineError(f"stock builds for {len(found)} tasks at once, which this version does not understand")
        return found[0]

    def _update_begins(self) -> None:
        self._updating = self.laps.stage("update")
        self._updating.__enter__()

    def _update_ends(self) -> None:
        self._updating.__exit__(None, None, None)


@derived_object
class _Builder(ms.builder.PyBuilder):  # type: ignore[misc]
    """The stock builder, with somebody who takes notes."""

    def __init__(self, inner: Any, tuner: StockTuner) -> None:
        super().__init__()
        self._inner = inner
        self._tuner = tuner

    def build(self, build_inputs: Any) -> Any:
        return self._tuner.build(self._inner, build_inputs)


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]
    """The stock runner, after which the turn is over."""

    def __init__(self, inner: Any, tuner: StockTuner) -> None:
        super().__init__()
        self._inner = inner
        self._tuner = tuner

    def run(self, runner_inputs: Any) -> Any:
        return self._tuner.run(self._inner, runner_inputs)


@derived_object
class _Mark(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Calls somebody where it stands among the measure callbacks."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self._call = call

    def apply(self, *_arguments: Any) -> None:
        self._call()
