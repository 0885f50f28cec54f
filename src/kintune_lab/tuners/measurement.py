"""Builds and times the candidates of a round: through the stock builder and runner, or through Kintune's workers.

Through the stock ones, only the search differs from the stock tuner.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import tvm
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.graph.own_rules import own_rules
from kintune.compiler.space.replay import save_workload
from kintune.core.candidate import Candidate, Sketch
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import BuildContext, Built, ProfileContext
from kintune.search.build_costs import patience_s
from kintune.tuning.job.finalists import FINALISTS
from kintune.tuning.job.stage_factory import BUILD_S, PROFILE_S, REFERENCE_S, SLOW
from kintune_lab.tuners.setup import SharedSetup
from kintune_lab.tuners.turns import StageTimer
from kintune_lab.tuners.worker_processes import BuildWorkers, DeviceWorker

__all__ = [
    "STOCK_TOOLS",
    "OwnMeasurements",
    "RoundMeasurements",
    "StockMeasurements",
    "StockTools",
    "build_failure",
    "run_outcome",
]


class StockTools(NamedTuple):
    """Functions that make a builder for a number of processes, and a runner."""

    builder: Callable[[int], Any]
    runner: Callable[[], Any]


def _prepare_builder() -> None:
    """Let a process of the stock builder lower functions for a CPU as Kintune does."""
    own_rules(tvm.target.Target("llvm")).__enter__()  # for as long as the process lives


STOCK_TOOLS = StockTools(
    lambda threads: ms.Builder.create("local", max_workers=threads, initializer=_prepare_builder),
    lambda: ms.Runner.create("local"),
)
"""The stock builder and runner with their defaults.

The builder also has Kintune's elementary functions, and its tests of whole vectors for NaN.
"""


_TIMEOUT = "Timeout, killed"


def build_failure(error: str) -> Outcome:
    """The outcome of a candidate that the stock builder failed to build."""
    status = Status.BUILD_TIMED_OUT if _TIMEOUT in error else Status.BUILD_FAILED
    return Outcome(status, cause=_line(error))


def run_outcome(result: Any) -> Outcome:
    """The outcome of a stock `RunnerResult`: times in microseconds, or the cause of failure."""
    if result.error_msg is not None:
        error = str(result.error_msg)
        status = Status.RUN_TIMED_OUT if _TIMEOUT in error else Status.RUN_FAILED
        return Outcome(status, cause=_line(error))
    times = tuple(float(getattr(second, "value", second)) * 1e6 for second in result.run_secs or ())
    return Outcome(Status.OK, times) if times else Outcome(Status.RUN_FAILED, cause="no time")


def _line(error: str) -> str:
    """The last line, which names the exception."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


class RoundMeasurements(Protocol):
    """Builds and times the candidates of a round."""

    def measure(
        self,
        candidates: Sequence[Candidate],
        program: Callable[[Candidate], tvm.IRModule],
        best_us: Mapping[str, float],
        again: Sequence[Candidate] = (),
    ) -> list[Outcome]:
        """An outcome for each, in order.

        `program` makes a candidate's scheduled program, `best_us` has the best time of each workload so far; those of
        `again` were measured before.
        """
        ...

    def build_seconds(self, candidate: Candidate) -> float:
        """Seconds that building a candidate of the last round took; 0 where unknown."""
        ...

    def close(self) -> None:
        """End all processes."""
        ...


class StockMeasurements:
    """Builds all by one call of the stock builder, as stock builds a round, then runs them one by one."""

    def __init__(self, setup: SharedSetup, tools: StockTools, timer: StageTimer) -> None:
        self._target = setup.target
        self._timer = timer
        self._builder = tools.builder(setup.threads)
        self._runner = tools.runner()

    def measure(
        self,
        candidates: Sequence[Candidate],
        program: Callable[[Candidate], tvm.IRModule],
        best_us: Mapping[str, float],
        again: Sequence[Candidate] = (),
    ) -> list[Outcome]:
        """See `RoundMeasurements`; the stock runner takes as long for all candidates."""
        del best_us, again
        with self._timer.stage("select"):
            modules = [program(candidate) for candidate in candidates]
        with self._timer.stage("build"):
            built = self._builder.build([ms.builder.BuilderInput(module, self._target) for module in modules])
        failures: list[Outcome | None] = [
            build_failure(str(result.error_msg)) if result.error_msg is not None else None for result in built
        ]
        with self._timer.stage("profile"):
            inputs = [
                ms.runner.RunnerInput(result.artifact_path, "cpu", ms.arg_info.ArgInfo.from_entry_func(module))
                for result, module, failure in zip(built, modules, failures, strict=True)
                if failure is None
            ]
            ran = iter(self._runner.run(inputs))
            outcomes = [run_outcome(next(ran).result()) if failure is None else failure for failure in failures]
        with self._timer.stage("other"):
            for result in built:
                if result.artifact_path is not None:
                    shutil.rmtree(Path(str(result.artifact_path)).parent, ignore_errors=True)
        return outcomes

    def build_seconds(self, candidate: Candidate) -> float:
        """0: the stock builder does not time single candidates."""
        del candidate
        return 0.0

    def close(self) -> None:
        """Do nothing: the stock builder and runner start processes for each call."""


