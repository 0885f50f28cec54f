"""Products with more rows: a few rows of zeros, so that a register tile divides their number.

A tile divides its extent.  Of 197 rows, a prime number, a register tile can hold one or all; of 198 it can hold 6, 9 or
11.  The rows that are added are computed and thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
from tvm.s_tir import Schedule, ScheduleError

from kintune.compiler.programs.program import pattern_of
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.search.bounds import divisors
from kintune.search.processor import Processor

__all__ = ["PaddedProduct", "padded_extent"]

_MOST_ROWS = 14  # of a register tile: two vectors of columns each, in 32 registers
_FEW_ROWS = 5  # a tile of so many keeps the multipliers busy
_MOST_ADDED = 0.08  # of the rows
_LEAST_WORK = 1_000_000  # multiplications of a product that is worth a copy of its rows


class _Core(NamedTuple):
    """A product: the name of its block, the extents of its axes, and which of them its rows are."""

    block: str
    extents: tuple[int, ...]
    rows: int


class PaddedProduct:
    """Writes a product of matrices with more rows than it has."""

    name = "padded"
    version = 1

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The number of rows; none where a register tile divides the rows as they are, or of a pattern of operators."""
        other = target.kind.name != "llvm" or pattern_of(module["main"])
        core = None if other else _core(module)
        if core is None:
            return ()
        rows = core.extents[core.rows]
        wanted = padded_extent(rows)
        return (str(wanted),) if wanted > rows else ()

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...] | None:
        """None: rules make the sketches."""
        return None

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """The product with `variant` rows, of which the last are zero, and what follows it on those that count.

        Raises:
            BuildError: the workload is no such product.
        """
        core = _core(module)
        if core is None or not variant.isdecimal() or int(variant) <= core.extents[core.rows]:
            raise BuildError(f"there is no product whose rows can be padded to {variant}")
        schedule = Schedule(module, debug_mask=0, error_render_level="none")
        factors = [int(variant) if axis == core.rows else 1 for axis in range(len(core.extents))]
        try:
            schedule.pad_einsum(schedule.get_sblock(core.block, func_name="main"), factors)
        except ScheduleError as error:
            raise BuildError("the product cannot be padded") from error
        return schedule.mod

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """None of its own."""
        return ()


def padded_extent(rows: int) -> int:
    """The number of rows, at least `rows`, of which the most are computed in the least time; `rows` if it is fine.

    A register tile of r rows is assumed to reach r / (r + 1) of the peak: it reads one vector for each of r products.
    """
    if rows <= _MOST_ROWS or _tile(rows) >= _FEW_ROWS:
        return rows
    candidates = range(rows, rows + max(1, int(rows * _MOST_ADDED)) + 1)
    return max(candidates, key=lambda extent: (rows / extent * _tile(extent) / (_tile(extent) + 1), -extent))


def _tile(extent: int) -> int:
    return max(size for size in divisors(extent) if size <= _MOST_ROWS)


def _core(module: tvm.IRModule) -> _Core | None:
    """The product with the most work, if its indices are plain variables and it is large enough."""
    try:
        schedule = Schedule(module, debug_mask=0, error_render_level="none")
        blocks = schedule.get_child_blocks(schedule.get_sblock("root", func_name="main"))
    except ScheduleError:
        return None
    found = [core for block in blocks if (core := _product(schedule.get(block))) is not None]
    core = max(found, key=lambda each: _work(each.extents), default=None)
    return core if core is not None and _work(core.extents) >= _LEAST_WORK else None


def _work(extents: Sequence[int]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def _product(block: Any) -> _Core | None:
    """What a block is, if it sums products of two tensors whose indices are its axes."""
    axes = [entry.var for entry in block.iter_vars]
    reduced = [int(entry.iter_type) == tvm.tirx.IterVar.CommReduce for entry in block.iter_vars]
    spatial = [number for number, reduces in enumerate(reduced) if not reduces]
    if sum(reduced) != 1 or len(spatial) < 2 or len(block.reads) != 2 or len(block.writes) != 1:
        return None
    update = block.body
    if not isinstance(update, tvm.tirx.BufferStore) or not isinstance(update.value, tvm.tirx.Add):
        return None
    if not isinstance(update.value.b, tvm.tirx.Mul):
        return None
    written = [_axis_of(index, axes) for index in update.indices]
    if written != spatial:  # also constant indices
        return None
    try:
        extents = tuple(int(entry.dom.extent) for entry in block.iter_vars)
    except TypeError:
        return None
    rows, columns = spatial[-2], spatial[-1]
    reads = [{_axis_of(dimension.min, axes) for dimension in operand.region} for operand in block.reads]
    one_each = all((rows in read) != (columns in read) for read in reads)
    return _Core(str(block.name_hint), extents, rows) if one_each else None


def _axis_of(index: Any, axes: Sequence[Any]) -> int:
    """Which axis an index is; -1 if it is none by itself."""
    return next((number for number, axis in enumerate(axes) if axis.same_as(index)), -1)
