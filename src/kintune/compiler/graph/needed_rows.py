"""Restricts operators to the rows of their results that are read.

A classifier reads one token of a transformer's result.  Of the other tokens, the last layer needs only the keys and
values of its attention.  The pass goes back from slices and single elements through operators that compute each row of
a tensor from the same row of an operand, and makes them compute only the rows that are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from kintune.compiler.graph.layout_rules import BROADCAST, UNARY
from kintune.compiler.graph.rewriting import (
    RESHAPES,
    Rewriter,
    axis_before,
    emit_as,
    integers_in,
    operator_of,
    pass_of,
    static_shape,
    value_of,
    variables_in,
)

__all__ = ["ComputeNeededRows"]

_LEAST_SHARE = 0.01
"""The pass changes nothing if it would save less than this share of the multiplications of matrix products."""

Shape = tuple[int, ...]


class _Rows(NamedTuple):
    """The rows from `begin` to before `end` along an axis."""

    axis: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.end - self.begin

    def along(self, axis: int) -> _Rows:
        """The same rows along another axis."""
        return self._replace(axis=axis)

    def shape_of(self, whole: Sequence[int]) -> Shape:
        """The shape of these rows of a tensor of shape `whole`."""
        return tuple(self.size if axis == self.axis else extent for axis, extent in enumerate(whole))


class _ComputeNeededRows(Rewriter):
    """A pass that makes operators compute only the rows that later slices read."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._kept: dict[relax.Var, _Rows] = {}
        self._made: dict[relax.Var, relax.Var] = {}

    def learn(self, block: relax.DataflowBlock) -> None:
        """Find the rows that are read."""
        self._kept.update(_kept_rows(block))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        variable, call = binding.var, binding.value
        kept = self._kept.get(variable)
        if kept is not None:
            made = _OPERATORS[operator_of(call)].with_rows(call, kept, self._rows_of)
            self._made[variable] = emit_as(self.builder_, variable, self.visit_expr(made))
            return
        cut = _cut(call)
        if cut is not None and call.args[0] in self._kept:
            binding = relax.VarBinding(variable, self._cut_again(call, cut))
        super().visit_var_binding_(binding)

    def _cut_again(self, call: relax.Call, cut: _Rows) -> relax.Expr:
        """The slice or single element `cut`, taken from a tensor of which only some rows are computed."""
        part = self._rows_of(call.args[0], cut)
        if operator_of(call) != "relax.take":
            return part
        return relax.op.take(part, relax.const(np.zeros_like(value_of(call.args[1]))), cut.axis)

    def _rows_of(self, operand: relax.Expr, rows: _Rows | None) -> relax.Expr:
        """These rows of an operand; all of them where `rows` is None."""
        if rows is None:
            return operand
        if isinstance(operand, tvm.ir.GenericConst):
            values = value_of(operand)
            index = [slice(None)] * values.ndim
            index[rows.axis] = slice(rows.begin, rows.end)
            return relax.const(np.ascontiguousarray(values[tuple(index)]), str(operand.ty.dtype))
        have = self._kept.get(operand)
        begin = rows.begin - (0 if have is None else have.begin)
        source = operand if have is None else self._made[operand]
        if have is not None and have.size == rows.size:
            return source
        cut = relax.op.strided_slice(self.visit_expr(source), [rows.axis], [begin], [begin + rows.size])
        return emit_as(self.builder_, operand, cut)


ComputeNeededRows = partial(pass_of, _ComputeNeededRows)


