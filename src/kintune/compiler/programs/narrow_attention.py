"""Attention in bf16: both products by tiles or by `vdpbf16ps`, the softmax between them in fp32."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from kintune.compiler.programs.attention_pattern import NAME, AttentionPattern, attention_of, require_attention
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.narrow_attention_kernel import UNIT, Inner, bytes_of_a_task, write_narrow
from kintune.compiler.programs.panel_form import AMX, DOT
from kintune.compiler.programs.panel_sum import BF16, NEEDED
from kintune.compiler.programs.program import Program
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["NarrowAttention"]

_KINDS = (AMX, DOT)  # of vectors of 16 lanes
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
_MOST_BYTES = 3 << 20  # of what a task keeps
_LEAST_COLUMNS = 16
_LEAST_DEPTH = 8
_PACKED = 0.15  # the time to pack one unit of keys and values, as a share of that of a unit of queries


class NarrowAttention(Program):
    """Attention in bf16; a variant is a kind of inner kernels, the decision is the blocks of queries of a head."""

    name = "narrow_attention"
    version = 3
    patterns = (NAME,)
    precision = BF16

    def instructions(self, variant: str) -> tuple[str, ...]:
        """The extensions that kernels of a variant need, beyond those which any kernel may use."""
        return NEEDED.get(variant, ())

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The best kind for the target; none where rows are few, or where operands do not lie along their last axis."""
        can = capabilities(target)
        kind = next((kind for kind in _KINDS if can.has(NEEDED[kind])), None)
        pattern = attention_of(module["main"])
        return () if kind is None or pattern is None or not _suits(pattern) else (kind,)

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """The choice of blocks."""
        return _choices(require_attention(module)).axes()

    def written(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: frozenset[int]
    ) -> tvm.IRModule:
        """The kernel."""
        pattern = require_attention(module)
        if variant not in _KINDS or not _suits(pattern):
            raise BuildError(f"{self.name} has no variant {variant} of the workload")
        (blocks,) = _choices(pattern).picked(decisions)
        return write_narrow(module["main"], pattern, Inner(variant), blocks, kept)

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

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """All blocks, those of the least estimated time first."""
        pattern = require_attention(module)
        return _choices(pattern).cheapest(len(_BLOCKS), lambda blocks: _time(pattern, blocks, machine))


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


def _choices(pattern: AttentionPattern) -> ChoiceLists:
    """The numbers of blocks that a head may be cut into."""
    units = -(-pattern.rows // UNIT)
    return ChoiceLists(NarrowAttention.name, {"blocks": tuple(number for number in _BLOCKS if number <= units)})


def _time(pattern: AttentionPattern, blocks: int, machine: Processor) -> float:
    """The estimated time of the core that has most tasks; 1 is that of one unit of queries with all keys."""
    units = -(-pattern.rows // UNIT)
    each = -(-units // blocks) + _PACKED * -(-pattern.columns // UNIT)
    return -(-pattern.heads * blocks // machine.threads) * each
