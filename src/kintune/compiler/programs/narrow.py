"""Products of matrices and convolutions in bf16: weights are rounded when the network is built, data when it runs.

Sums are of fp32, and so is what follows them.  Two kinds of instructions are known: AMX multiplies tiles of 16 rows by
16 columns, `vdpbf16ps` (avx512_bf16) pairs of values in vectors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import tvm

from kintune.compiler.programs.epilogue import Epilogue, joined
from kintune.compiler.programs.narrow_costs import promising
from kintune.compiler.programs.narrow_kernel import AMX, DOT, Form, Inner, Tiling, form_of, write_sum
from kintune.compiler.programs.narrow_text import TILE_ROWS, amx_text, rounding_text, vector_text
from kintune.compiler.programs.stages import Stages, with_stages
from kintune.compiler.programs.weighted_sum import WeightedSum, find_weighted_sum
from kintune.core.candidate import Axis, Choice, Decision
from kintune.errors import BuildError
from kintune.runtime.target import extensions_of
from kintune.search.processor import Processor

__all__ = ["BF16", "NarrowSum"]

BF16 = "bf16"

_NEEDED = {AMX: ("amxbf16", "amxtile", "avx512bf16", "avx512f"), DOT: ("avx512bf16", "avx512f")}
_TILE_COLUMNS, _VECTORS = 32, 4
_HEIGHTS = (6, 5, 4)
_UNITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_DEPTHS = (1, 2, 3, 4, 6, 8)
_MOST_BYTES = 3 << 20  # of the rows of a task
_MOST_WASTE = 0.2  # of the rows or panels, computed for nothing
_LEAST_USE = 0.25  # of what the inner kernel multiplies, that is no zero put there
_LEAST_FLOPS = 100_000.0  # of a sum that is worth a conversion
_FIRST = 32  # candidates of the rule


class _Matched(NamedTuple):
    module: tvm.IRModule
    found: WeightedSum
    epilogue: Epilogue | None


class NarrowSum:
    """Writes sums of products with constant weights in bf16; its variants are kinds of instructions.

    The decisions are units of rows of a task, parts of the columns, and parts of the sum (`narrow_kernel.Tiling`).
    """

    name = "narrow"
    version = 1
    patterns: tuple[str, ...] = ()
    precision = BF16

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The best kind of instructions that the target has; none where something is left beside the sum."""
        if target.kind.name != "llvm":
            return ()
        has = set(extensions_of(target))
        kind = next((kind for kind, needed in _NEEDED.items() if has.issuperset(needed)), None)
        if kind is None:
            return ()
        matched = _matched(module)
        if matched is None or matched.found.flops < _LEAST_FLOPS:
            return ()
        return (kind,) if _use(matched.found, _inner(matched.found, kind)) >= _LEAST_USE else ()

    def instructions(self, variant: str) -> tuple[str, ...]:
        """The extensions that the kernels of a variant need, beyond those that any kernel may use."""
        return tuple(name for name in _NEEDED.get(variant, ()) if name != "avx512f")

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...] | None:
        """The choices of units, parts and depth.

        Raises:
            BuildError: the workload has no such sum, or there is no such variant of it.
        """
        form, inner = _form(module, variant)
        return tuple(Choice(values, (1.0 / len(values),) * len(values)) for values in _choices(form, inner))

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """The workload with the program in the place of its sum.

        Raises:
            BuildError: the workload has no such sum, there is no such variant of it, or the decisions are not its own.
        """
        matched = _matched(module)
        form, inner = _form(module, variant)
        choices = _choices(form, inner)
        if matched is None or len(decisions) != len(choices):
            raise BuildError(f"{self.name} has {len(choices)} decisions, not {len(decisions)}")
        tiling = Tiling(*(values[index] for values, (index,) in zip(choices, decisions, strict=True)))
        statements, weights = write_sum(matched.found, inner, tiling, matched.epilogue)
        return with_stages(matched.module, matched.found, Stages(statements, [weights]), matched.epilogue)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """The decisions of the least estimated times."""
        form, inner = _form(module, variant)
        choices = _choices(form, inner)
        return [
            tuple((values.index(value),) for values, value in zip(choices, tiling, strict=True))
            for tiling in promising(form, inner, machine, choices)[:_FIRST]
        ]


def _matched(module: tvm.IRModule) -> _Matched | None:
    """The workload with what follows in one block, its sum, and that block; None where more is left."""
    found = find_weighted_sum(module)
    if found is None:
        return None
    if len(found.nests) == len(found.replaced):
        return _Matched(module, found, None)
    follows = joined(module, found.name)
    if follows is None:
        return None
    found = find_weighted_sum(follows[0])
    if found is None or len(found.nests) != len(found.replaced) + 1:
        return None
    return _Matched(follows[0], found, follows[1])


def _form(module: tvm.IRModule, variant: str) -> tuple[Form, Inner]:
    matched = _matched(module)
    if matched is None:
        raise BuildError("no sum of products with constant weights")
    if variant not in _NEEDED:
        raise BuildError(f"there is no variant {variant} of sums in bf16")
    inner = _inner(matched.found, variant)
    return form_of(matched.found, inner), inner


def _inner(found: WeightedSum, kind: str) -> Inner:
    """The inner kernel for a sum."""
    if kind == AMX:
        return Inner(AMX, TILE_ROWS, _TILE_COLUMNS, rounding_text(converts=True) + amx_text())
    rows = form_of(found, Inner(DOT, 1, 1, "")).rows
    most = max(_HEIGHTS)
    height = rows if rows < most else min(_HEIGHTS, key=lambda each: (-(-rows // each) * each * (1 + 1 / each), -each))
    return Inner(DOT, height, 16 * _VECTORS, rounding_text(converts=True) + vector_text(DOT, height, _VECTORS))


def _use(found: WeightedSum, inner: Inner) -> float:
    """The share of what the inner kernel multiplies that belongs to the sum, with all rows."""
    form = form_of(found, inner)
    return form.values / (form.chunks * 32) * found.filters / (form.panels * inner.columns)


def _choices(form: Form, inner: Inner) -> tuple[tuple[int, ...], ...]:
    """The values of units, parts and depth."""
    units = -(-form.rows // inner.rows)
    most = max(1, _MOST_BYTES // (2 * inner.rows * form.steps * 32))
    heights = [each for each in _UNITS if each <= min(units, most) and _waste(units, each) <= _MOST_WASTE] or [1]
    parts = [each for each in _PARTS if each <= form.panels and _waste(form.panels, -(-form.panels // each)) <= _MOST_WASTE]
    return tuple(heights), tuple(parts), tuple(each for each in _DEPTHS if each <= form.steps)


def _waste(total: int, size: int) -> float:
    return -(-total // size) * size / total - 1