def _kept_rows(block: relax.DataflowBlock) -> dict[relax.Var, _Rows]:
    """The variables of a block of which only some rows are read, and these rows; empty if little would be saved."""
    read: dict[relax.Var, list[_Rows | None]] = {}
    kept: dict[relax.Var, _Rows] = {}
    saved = total = 0.0
    for binding in reversed(list(block.bindings)):
        variable, call = binding.var, binding.value
        wanted = _union(read.get(variable, [])) if isinstance(variable, relax.DataflowVar) else None
        shape = static_shape(variable) if isinstance(variable.ty, relax.TensorType) else None
        operator = _OPERATORS.get(operator_of(call))
        operands = None
        products = _products(call)
        total += products
        if wanted is not None and shape is not None and operator is not None and 2 * wanted.size <= shape[wanted.axis]:
            operands = operator.operands(call, wanted)
        if operands is not None and wanted is not None and shape is not None:
            kept[variable] = wanted
            saved += products * (1 - wanted.size / shape[wanted.axis])
            for operand, rows in operands:
                if isinstance(operand, relax.Var):
                    read.setdefault(operand, []).append(rows)
            continue
        cut = _cut(call)
        for operand in variables_in(call):
            read.setdefault(operand, []).append(cut if cut is not None and operand.same_as(call.args[0]) else None)
    return kept if saved and saved >= _LEAST_SHARE * total else {}


def _union(read: Sequence[_Rows | None]) -> _Rows | None:
    """The smallest range of rows that holds all that are read; None if a reader needs all of them, or there is none."""
    found = [rows for rows in read if rows is not None]
    if not found or len(found) < len(read) or len({rows.axis for rows in found}) > 1:
        return None
    return _Rows(found[0].axis, min(rows.begin for rows in found), max(rows.end for rows in found))


def _cut(call: Any) -> _Rows | None:
    """The rows that a slice along one axis, or a take of a single element, reads; None for any other call."""
    name = operator_of(call)
    if name not in ("relax.take", "relax.strided_slice") or not isinstance(call.args[0], relax.Var):
        return None
    before, after = static_shape(call.args[0]), static_shape(call)
    if before is None or after is None or 0 in after:
        return None
    if name == "relax.take":
        index = call.args[1]
        if call.attrs.axis is None or not isinstance(index, tvm.ir.GenericConst):
            return None
        values = value_of(index)
        axis = int(call.attrs.axis) % len(before)
        if values.size != 1 or not -before[axis] <= int(values.item()) < before[axis]:
            return None
        place = int(values.item()) % before[axis]
        return _Rows(axis, place, place + 1)
    numbers = [integers_in(argument) for argument in call.args[1:]]
    if any(found is None or len(found) != 1 for found in numbers):
        return None
    axis, begin, _, *steps = (found[0] for found in numbers if found is not None)
    axis %= len(before)
    begin = max(begin + before[axis], 0) if begin < 0 else begin
    return _Rows(axis, begin, begin + after[axis]) if all(step == 1 for step in steps) else None


def _products(call: Any) -> float:
    """The number of multiplications of a matrix product; 0 for other operators."""
    if operator_of(call) != "relax.matmul":
        return 0.0
    shape, first = static_shape(call), static_shape(call.args[0])
    return 0.0 if shape is None or first is None else float(math.prod(shape) * first[-1])


_RowsOf = Callable[[relax.Expr, "_Rows | None"], relax.Expr]
_Operands = list[tuple[relax.Expr, "_Rows | None"]]


class _Operator(NamedTuple):
    """How an operator computes some rows of its result.

    `reads` returns the rows that it reads of each operand, None for all of them; or None in place of the list if the
    operator cannot compute these rows alone.  `build` makes the call for the rows with other operands.
    """

    reads: Callable[[relax.Call, _Rows], list[_Rows | None] | None]
    build: Callable[[relax.Call, list[relax.Expr], _Rows], relax.Expr]

    def operands(self, call: relax.Call, rows: _Rows) -> _Operands | None:
        """The operands and the rows of them that are read; None if it cannot compute these rows alone."""
        found = self.reads(call, rows)
        return None if found is None else list(zip(_operands(call), found, strict=True))

    def with_rows(self, call: relax.Call, rows: _Rows, rows_of: _RowsOf) -> relax.Expr:
        """The operator on rows of its operands."""
        return self.build(call, [rows_of(operand, read) for operand, read in self.operands(call, rows) or ()], rows)


