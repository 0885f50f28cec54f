"""Products of matrices and convolutions with inner kernels of our own, in bf16 or fp32.

In bf16, weights are rounded when the network is built and data when it runs.  Sums are of fp32, and so is what follows
them.  Two kinds of instructions multiply bf16: AMX multiplies tiles of 16 rows by 16 columns, `vdpbf16ps` (avx512_bf16)
pairs of values in vectors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tvm

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.copies import CHUNK
from kintune.compiler.kernels.instructions import TILE_ROWS
from kintune.compiler.kernels.reading import Joined, joined
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.kept_parameters import keep
from kintune.compiler.programs.panel_costs import promising
from kintune.compiler.programs.panel_form import AMX, DOT, FMA, Form, Inner, Kept, Tiling, Way, form_of
from kintune.compiler.programs.panel_kernel import write_sum
from kintune.compiler.programs.stages import with_stages
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["BF16", "NEEDED", "VECTOR", "NarrowPanels", "Panels"]

BF16 = "bf16"

VECTOR = "avx512f"
NEEDED = {AMX: ("amxbf16", "amxtile", "avx512bf16"), DOT: ("avx512bf16",), FMA: ()}
"""The extensions that each kind of inner kernels needs beyond AVX-512."""

_TILE_COLUMNS, _LANES, _VECTORS = 32, 16, 4
_HEIGHTS = {4: (6, 5, 4), 3: (8, 7, 6), 2: (12, 11, 10, 9, 8), 1: (24, 20, 16, 12)}
"""The rows that inner kernels of so many vectors compute at once: sums, columns and a value fit 32 registers."""
_IN_FLIGHT = 10  # products that are computed at once, where the next ones wait for them
_UNITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
_EVEN = (1, 2, 3, 4)  # tasks of about equal size, for which units of their own are offered
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_DEPTHS = (1, 2, 3, 4, 6, 8)
_MOST_BYTES = 3 << 20  # of the rows of a task
_MOST_WASTE = 0.2  # rows or panels that are computed and not used, as a share of those that are
_LEAST_USE = 0.25  # of what the inner kernel multiplies, the share that is not zeros of padding
_FIRST = 32  # candidates of the rule


class _PanelProgram:
    """What the programs have in common; a variant is a kind of inner kernels.

    The decisions are units of rows of a task, parts of the columns, and parts of the sum (`panel_form.Tiling`).
    """

    name = ""
    kinds: tuple[str, ...] = ()
    least_flops = 0.0
    """Of a sum that is worth the program."""

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The best kind of inner kernels for the target; none where something is left beside the sum."""
        can = capabilities(target)
        kind = next((kind for kind in self.kinds if can.has((VECTOR, *NEEDED[kind]))), None)
        if kind is None:
            return ()
        matched = joined(module)
        if matched is None or matched.found.flops < self.least_flops:
            return ()
        return (kind,) if _use(matched.found, _inner(matched.found, kind)) >= _LEAST_USE else ()

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """The choices of units, parts and depth.

        Raises:
            BuildError: the workload has no such sum, or there is no such variant of it.
        """
        form, inner = self._form(_found(module), variant)
        return self._choices(form, inner).axes()

    def write(
        self,
        module: tvm.IRModule,
        variant: str,
        decisions: tuple[Decision, ...],
        kept: Collection[int] = (),
    ) -> tvm.IRModule:
        """The workload with the program in the place of its sum.

        The parameters at the positions `kept`, which must be among `keepable`, are of bf16 instead of fp32.

        Raises:
            BuildError: the workload has no such sum, there is no such variant of it, or the decisions are not its own.
        """
        matched = _found(module)
        form, inner = self._form(matched, variant)
        tiling = Tiling(*self._choices(form, inner).picked(decisions))
        data, result = matched.data_position, matched.result_position
        params = matched.module["main"].params
        others = tuple(params[position] for position in sorted(set(kept) - {data, result}))
        in_bf16 = Kept(data in kept, result in kept, others)
        stages = write_sum(matched.found, inner, tiling, matched.epilogue, in_bf16)
        written = with_stages(matched.module, matched.found, stages, matched.epilogue)
        return tvm.IRModule({"main": keep(written["main"], kept)}, attrs=written.attrs) if kept else written

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """The positions of the parameters that may be of bf16: data, what is stored, and what is read with the sums.

        With `rounded`, those that are rounded in any case: data that is not read with the sums as well.

        Raises:
            BuildError: the workload has no such sum.
        """
        matched = _found(module)
        if not rounded:
            return matched.keepable
        read = [] if matched.epilogue is None else matched.epilogue.operands
        is_read = any(matched.found.data.same_as(each) for each in read)
        return frozenset() if is_read else frozenset({matched.data_position} - {-1})

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """The decisions of the least estimated times."""
        form, inner = self._form(_found(module), variant)
        choices = self._choices(form, inner)
        return list(map(choices.decisions, promising(form, inner, machine, choices.values)[:_FIRST]))

    def _form(self, matched: Joined, variant: str) -> tuple[Form, Inner]:
        if variant not in self.kinds:
            raise BuildError(f"{self.name} has no variant {variant}")
        inner = _inner(matched.found, variant)
        return form_of(matched.found, inner), inner

    def _choices(self, form: Form, inner: Inner) -> ChoiceLists:
        return ChoiceLists(self.name, _values(form, inner))


