"""Products with a few more rows or columns, of zeros, so that the size of a register tile divides their number.

A tile divides its extent.  Of 197 rows, a prime number, a register tile can hold one or all; of 198 it can hold 6, 9 or
11.  No power of two divides 50257 columns; 32, the columns of two vectors, divides 50272.  The results of added rows
and columns are computed and thrown away.  Columns are added where they belong to weights, which are padded when the
network is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
from tvm.s_tir import SBlock, SBlockRealize, Schedule, ScheduleError

from kintune.compiler.space.packing import PACKS
from kintune.compiler.space.weights import LAYOUT_FREE, LAYOUT_FREE_OPERANDS, weight_positions
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.search.bounds import divisors
from kintune.search.processor import Processor

__all__ = ["PaddedProduct", "padded_columns", "padded_rows"]

_MOST_ROWS = 14  # of a register tile: two vectors of columns each, in 32 registers
_FEW_ROWS = 5  # a tile of so many keeps the multipliers busy
_MOST_ADDED = 0.08  # of the rows
_MOST_COLUMNS = 32  # of a register tile: two of the widest vectors
_ONE_VECTOR = 0.95  # the speed of a tile of half as many columns
_LEAST_WORK = 1_000_000  # multiplications of a product that is worth a copy of its rows
_UNSCHEDULED = "schedule_rule"


class _Core(NamedTuple):
    """A product: the name of its block, the extents of its axes, which of them rows and columns are, and the weights.

    `weights` is the operand with the columns if it is a parameter whose layout is free, else None.
    """

    block: str
    extents: tuple[int, ...]
    rows: int
    columns: int
    weights: Any

    def padded(self) -> tuple[int, int]:
        """The numbers of rows and columns that are best."""
        columns = self.extents[self.columns]
        return padded_rows(self.extents[self.rows]), columns if self.weights is None else padded_columns(columns)


class PaddedProduct:
    """Writes a product of matrices with more rows or columns than it has."""

    name = "padded"
    version = 1
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The numbers of rows and columns, as in "198x768"; none where register tiles divide them as they are."""
        core = _core(module)
        if core is None:
            return ()
        rows, columns = core.padded()
        changed = (rows, columns) != (core.extents[core.rows], core.extents[core.columns])
        return (f"{rows}x{columns}",) if changed else ()

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...] | None:
        """None: rules make the sketches."""
        return None

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """The product with as many rows and columns as `variant` says; what follows it reads only the original ones.

        Raises:
            BuildError: the workload is no such product, or has more rows or columns than `variant` says.
        """
        core, wanted = _core(module), variant.split("x")
        if core is None or len(wanted) != 2 or not all(number.isdecimal() for number in wanted):
            raise BuildError(f"there is no product that can be padded to {variant}")
        factors = [1] * len(core.extents)
        factors[core.rows], factors[core.columns] = map(int, wanted)
        before = core.extents[core.rows], core.extents[core.columns]
        if factors[core.rows] < before[0] or factors[core.columns] < before[1]:
            raise BuildError(f"a product of {before[0]}x{before[1]} cannot be padded to {variant}")
        function = module["main"]
        schedule = Schedule(module, debug_mask=0, error_render_level="none")
        try:
            block = schedule.get_sblock(core.block, func_name="main")
            schedule.pad_einsum(block, factors)
        except ScheduleError as error:
            raise BuildError("the product cannot be padded") from error
        packing = None
        for producer in schedule.get_producers(block):
            statement = schedule.get(producer)
            if core.weights is not None and statement.reads[0].source.same_as(core.weights):
                schedule.annotate(producer, PACKS, True)
                schedule.annotate(producer, _UNSCHEDULED, "None")
                packing = statement.writes[0].source
        if packing is None:
            return schedule.mod
        return _with_free_layout(schedule.mod, core.block, packing, function.params, core.weights)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """No decisions: MetaSchedule's sketches have them."""
        return ()