def _operands(call: relax.Call) -> list[relax.Expr]:
    return list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else list(call.args)


def _same_operator(call: relax.Call, operands: list[relax.Expr], _rows: _Rows) -> relax.Expr:
    return relax.Call(call.op, operands, call.attrs, call.ty_args)


def _aligned(operand: relax.Expr, rows: _Rows, rank: int) -> _Rows | None:
    """The rows of an operand, broadcast to a result of `rank` axes, that are read for rows of it; None for all."""
    shape = static_shape(operand) or ()
    axis = rows.axis - (rank - len(shape))
    return rows.along(axis) if axis >= 0 and shape[axis] != 1 else None


def _read_by_all(call: relax.Call, rows: _Rows) -> list[_Rows | None] | None:
    shapes = [static_shape(operand) for operand in call.args]
    if any(shape is None for shape in shapes):
        return None
    return [_aligned(operand, rows, int(call.ty.ndim)) for operand in call.args]


def _read_by_first(call: relax.Call, rows: _Rows) -> list[_Rows | None] | None:
    return [rows, *[None] * (len(call.args) - 1)]


def _read_beside(axes_of: Callable[[relax.Call], Sequence[int]]) -> Callable[..., list[_Rows | None] | None]:
    """`reads` for operators that work along the axes of `axes_of`: rows must be along another axis."""

    def reads(call: relax.Call, rows: _Rows) -> list[_Rows | None] | None:
        rank = len(static_shape(call) or ())
        is_inside = rank == 0 or rows.axis in [int(axis) % rank for axis in axes_of(call)]
        return None if is_inside else _read_by_first(call, rows)

    return reads


def _read_by_product(call: relax.Call, rows: _Rows) -> list[_Rows | None] | None:
    first, second = (static_shape(operand) for operand in call.args)
    rank = int(call.ty.ndim)
    if first is None or second is None or min(len(first), len(second)) < 2:
        return None
    if rows.axis == rank - 2:
        return [rows.along(len(first) - 2), None]
    if rows.axis == rank - 1:
        return [None, rows.along(len(second) - 1)]
    return [_aligned(operand, rows, rank) for operand in call.args]


def _read_by_move(call: relax.Call, rows: _Rows) -> list[_Rows | None] | None:
    place = axis_before(call, rows.axis)
    return None if place is None else [rows.along(place), *[None] * (len(call.args) - 1)]


def _reshape(call: relax.Call, operands: list[relax.Expr], rows: _Rows) -> relax.Expr:
    return relax.op.reshape(operands[0], rows.shape_of(static_shape(call) or ()))


def _read_by_concatenation(call: relax.Call, rows: _Rows) -> list[_Rows | None] | None:
    if call.attrs.axis is None or not isinstance(call.args[0], relax.Tuple):
        return None
    return None if int(call.attrs.axis) % int(call.ty.ndim) == rows.axis else [rows] * len(_operands(call))


def _concatenate(call: relax.Call, operands: list[relax.Expr], _rows: _Rows) -> relax.Expr:
    return relax.op.concat(operands, call.attrs.axis)


_OPERATORS: Mapping[str, _Operator] = {
    **{f"relax.{name}": _Operator(_read_by_first, _same_operator) for name in UNARY},
    **{f"relax.{name}": _Operator(_read_by_all, _same_operator) for name in BROADCAST},
    **{
        f"relax.nn.{name}": _Operator(_read_beside(lambda call: call.attrs.axes), _same_operator)
        for name in ("layer_norm", "rms_norm")
    },
    "relax.nn.softmax": _Operator(_read_beside(lambda call: [call.attrs.axis]), _same_operator),
    "relax.matmul": _Operator(_read_by_product, _same_operator),
    "relax.permute_dims": _Operator(_read_by_move, _same_operator),
    "relax.concat": _Operator(_read_by_concatenation, _concatenate),
    **dict.fromkeys(RESHAPES, _Operator(_read_by_move, _reshape)),
}
"""Operators that can compute some rows of their result alone."""
