"""All programs of our own, and how a sketch names one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import tvm

from kintune.compiler.faults import as_build_error, left_out
from kintune.compiler.programs.attention import AttentionProgram
from kintune.compiler.programs.blockwise_product import BlockwiseProduct
from kintune.compiler.programs.byte_products import ByteProducts, ByteTiles
from kintune.compiler.programs.depthwise import DepthwiseConvolution
from kintune.compiler.programs.narrow_attention import NarrowAttention
from kintune.compiler.programs.panel_sum import NarrowPanels
from kintune.compiler.programs.program import Program, pattern_of
from kintune.compiler.programs.recurrent import RecurrentProgram
from kintune.compiler.programs.row_program import RowProgram
from kintune.compiler.programs.vector_program import VectorSum
from kintune.compiler.programs.winograd import BlockedWinograd, NarrowWinograd
from kintune.core.candidate import FULL_PRECISION, Decision
from kintune.errors import BuildError
from kintune.runtime.target import capabilities

__all__ = [
    "PROGRAMS", "applicable", "flops_of", "instructions_of", "keepable", "least_flops", "name_of", "program_named",
    "write",
]  # fmt: skip

PROGRAMS: tuple[Program, ...] = (
    AttentionProgram(),
    NarrowAttention(),
    RecurrentProgram(),
    BlockedWinograd(),
    VectorSum(),
    DepthwiseConvolution(),
    RowProgram(),
    NarrowWinograd(),
    NarrowPanels(),
    BlockwiseProduct(),
    ByteTiles(),
    ByteProducts(),
)
"""The programs, the most promising first where several compute a workload."""


def applicable(
    module: tvm.IRModule, target: tvm.target.Target, precisions: frozenset[str] = frozenset()
) -> Iterator[tuple[Program, str, str]]:
    """Yield each program and variant that computes the workload, and the name by which sketches call it.

    Programs that compute with shorter numbers are among them only where their precision is one of `precisions`.  A
    function that a pass made for a pattern is left to the programs of that pattern.  A program that fails is logged and
    left out, since others compute the workload.  All are written for vectors, and for targets of LLVM alone.
    """
    if not capabilities(target).llvm_kernels:
        return
    pattern = pattern_of(module["main"]).partition(" ")[0]
    for program in PROGRAMS:
        if pattern not in (program.patterns or ("",)):
            continue
        if program.precision not in (FULL_PRECISION, *precisions):
            continue
        variants: tuple[str, ...] = ()
        with left_out(f"program {program.name} fails"):
            variants = tuple(program.variants(module, target))
        for variant in variants:
            yield program, variant, name_of(program, variant)


def name_of(program: Program, variant: str) -> str:
    """The name by which sketches call a variant of a program."""
    return f"{program.name}.{program.version}:{variant}"


def program_named(name: str) -> tuple[Program, str]:
    """The program and the variant of the name that a sketch gives.

    Raises:
        BuildError: this version of Kintune has no such program.
    """
    known, _, variant = name.partition(":")
    for program in PROGRAMS:
        if known == f"{program.name}.{program.version}":
            return program, variant
    raise BuildError(f"no program {known} in this version of Kintune: 'kintune records upgrade' converts its records")


def instructions_of(name: str) -> tuple[str, ...]:
    """The extensions of a CPU that a sketch of the program of that name needs, beyond those which any kernel may use.

    Raises:
        BuildError: there is no such program.
    """
    if not name:
        return ()
    program, variant = program_named(name)
    return program.instructions(variant)


def keepable(name: str, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
    """The positions of the parameters that the program of that name can take in bf16; none for most programs.

    With `rounded`, only those that it rounds in any case.

    Raises:
        BuildError: there is no such program, or it does not compute the workload.
    """
    program, _ = program_named(name)
    return program.keepable(module, rounded=rounded)


def write(
    name: str, module: tvm.IRModule, decisions: tuple[Decision, ...], kept: Collection[int] = frozenset()
) -> tvm.IRModule:
    """The workload `module` as the program of that name writes it, with the parameters at positions `kept` in bf16.

    Raises:
        BuildError: there is no such program, it cannot have these parameters in bf16, or the decisions make none.
    """
    program, variant = program_named(name)
    with as_build_error(f"program {program.name} fails"):
        if kept and not program.keepable(module).issuperset(kept):
            raise BuildError(f"program {program.name} keeps none of the parameters {sorted(kept)} in bf16")
        return program.write(module, variant, decisions, kept)


def flops_of(module: tvm.IRModule, flops: float, program: str) -> float:
    """What one run of a workload computes by the program of that name, in FLOPs; `flops` are those of the workload.

    A program without a name is one of MetaSchedule's, which never change the arithmetic.

    Raises:
        BuildError: there is no such program.
    """
    if not program:
        return flops
    written, variant = program_named(program)
    return flops - written.saved_flops(module, variant)


def least_flops(module: tvm.IRModule, flops: float, programs: Iterable[str]) -> float:
    """What one run computes by the program with the least arithmetic, in FLOPs, as `flops_of` counts them.

    Raises:
        BuildError: there is no such program.
    """
    return min([flops, *(flops_of(module, flops, program) for program in programs)])
