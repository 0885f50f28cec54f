"""Attention in bf16: both products by tiles or vectors of 16 lanes, the softmax between them in fp32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tvm

from kintune.compiler.kernels.cost import cycles_of_tasks
from kintune.compiler.kernels.instructions import PAIRS, Instruction, is_available
from kintune.compiler.programs.attention_pattern import NAME, AttentionPattern, attention_of, require_attention
from kintune.compiler.programs.narrow_attention_kernel import LANES, UNIT, bytes_of_a_task, tasks_of, write_narrow
from kintune.compiler.programs.panel_sum import BF16
from kintune.compiler.programs.tiling_program import TilingProgram
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["NarrowAttention"]

_KINDS = {each.variant: each for each in PAIRS if each.lanes == LANES}
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
_MOST_BYTES = 3 << 20  # of what a task keeps
_LEAST_COLUMNS = 16
_LEAST_DEPTH = 8


class _Case(NamedTuple):
    """Attention, and the instruction that multiplies."""

    pattern: AttentionPattern
    instruction: Instruction


class _Tiling(NamedTuple):
    """A head is cut into `blocks` of queries."""

    blocks: int


class NarrowAttention(TilingProgram[_Case, _Tiling]):
    """Attention in bf16; a variant is a kind of inner kernels, the decision is the blocks of queries of a head."""

    name = "narrow_attention"
    version = 3
    patterns = (NAME,)
    precision = BF16
    tiling = _Tiling

    def instructions(self, variant: str) -> tuple[str, ...]:
        """The extensions that kernels of a variant need, beyond those which any kernel may use."""
        return _KINDS[variant].extensions if variant in _KINDS else ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The best kind for the target; none where rows are few, or where operands do not lie along their last axis."""
        kind = next((kind for kind, each in _KINDS.items() if is_available(each, target)), None)
        pattern = attention_of(module["main"])
        return () if kind is None or pattern is None or not _suits(pattern) else (kind,)

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The workload, and how a variant computes it."""
        pattern = require_attention(module)
        if variant not in _KINDS or not _suits(pattern):
            raise BuildError(f"{self.name} has no variant {variant} of the workload")
        return _Case(pattern, _KINDS[variant])

    def lists(self, case: _Case) -> Mapping[str, Sequence[int]]:
        """The numbers of blocks that a head may be cut into."""
        units = -(-case.pattern.rows // UNIT)
        return {"blocks": tuple(number for number in _BLOCKS if number <= units)}

    def cost(self, case: _Case, tiling: _Tiling, machine: Processor) -> float:
        """The estimated cycles of the core that has most tasks."""
        return cycles_of_tasks(tasks_of(case.pattern, case.instruction, tiling.blocks), machine)

    def module(self, module: tvm.IRModule, case: _Case, tiling: _Tiling, kept: frozenset[int]) -> tvm.IRModule:
        """The kernel."""
        return write_narrow(module["main"], case.pattern, case.instruction, tiling.blocks, kept)

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """The positions of query, key and value, which are rounded in any case, and of the result.

        Raises:
            BuildError: the workload is no attention.
        """
        pattern = require_attention(module)
        found = {pattern.query.parameter, pattern.key.parameter, pattern.value.parameter}
        if not rounded and pattern.result.is_contiguous(pattern.row + 3):
            found.add(pattern.result.parameter)
        others = {step.access.parameter for step in pattern.steps if step.access is not None}
        if pattern.blank is not None:
            others.add(pattern.blank.parameter)
        return frozenset(found - others)


def _suits(pattern: AttentionPattern) -> bool:
    row = pattern.row
    along = (
        pattern.query.is_contiguous(row + 2)
        and pattern.key.is_contiguous(row + 2)
        and pattern.value.is_contiguous(row + 3)
    )
    fits = bytes_of_a_task(pattern) <= _MOST_BYTES
    return (
        along
        and fits
        and pattern.rows >= UNIT
        and pattern.columns >= _LEAST_COLUMNS
        and (pattern.depth >= _LEAST_DEPTH)
    )