def padded_rows(rows: int) -> int:
    """The number of rows, from `rows` to 8 % more, for which the `rows` are computed fastest.

    It is `rows` itself where a register tile of five rows or more divides it.  A register tile of r rows is assumed to
    reach r / (r + 1) of the peak: it reads one vector for each of r products.
    """
    if rows <= _MOST_ROWS or _tile(rows) >= _FEW_ROWS:
        return rows
    candidates = range(rows, rows + max(1, int(rows * _MOST_ADDED)) + 1)
    return max(candidates, key=lambda extent: (rows / extent * _tile(extent) / (_tile(extent) + 1), -extent))


def padded_columns(columns: int) -> int:
    """The number of columns, from `columns` to 8 % more, for which the `columns` are computed fastest."""
    if columns % (_MOST_COLUMNS // 2) == 0:
        return columns
    two, one = (-(-columns // width) * width for width in (_MOST_COLUMNS, _MOST_COLUMNS // 2))
    best = two if columns / two > _ONE_VECTOR * columns / one else one
    return best if best - columns <= _MOST_ADDED * columns else columns


def _with_free_layout(
    module: tvm.IRModule, block: str, weights: Any, parameters: Sequence[Any], unpadded: Any
) -> tvm.IRModule:
    """The module in which a schedule may choose the layout of the product's padded weights, not of the unpadded."""
    function = module["main"]
    root = function.body.block
    statements = [_annotated(statement, block, {LAYOUT_FREE_OPERANDS: [weights]}) for statement in root.body.seq]
    made = SBlock(
        [], root.reads, root.writes, root.name_hint, tvm.tirx.SeqStmt(statements), None, root.alloc_buffers, [],
        root.annotations,
    )  # fmt: skip
    changed = tvm.tirx.PrimFunc(function.params, SBlockRealize([], True, made), function.ret_type, function.attrs)
    free = [at for at in sorted(weight_positions(function)) if not parameters[at].same_as(unpadded)]
    changed = changed.with_attr(LAYOUT_FREE, free) if free else changed.without_attr(LAYOUT_FREE)
    return tvm.IRModule({"main": changed}, attrs=module.attrs)


def _annotated(statement: Any, block: str, annotations: dict[str, Any]) -> Any:
    """The nest of loops, with the annotations added to its block if that is named `block`."""
    if isinstance(statement, tvm.tirx.For):
        inner = _annotated(statement.body, block, annotations)
        return statement if inner is statement.body else _loop_around(statement, inner)
    inside = statement.block
    if inside.name_hint != block:
        return statement
    made = SBlock(
        inside.iter_vars, inside.reads, inside.writes, inside.name_hint, inside.body, inside.init,
        inside.alloc_buffers, inside.match_buffers, {**(inside.annotations or {}), **annotations},
    )  # fmt: skip
    return SBlockRealize(statement.iter_values, statement.predicate, made)


def _loop_around(loop: Any, body: Any) -> Any:
    return tvm.tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations)


def _tile(extent: int) -> int:
    return max(size for size in divisors(extent) if size <= _MOST_ROWS)


def _core(module: tvm.IRModule) -> _Core | None:
    """The product with the most work, if its indices are plain variables and it is large enough."""
    try:
        schedule = Schedule(module, debug_mask=0, error_render_level="none")
        blocks = schedule.get_child_blocks(schedule.get_sblock("root", func_name="main"))
    except ScheduleError:
        return None
    function = module["main"]
    weights = [function.params[position] for position in weight_positions(function)]
    found = [core for block in blocks if (core := _product(schedule.get(block), weights)) is not None]
    core = max(found, key=lambda each: _work(each.extents), default=None)
    return core if core is not None and _work(core.extents) >= _LEAST_WORK else None


def _work(extents: Sequence[int]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


def _product(block: Any, weights: Sequence[Any]) -> _Core | None:
    """The product that a block computes; None unless it sums products of two tensors whose indices are its axes."""
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
    if not one_each:
        return None
    operand = next(each.source for each, read in zip(block.reads, reads, strict=True) if columns in read)
    free = any(operand.same_as(weight) for weight in weights)
    return _Core(str(block.name_hint), extents, rows, columns, operand if free else None)


def _axis_of(index: Any, axes: Sequence[Any]) -> int:
    """The number of the axis that an index is; -1 for any other expression."""
    return next((number for number, axis in enumerate(axes) if axis.same_as(index)), -1)
