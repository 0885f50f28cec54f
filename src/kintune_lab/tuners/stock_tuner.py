"""The stock tuner with its defaults, one round at a time.

`tune_relax` runs in a thread and halts when all candidates of a round are built and have run.  Nothing is under way
then, so the process can be stopped without a time limit running out.  The builder and the runner are the stock ones,
wrapped by classes that account for the time and end the turn.
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
from kintune_lab.tuners.measurement import STOCK_TOOLS, StockTools, build_failure, run_outcome
from kintune_lab.tuners.messages import BestProgram, TurnReport
from kintune_lab.tuners.setup import SharedSetup, structural_hash
from kintune_lab.tuners.turns import PAUSED, BestPrograms, StageTimer, TurnThread

__all__ = ["StockTuner"]


class _Sent(NamedTuple):
    """A round: the number of its task, its candidates, and the results of builder and runner."""

    task: int
    candidates: list[Any]
    built: list[Any]
    ran: Any = None


class StockTuner:
    """One call of `tune_relax` with `trials` trials in all; `arguments` are laid over its defaults."""

    def __init__(
        self,
        setup: SharedSetup,
        directory: Path,
        trials: int,
        seed: int,
        arguments: Mapping[str, Any] | None = None,
        tools: StockTools = STOCK_TOOLS,
    ) -> None:
        self.timer = StageTimer()
        self._setup = setup
        self._directory = directory
        self._trials = trials
        self._seed = seed
        self._tools = tools
        self._arguments = dict(arguments or {})
        self._scheduler: Any = self._arguments.setdefault("task_scheduler", ms.TaskScheduler.create("gradient"))
        self._sent: _Sent | None = None
        self._best_programs: BestPrograms[Any] = BestPrograms()
        self._workloads: dict[int, StandaloneWorkload] = {}
        self._reported: set[str] = set()
        self._turn_thread = TurnThread(self._tune)

    def turn(self) -> bool:
        """Tune until a round is complete; True when there is no further one."""
        return self._turn_thread.turn()

    def report(self) -> TurnReport:
        """Report the last turn."""
        if self._sent is not None:
            self._note(self._sent)
            self._sent = None
        changed, measured, failures = self._best_programs.take()
        programs: list[BestProgram] = []
        sketches: list[Sketch] = []
        for digest, (candidate, time_us) in changed.items():
            workload = next(w for w in self._workloads.values() if w.digest == digest)
            sketch, decisions = parse_trace(digest, workload.module, candidate.sch.trace)
            programs.append(
                BestProgram(Candidate(digest, sketch.digest, decisions), time_us, structural_hash(candidate.sch.mod))
            )
            if sketch.digest not in self._reported:
                self._reported.add(sketch.digest)
                sketches.append(sketch)
        return TurnReport(
            sum(measured.values()), failures, measured, self.timer.take(), tuple(programs), tuple(sketches)
        )

    def _note(self, sent: _Sent) -> None:
        digest = self._workload(sent.task).digest
        ran = iter(sent.ran)
        for candidate, built in zip(sent.candidates, sent.built, strict=True):
            outcome: Outcome
            if built.error_msg is not None:
                outcome = build_failure(str(built.error_msg))
            else:
                outcome = run_outcome(next(ran).result())
            self._best_programs.observe(digest, candidate, outcome)

    def _workload(self, task: int) -> StandaloneWorkload:
        if task not in self._workloads:
            context = self._scheduler.tasks_[task].ctx
            module = standalone(context.mod["main"])
            digest = describe(str(context.task_name), module, 1).digest
            known = next((w for w in self._setup.lowered.workloads if w.digest == digest), None)
            if known is None:
                raise EngineError(f"stock tunes {context.task_name}, which is no subgraph of the network")
            self._workloads[task] = known
        return self._workloads[task]

    # -- in the tuner's thread --------------------------------------------------------------------------------

    def _tune(self) -> None:
        setup = self._setup
        with self.timer.stage("other"):
            builder = _Builder(self._tools.builder(setup.threads), self)
            runner = _Runner(self._tools.runner(), self)
        with self.timer.stage("select"):
            ms.relax_integration.tune_relax(
                setup.lowered.module,
                {},
                setup.target,
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
        """Build a round's candidates by `builder`, and keep them with their task."""
        with self.timer.stage("build"):
            built = builder.build(inputs)
        with self.timer.stage("other"):
            task = self._sending()
            candidates = list(self._scheduler.tasks_[task].measure_candidates)
            if len(candidates) != len(built):
                raise EngineError(f"stock sent {len(built)} candidates, its task {task} has {len(candidates)}")
            self._sent = _Sent(task, candidates, list(built))
        return built

    def run(self, runner: Any, inputs: Any) -> Any:
        """Run the built candidates by `runner`, and end the turn."""
        with self.timer.stage("profile"):
            futures = runner.run(inputs)
        if self._sent is None:
            raise EngineError("stock ran what it did not build")
        self._sent = self._sent._replace(ran=futures)
        with self.timer.stage(PAUSED):
            self._turn_thread.end_turn()
        return futures

    def _sending(self) -> int:
        """The number of the task being built: it has candidates, but no builder results yet."""
        found = [
            number
            for number, task in enumerate(self._scheduler.tasks_)
            if task.measure_candidates is not None and task.builder_results is None
        ]
        if len(found) != 1:
            raise EngineError(f"stock builds for {len(found)} tasks at once, which this version does not understand")
        return found[0]

    def _update_begins(self) -> None:
        self._updating = self.timer.stage("update")
        self._updating.__enter__()

    def _update_ends(self) -> None:
        self._updating.__exit__(None, None, None)


@derived_object
class _Builder(ms.builder.PyBuilder):  # type: ignore[misc]
    """The stock builder, called through `StockTuner.build`."""

    def __init__(self, inner: Any, tuner: StockTuner) -> None:
        super().__init__()
        self._inner = inner
        self._tuner = tuner

    def build(self, build_inputs: Any) -> Any:
        return self._tuner.build(self._inner, build_inputs)


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]
    """The stock runner, called through `StockTuner.run`."""

    def __init__(self, inner: Any, tuner: StockTuner) -> None:
        super().__init__()
        self._inner = inner
        self._tuner = tuner

    def run(self, runner_inputs: Any) -> Any:
        return self._tuner.run(self._inner, runner_inputs)


@derived_object
class _Mark(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """A measure callback that calls a function."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self._call = call

    def apply(self, *_arguments: Any) -> None:
        self._call()
