"""Runs the plan of an assembled network in Python: what the C runtime should do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kintune.compiler.graph.assemble import PlannedProgram
from kintune.runtime.guarded_run import PlanRun
from kintune.runtime.package import pack_weights
from kintune.runtime.tensors import block_of

__all__ = ["PlanInterpreter", "run_plan"]


def run_plan(program: PlannedProgram, *inputs: NDArray[Any]) -> list[NDArray[Any]]:
    """The outputs of one run, and then the indices of its checks."""
    return PlanInterpreter(program).run(*inputs)


class PlanInterpreter(PlanRun):
    """A program's plan with its kernels and weights."""

    def __init__(self, program: PlannedProgram) -> None:
        _, weights = pack_weights([block_of(weight) for weight in program.weights])
        super().__init__(program.plan, program.library, np.asarray(weights))

    def run(self, *inputs: NDArray[Any]) -> list[NDArray[Any]]:  # type: ignore[override]
        """Run once: one array for each input."""
        return super().run(inputs)
