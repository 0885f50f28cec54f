"""How much arithmetic the programs of a workload do."""

from __future__ import annotations

from collections.abc import Iterable

import tvm

from kintune.compiler.programs.registry import program_named
from kintune.compiler.space.packing import without_packing

__all__ = ["flops_of", "least_flops"]


def flops_of(module: tvm.IRModule, flops: float, program: str) -> float:
    """What one run of a workload computes by the program of that name, in FLOPs.

    That is `flops`, those of the workload itself, for a program that does the same arithmetic: without a name, or
    written as a whole.  What is computed when the network is built does not count.

    Raises:
        BuildError: there is no such program.
    """
    if not program:
        return flops
    written, variant = program_named(program)
    if written.axes(module, variant) is not None:
        return flops
    return float(tvm.s_tir.analysis.estimate_tir_flops(without_packing(written.write(module, variant, ()))))


def least_flops(module: tvm.IRModule, flops: float, programs: Iterable[str]) -> float:
    """What one run computes by the program with the least arithmetic, in FLOPs, as `flops_of` counts them.

    Raises:
        BuildError: there is no such program.
    """
    return min([flops, *(flops_of(module, flops, program) for program in programs)])
