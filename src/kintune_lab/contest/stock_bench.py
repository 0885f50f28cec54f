"""Our candidates through the stock builder and runner, so that only the search differs from stock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import tvm
from tvm.s_tir import meta_schedule as ms

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome
from kintune_lab.contest.ground import ContestGround
from kintune_lab.contest.laps import Laps
from kintune_lab.contest.results import build_failure, run_outcome
from kintune_lab.contest.stock_tools import StockTools

__all__ = ["Measurements", "StockMeasurements"]


class Measurements(Protocol):
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
        """What building a candidate of the last round took; 0 where nobody knows."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class StockMeasurements:
    """Builds all by one call of the stock builder, as stock builds a round, then runs them one by one."""

    def __init__(self, ground: ContestGround, tools: StockTools, laps: Laps) -> None:
        self._target = ground.target
        self._laps = laps
        self._builder = tools.builder(ground.threads)
        self._runner = tools.runner()

    def measure(
        self,
        candidates: Sequence[Candidate],
        program: Callable[[Candidate], tvm.IRModule],
        best_us: Mapping[str, float],
        again: Sequence[Candidate] = (),
    ) -> list[Outcome]:
        """See `Measurements`; the stock runner takes as long for all candidates."""
        del best_us, again
        with self._laps.stage("select"):
            modules = [program(candidate) for candidate in candidates]
        with self._laps.stage("build"):
            built = self._builder.build([ms.builder.BuilderInput(module, self._target) for module in modules])
        failures: list[Outcome | None] = [
            build_failure(str(result.error_msg)) if result.error_msg is not None else None for result in built
        ]
        with self._laps.stage("profile"):
            inputs = [
                ms.runner.RunnerInput(result.artifact_path, "cpu", ms.arg_info.ArgInfo.from_entry_func(module))
                for result, module, failure in zip(built, modules, failures, strict=True)
                if failure is None
            ]
            ran = iter(self._runner.run(inputs))
            outcomes = [run_outcome(next(ran).result()) if failure is None else failure for failure in failures]
        with self._laps.stage("other"):
            for result in built:
                if result.artifact_path is not None:
                    shutil.rmtree(Path(str(result.artifact_path)).parent, ignore_errors=True)
        return outcomes

    def build_seconds(self, candidate: Candidate) -> float:
        """See `Measurements`; the stock builder says nothing of single candidates."""
        del candidate
        return 0.0

    def close(self) -> None:
        """Nothing: the stock builder and runner start their processes anew each time."""