class OwnMeasurements:
    """As many build workers as threads, and one device worker; they live as long as this process.

    A worker that dies or takes too long is replaced, and its candidate fails, as in a tuning job.
    """

    def __init__(self, setup: SharedSetup, sketches: Mapping[str, Sketch], log: Path, timer: StageTimer) -> None:
        self._setup = setup
        self._timer = timer
        self._references: dict[str, Built] = {}
        self._kept: dict[Candidate, Built] = {}
        self._times_us: dict[Candidate, float] = {}
        self._taken: list[float] = []  # seconds of all builds so far
        modules = {w.digest: save_workload(w.module) for w in setup.lowered.workloads}
        context = BuildContext(setup.canonical, modules, dict(sketches))
        self._builders = BuildWorkers("our", setup.threads, context, log)
        self._device = DeviceWorker("our", setup.canonical, setup.threads, log)  # all start at the same time
        self._builders.wait_ready()
        self._about = self._device.wait_ready()

    def measure(
        self,
        candidates: Sequence[Candidate],
        program: Callable[[Candidate], tvm.IRModule],
        best_us: Mapping[str, float],
        again: Sequence[Candidate] = (),
    ) -> list[Outcome]:
        """See `kintune_lab.tuners.measurement.RoundMeasurements`; workers make programs themselves."""
        del program
        with self._timer.stage("build"):
            workloads = dict.fromkeys(c.workload for c in candidates)
            untuned = [Candidate.untuned(workload) for workload in workloads if workload not in self._references]
            limit_s = BUILD_S if untuned else patience_s(self._taken, BUILD_S)
            kept = {c: self._kept[c] for c in again if c in self._kept}
            made = self._builders.build([*untuned, *(c for c in candidates if c not in kept)], limit_s)
            self._taken += self._builders.seconds.values()
            self._references.update((c.workload, made[c]) for c in untuned)
            built = {c: kept[c] if c in kept else made[c] for c in candidates}
        with self._timer.stage("profile"):
            best = {w: best_us[w] for w in workloads if math.isfinite(best_us.get(w, math.inf))}
            references = {workload: self._references[workload] for workload in workloads}
            protocol = self._about.protocol_for([w.subgraph(tunable=True) for w in self._setup.lowered.workloads])
            digests = tuple(candidate.digest for candidate in again)
            self._device.begin(ProfileContext(protocol, references, best_us=best, slow=SLOW, again=digests))
            outcomes = [self._device.run(c.workload, built[c], PROFILE_S + REFERENCE_S) for c in candidates]
        self._keep(built, outcomes)
        return outcomes

    def build_seconds(self, candidate: Candidate) -> float:
        """Seconds of the build; 0 for a candidate that was refused, the time limit for one that timed out."""
        return self._builders.seconds.get(candidate, 0.0)

    def close(self) -> None:
        """End the workers."""
        self._builders.close()
        self._device.close()

    def _keep(self, built: Mapping[Candidate, Built], outcomes: Sequence[Outcome]) -> None:
        """Keep the fastest programs of each workload, which will be timed again, as a tuning job does."""
        for candidate, outcome in zip(built, outcomes, strict=True):
            if outcome.ok:
                self._kept[candidate], self._times_us[candidate] = built[candidate], outcome.median_us
        for workload in dict.fromkeys(candidate.workload for candidate in built):
            ranked = sorted((c for c in self._kept if c.workload == workload), key=self._times_us.__getitem__)
            for candidate in ranked[FINALISTS:]:
                del self._kept[candidate], self._times_us[candidate]