class NarrowPanels(_PanelProgram):
    """Writes sums of products with constant weights in bf16."""

    name = "narrow"
    version = 5
    patterns: tuple[str, ...] = ()
    precision = BF16
    kinds = (AMX, DOT)
    least_flops = 100_000.0

    def instructions(self, variant: str) -> tuple[str, ...]:
        """The extensions that kernels of a variant need, beyond those which any kernel may use."""
        return NEEDED.get(variant, ())


class Panels(_PanelProgram):
    """Writes sums of products with constant weights in fp32.

    For those that no other program computes, as of a convolution with a kernel of 512 places: a spectrum.
    """

    name = "panels"
    version = 3
    patterns: tuple[str, ...] = ()
    kinds = (FMA,)
    least_flops = 1_000_000.0


def _found(module: tvm.IRModule) -> Joined:
    matched = joined(module)
    if matched is None:
        raise BuildError("the workload is no sum of products with constant weights")
    return matched


def _inner(found: Contraction, kind: str) -> Inner:
    """The inner kernel for a sum."""
    if kind == AMX:
        return Inner(AMX, TILE_ROWS, _TILE_COLUMNS)
    rows = form_of(found, Inner(kind, 1, 1)).rows
    is_full = _waste(found.filters, _LANES * _VECTORS) <= _MOST_WASTE
    return min(
        (
            Inner(kind, height, _LANES * vectors)
            for vectors, heights in _HEIGHTS.items()
            for height in ([rows] if rows < max(heights) else heights)
            if vectors == _VECTORS or not is_full
        ),
        key=lambda inner: _instructions(rows, found.filters, inner),
    )


def _instructions(rows: int, filters: int, inner: Inner) -> int:
    """About how many instructions the inner kernel takes for one value of all sums."""
    vectors = inner.columns // _LANES
    products = max(inner.rows * vectors, inner.rows + vectors, _IN_FLIGHT)
    return -(-filters // inner.columns) * -(-rows // inner.rows) * (products + _VECTORS)


def _use(found: Contraction, inner: Inner) -> float:
    """The share of the values and columns that the inner kernel multiplies which are not zeros of padding."""
    form = form_of(found, inner)
    return form.values / (form.chunks * inner.step) * found.filters / (form.panels * inner.columns)


def _values(form: Form, inner: Inner) -> dict[str, tuple[int, ...]]:
    """The values of units, parts and depth."""
    units = -(-form.rows // inner.rows)
    most = max(1, _MOST_BYTES // (inner.size * inner.rows * form.steps * inner.step))
    offered = sorted({*_UNITS, *(-(-units // number) for number in _EVEN)})
    heights = [each for each in offered if each <= min(units, most) and _waste(units, each) <= _MOST_WASTE]
    parts = [
        each for each in _PARTS if each <= form.panels and _waste(form.panels, -(-form.panels // each)) <= _MOST_WASTE
    ]
    deep = form.runs if form.way is Way.IMAGE else form.steps * inner.step // CHUNK
    depths = tuple(each for each in _DEPTHS if each <= max(1, deep))
    return {"units": tuple(heights or [1]), "parts": tuple(parts), "depth": depths}


def _waste(total: int, size: int) -> float:
    return -(-total // size) * size / total - 1
