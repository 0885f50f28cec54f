"""Finds the tensor of which an operand is a view, by following reshapes, transposes, repetitions and slices back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from kintune.compiler.graph.rewriting import (
    RESHAPES,
    Bindings,
    integers_in,
    operator_of,
    static_shape,
    transposed_axes,
    value_of,
)
from kintune.compiler.graph.strided_views import View

__all__ = ["Network", "number_of"]


class Network(Bindings):
    """The bindings of a function.

    `ends` are variables that views are not followed beyond, since what computes them is replaced.
    """

    def __init__(self, function: relax.Function) -> None:
        super().__init__()
        self.ends: set[relax.Var] = set()
        for block in function.body.blocks if isinstance(function.body, relax.SeqExpr) else ():
            self.learn(block)

    def value(self, expression: relax.Expr) -> Any:
        """The value of a variable; None where it has none, or is in `ends`."""
        return None if expression in self.ends or not isinstance(expression, relax.Var) else self.values.get(expression)

    def view(self, expression: relax.Expr, *, scaled: bool = False) -> View:
        """The expression, of static shape, as a view; with `scaled`, constant factors become the scale of the view.

        Raises:
            ValueError: when the shape of the expression is not static.
        """
        shape = static_shape(expression)
        if shape is None:
            raise ValueError("a view of a tensor whose shape is unknown")
        value = self.value(expression)
        found = None
        if isinstance(value, relax.TupleGetItem):
            found = self._piece(value)
        elif operator_of(value) in ("relax.multiply", "relax.divide") and scaled:
            found = self._factor(value, shape)
        elif (rule := _RULES.get(operator_of(value))) is not None and static_shape(value.args[0]) is not None:
            found = rule(self.view(value.args[0], scaled=scaled), value, shape)
        return found if found is not None and found.shape == shape else View.of(expression, shape)

    def _piece(self, item: relax.TupleGetItem) -> View | None:
        call = self.value(item.tuple_value)
        if operator_of(call) != "relax.split" or static_shape(call.args[0]) is None:
            return None
        view = self.view(call.args[0])
        axis, parts = int(call.attrs.axis) % len(view.axes), call.attrs.indices_or_sections
        extent = view.shape[axis]
        if isinstance(parts, int | tvm.tirx.IntImm):
            size = extent // int(parts)
            bounds = list(range(0, extent + 1, size)) if size and extent % size == 0 else []
        else:
            bounds = [0, *(int(part) for part in parts), extent]
        number = int(item.index)
        if number + 1 >= len(bounds):
            return None
        return view.cut(axis, bounds[number], bounds[number + 1] - bounds[number])

    def _factor(self, call: relax.Call, shape: tuple[int, ...]) -> View | None:
        first, second = call.args
        divides = operator_of(call) == "relax.divide"
        factor = number_of(second)
        if factor is None and not divides:
            first, second = second, first
            factor = number_of(second)
        if factor is None or static_shape(first) != shape or (divides and factor == 0):
            return None
        view = self.view(first, scaled=True)
        return view._replace(scale=view.scale / factor if divides else view.scale * factor)


def number_of(expression: relax.Expr) -> float | None:
    """The number that all elements of a constant are equal to; None where they differ, or it is no float constant."""
    if not isinstance(expression, tvm.ir.GenericConst):
        return None
    values = value_of(expression)
    if not np.issubdtype(values.dtype, np.floating) or not values.size:
        return None
    first = values.reshape(-1)[0]
    return float(first) if bool((values == first).all()) else None


def _permuted(view: View, call: relax.Call, _shape: tuple[int, ...]) -> View:
    return view.permuted(transposed_axes(call))


def _repeated(view: View, call: relax.Call, _shape: tuple[int, ...]) -> View | None:
    if call.attrs.axis is None:
        return None
    return view.repeated(int(call.attrs.axis) % len(view.axes), int(call.attrs.repeats))


def _sliced(view: View, call: relax.Call, shape: tuple[int, ...]) -> View | None:
    bounds = [integers_in(argument) for argument in call.args[1:]]
    if any(found is None for found in bounds):
        return None
    axes, begins, _, *strides = (found or [] for found in bounds)
    if strides and any(stride != 1 for stride in strides[0]):
        return None
    found: View | None = view
    for axis, begin in zip(axes, begins, strict=True):
        if found is None:
            return None
        extent = found.shape[axis]
        start = min(max(begin + extent if begin < 0 else begin, 0), extent)
        found = found.cut(axis % len(shape), start, shape[axis])
    return found


def _taken(view: View, call: relax.Call, _shape: tuple[int, ...]) -> View | None:
    index = call.args[1]
    if not isinstance(index, tvm.ir.GenericConst) or call.attrs.axis is None or int(index.ty.ndim):
        return None
    axis = int(call.attrs.axis) % len(view.axes)
    extent, position = view.shape[axis], int(value_of(index))
    position += extent if position < 0 else 0
    found = view.cut(axis, position, 1) if 0 <= position < extent else None
    return None if found is None else found.without(axis)


_RULES: dict[str, Callable[[View, relax.Call, tuple[int, ...]], View | None]] = {
    **dict.fromkeys(RESHAPES, lambda view, _call, shape: view.reshaped(shape)),
    "relax.broadcast_to": lambda view, _call, shape: view.broadcast(shape),
    "relax.permute_dims": _permuted,
    "relax.repeat": _repeated,
    "relax.strided_slice": _sliced,
    "relax.take": _taken,
}
