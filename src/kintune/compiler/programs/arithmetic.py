"""How much arithmetic the programs of a workload do."""

from __future__ import annotations

from collections.abc import Iterable

import tvm

from kintune.compiler.programs.program import SavesArithmetic
from kintune.compiler.programs.registry import program_named

__all__ = ["flops_of", "least_flops"]


def flops_of(module: tvm.IRModule, flops: float, program: str) -> float:
    """What one run of a workload computes by the program of that name, in FLOPs; `flops` are those of the workload.

    A program without a name is one of MetaSchedule's, which never change the arithmetic.

    Raises:
        BuildError: there is no such program.
    """
    if not program:
        return flops
    written, variant = program_named(program)
    return flops - written.saved_flops(module, variant) if isinstance(written, SavesArithmetic) else flops


def least_flops(module: tvm.IRModule, flops: float, programs: Iterable[str]) -> float:
    """What one run computes by the program with the least arithmetic, in FLOPs, as `flops_of` counts them.

    Raises:
        BuildError: there is no such program.
    """
    return min([flops, *(flops_of(module, flops, program) for program in programs)])
