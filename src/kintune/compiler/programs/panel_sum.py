"""Products of matrices and convolutions with inner kernels of our own, in bf16.

Weights are rounded when the network is built and data when it runs.  Sums are of fp32, and so is what follows
them.  Instructions of two kinds multiply bf16 (`PAIRS`): tiles of 16 rows by 16 columns, and vectors of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tvm

from kintune.compiler.kernels.contraction import DENSE, Contraction
from kintune.compiler.kernels.copies import CHUNK
from kintune.compiler.kernels.cost import Work
from kintune.compiler.kernels.instructions import PAIRS, TILE_ROWS
from kintune.compiler.kernels.reading import Joined, joined, require
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.programs.panel_form import SIZE, Form, Inner, Kept, Tiling, Way, form_of
from kintune.compiler.programs.panel_kernel import kernels, write_sum
from kintune.compiler.programs.prologue import has_rows
from kintune.compiler.programs.tiling_program import NestProgram
from kintune.errors import BuildError
from kintune.runtime.target import capabilities

__all__ = ["BF16", "NEEDED", "NarrowPanels"]

BF16 = "bf16"

NEEDED = {each.variant: each.extensions for each in PAIRS}
"""The extensions that each kind of inner kernels needs."""

_TILE_VECTORS, _VECTORS = 2, 4
_HEIGHTS = {4: (6, 5, 4), 3: (8, 7, 6), 2: (12, 11, 10, 9, 8), 1: (24, 20, 16, 12)}
"""The rows that inner kernels of so many vectors compute at once, with 32 registers."""
_IN_FLIGHT = 10  # products that are computed at once, where the next ones wait for them
_UNITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
_EVEN = (1, 2, 3, 4)  # tasks of about equal size, for which units of their own are offered
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_DEPTHS = (1, 2, 3, 4, 6, 8)
_MOST_BYTES = 3 << 20  # of the rows of a task
_MOST_WASTE = 0.2  # rows or panels that are computed and not used, as a share of those that are
_LEAST_USE = 0.25  # of what the inner kernel multiplies, the share that is not zeros of padding
_COPIED, _GATHERED = 2.4, 3.2  # times the bytes of a row that are moved until it is rounded, or copied together


class _Case(NamedTuple):
    """A workload, its sum as an inner kernel reads it, and the kernel; for any number of rows if it is `open`."""

    sums: Joined
    form: Form
    inner: Inner
    open: bool = False


class NarrowPanels(NestProgram[_Case, Tiling]):
    """Writes sums of products with constant weights in bf16; a variant is a kind of inner kernels."""

    name = "narrow"
    version = 6
    precision = BF16
    tiling = Tiling
    least_flops = 100_000.0
    """Of a sum that is worth the program."""

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The best kind of inner kernels for the target; none where something is left beside the sum."""
        can = capabilities(target)
        kind = next((kind for kind in NEEDED if can.has(NEEDED[kind])), None)
        if kind is None:
            return ()
        matched = joined(module, prologues=True)
        if matched is None or matched.found.flops < self.least_flops or not has_rows(matched.found):
            return ()
        return (kind,) if _use(matched.found, _inner(matched.found, kind)) >= _LEAST_USE else ()

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """The positions of the parameters that may be of bf16: data, what is stored, and what is read with the sums.

        With `rounded`, those that are rounded in any case: data that is not read with the sums as well.

        Raises:
            BuildError: the workload has no such sum.
        """
        matched = require(module, kinds=(DENSE,), prologues=True)
        if not rounded:
            return matched.keepable
        read = [] if matched.epilogue is None else matched.epilogue.operands
        is_read = any(matched.found.data.same_as(each) for each in read)
        return frozenset() if is_read else frozenset({matched.data_position} - {-1})

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The workload and its kernel."""
        matched = require(module, kinds=(DENSE,), prologues=True)
        if variant not in NEEDED:
            raise BuildError(f"{self.name} has no variant {variant}")
        inner = _inner(matched.found, variant)
        return _Case(matched, form_of(matched.found, inner), inner)

    def lists(self, case: _Case) -> Mapping[str, Sequence[int]]:
        """The values of units, parts and depth."""
        form, inner = case.form, case.inner
        units = -(-form.rows // inner.rows)
        most = max(1, _MOST_BYTES // (SIZE * inner.rows * form.steps * CHUNK))
        offered = sorted({*_UNITS, *(-(-units // number) for number in _EVEN)})
        heights = [each for each in offered if each <= min(units, most) and _waste(units, each) <= _MOST_WASTE]
        parts = [each for each in _PARTS if each <= form.panels]
        parts = [each for each in parts if _waste(form.panels, -(-form.panels // each)) <= _MOST_WASTE]
        deep = form.runs if form.way is Way.IMAGE else form.steps * CHUNK // CHUNK
        depths = [each for each in _DEPTHS if each <= max(1, deep)]
        return {"units": heights or [1], "parts": parts, "depth": depths}

    def work(self, case: _Case, tiling: Tiling) -> Work:
        """What the tasks do."""
        form, inner = case.form, case.inner
        own, rows = -(-form.panels // tiling.parts), tiling.units * inner.rows
        _, kernel = kernels(form, inner, tiling._replace(depth=1))[0]
        number = form.images * -(-form.rows // rows) * -(-form.panels // own)
        row_bytes = form.steps * CHUNK * SIZE
        copied = rows * row_bytes * (_COPIED if form.runs == form.pieces == 1 else _GATHERED)
        groups = -(-tiling.units // min(2, tiling.units)) if inner.instruction.tiles else tiling.units
        return Work(kernel, groups, own, number, row_bytes, shares=tiling.depth, copied=copied)

    def stages(self, case: _Case, tiling: Tiling, kept: frozenset[int]) -> Stages:
        """What computes the sums, and what follows them; tensors that are not `kept` in bf16 are of fp32."""
        sums = case.sums
        data, result, params = sums.data_position, sums.result_position, sums.module["main"].params
        others = tuple(params[position] for position in sorted(kept - {data, result}))
        in_bf16 = Kept(data in kept, result in kept, others)
        return write_sum(sums.found, case.inner, tiling, sums.epilogue, in_bf16, is_open=case.open)

    def opened(self, case: _Case, greatest: _Case) -> _Case:
        """The workload for any number of rows, if they are of a matrix that is not computed first, and not of tiles."""
        found, inner = case.sums.found, greatest.inner
        if found.prologue is not None or case.form.way is not Way.DIRECT or inner.instruction.tiles:
            return super().opened(case, greatest)
        return _Case(case.sums, form_of(found, inner), inner, open=True)

    def instructions(self, variant: str) -> tuple[str, ...]:
        """The extensions that kernels of a variant need, beyond those which any kernel may use."""
        return NEEDED.get(variant, ())


def _inner(found: Contraction, kind: str) -> Inner:
    """The inner kernel for a sum."""
    one = Inner(kind, 1, 1)
    lanes = one.instruction.lanes
    if one.instruction.tiles:
        return Inner(kind, TILE_ROWS, lanes * _TILE_VECTORS)
    rows = form_of(found, one).rows
    is_full = _waste(found.filters, lanes * _VECTORS) <= _MOST_WASTE
    return min(
        (
            Inner(kind, height, lanes * vectors)
            for vectors, heights in _heights(one.instruction.registers).items()
            for height in ([rows] if rows < max(heights) else heights)
            if vectors == _VECTORS or not is_full
        ),
        key=lambda inner: _instructions(rows, found.filters, inner),
    )


def _heights(registers: int) -> dict[int, list[int]]:
    """The rows by vectors for so many registers, which hold the sums, a row of weights and a value of the data."""
    scaled = {vectors: [each * registers // 32 for each in heights] for vectors, heights in _HEIGHTS.items()}
    return {
        vectors: [each for each in heights if (each + 1) * vectors < registers] for vectors, heights in scaled.items()
    }


def _instructions(rows: int, filters: int, inner: Inner) -> int:
    """About how many instructions the inner kernel takes for one value of all sums."""
    vectors = inner.columns // inner.instruction.lanes
    products = max(inner.rows * vectors, inner.rows + vectors, _IN_FLIGHT)
    return -(-filters // inner.columns) * -(-rows // inner.rows) * (products + _VECTORS)


def _use(found: Contraction, inner: Inner) -> float:
    """The share of the values and columns that the inner kernel multiplies which are not zeros of padding."""
    form = form_of(found, inner)
    return form.values / (form.chunks * CHUNK) * found.filters / (form.panels * inner.columns)


def _waste(total: int, size: int) -> float:
    return -(-total // size) * size / total - 1
