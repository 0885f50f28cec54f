"""Range analysis of the integers in a graph: the interval of each variable, from the operators that compute it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.models.index_marks import read_mark

__all__ = ["Interval", "Ranges", "interval_of"]

Interval = tuple[int, int]
"""The least and the greatest value, both included."""

_NARROW = {"bool": (0, 1), "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
_MOST_COPIED = 65536
"""Bytes up to which a result's narrow constant is copied when it is opened: `MOST_NARROW` in runtime/native/model.c."""

_CHOICES = frozenset({"relax.argmax", "relax.argmin"})
_SAME = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "expand_dims", "squeeze", "permute_dims", "broadcast_to", "strided_slice", "flatten", "flip"),
        *("tile", "repeat", "max", "min", "sort", "take", "gather_elements", "gather_nd", "split"),
    )
)
"""Operators whose result holds nothing but elements of their first operand."""


def interval_of(values: NDArray[Any]) -> Interval | None:
    """The interval of the elements of a constant of integers; None where it is not known.

    It is that of the type where the runtime does not copy the constant: who writes over the file of a result while it
    runs may put any value there.
    """
    if values.dtype.itemsize < 4 and values.nbytes > _MOST_COPIED:
        return _NARROW.get(values.dtype.name)
    return int(values.min()), int(values.max())


class Ranges:
    """The intervals of variables; bindings must be noted in the order of the graph."""

    def __init__(self) -> None:
        self._known: dict[Any, Interval] = {}
        self._topk_indices: dict[Any, Interval] = {}  # by the variable of a topk that returns (values, indices)

    def note(self, variable: Any, value: Any) -> None:
        """Find the interval of `variable`, which is bound to `value`."""
        if _is_topk(value) and str(value.attrs.ret_type) == "both":
            self._topk_indices[variable] = 0, _size(value.args[0], value.attrs.axis) - 1
            return
        found = self._of_value(value)
        if found is None:
            return
        dtype = str(getattr(variable.ty, "dtype", ""))
        if dtype.startswith(("int", "uint")):
            limits = np.iinfo(dtype)
            if found[0] < limits.min or found[1] > limits.max:  # it wraps around
                return
        self._known[variable] = found

    def of(self, expression: Any) -> Interval | None:
        """The interval of an operand; None where nothing is known or where it does not hold integers."""
        if isinstance(expression, tvm.ir.GenericConst):
            values = expression.value.numpy()
            if values.dtype.kind not in "iub" or not values.size:
                return None
            return interval_of(values)
        if expression in self._known:
            return self._known[expression]
        return _NARROW.get(str(getattr(getattr(expression, "ty", None), "dtype", "")))

    def _of_value(self, value: Any) -> Interval | None:
        if isinstance(value, relax.Var | tvm.ir.GenericConst):
            return self.of(value)
        if isinstance(value, relax.TupleGetItem):
            if value.tuple_value in self._topk_indices:
                return self._topk_indices[value.tuple_value] if int(value.index) == 1 else None
            return self._known.get(value.tuple_value)
        if not isinstance(value, relax.Call):
            return None
        if (mark := read_mark(value)) is not None:
            return 0, max(mark.sizes) - 1
        name = str(getattr(value.op, "name", ""))
        if name in _CHOICES:
            return 0, _size(value.args[0], value.attrs.axis) - 1
        if name == "relax.argsort" or (_is_topk(value) and str(value.attrs.ret_type) == "indices"):
            return 0, _size(value.args[0], value.attrs.axis) - 1
        if name in ("relax.max", "relax.min") and 0 in [int(size) for size in value.args[0].ty.shape.values]:
            return None  # the neutral element
        if name in _SAME and str(getattr(value.attrs, "mode", "")) != "fill":
            return self.of(value.args[0])
        if name == "relax.astype":
            source = str(value.args[0].ty.dtype)
            return self.of(value.args[0]) if source.startswith(("int", "uint", "bool")) else None
        if name == "relax.clip":
            return _clipped(self.of(value.args[0]), value)
        if name in _COMBINED:
            return _combine(_COMBINED[name], [self.of(argument) for argument in value.args])
        if name in ("relax.maximum", "relax.minimum"):
            return self._extreme(value, max if name == "relax.maximum" else min)
        if name in ("relax.cumsum", "relax.sum"):
            return _summed(self.of(value.args[0]), value)
        if name in ("relax.mod", "relax.floor_mod"):
            return _remainder(name, self.of(value.args[0]), self.of(value.args[1]))
        if name == "relax.where":
            return _joined([self.of(value.args[1]), self.of(value.args[2])])
        if name == "relax.concat":
            return _joined([self.of(field) for field in value.args[0].fields])
        return None

    def _extreme(self, call: Any, choose: Callable[..., int]) -> Interval | None:
        """The interval of a maximum or minimum; an operand without one may have any value of its type."""
        dtype = str(call.ty.dtype)
        if not dtype.startswith(("int", "uint")):
            return None
        limits = np.iinfo(dtype)
        sides = [self.of(argument) or (int(limits.min), int(limits.max)) for argument in call.args]
        return choose(sides[0][0], sides[1][0]), choose(sides[0][1], sides[1][1])


def _is_topk(value: Any) -> bool:
    return isinstance(value, relax.Call) and str(getattr(value.op, "name", "")) == "relax.topk"


_COMBINED: Mapping[str, Callable[[int, int], int]] = {
    "relax.add": lambda a, b: a + b,
    "relax.subtract": lambda a, b: a - b,
    "relax.multiply": lambda a, b: a * b,
}


def _combine(operator: Callable[[int, int], int], operands: list[Interval | None]) -> Interval | None:
    """The interval of an operator that is monotonic in each operand while the other one is fixed."""
    first, second = operands
    if first is None or second is None:
        return None
    corners = [operator(a, b) for a in first for b in second]
    return min(corners), max(corners)


def _joined(intervals: list[Interval | None]) -> Interval | None:
    known = [interval for interval in intervals if interval is not None]
    if len(known) < len(intervals) or not known:
        return None
    return min(interval[0] for interval in known), max(interval[1] for interval in known)


def _clipped(source: Interval | None, call: Any) -> Interval | None:
    """The interval of integers clipped to constant bounds; None for floating-point numbers, where NaN stays NaN."""
    dtype = str(call.ty.dtype)
    if not dtype.startswith(("int", "uint")):
        return None
    bounds = [float(argument.value) for argument in call.args[1:] if hasattr(argument, "value")]
    if len(bounds) < 2:
        return None
    least, most = source or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    low, high = max(bounds[0], least), min(bounds[1], most)
    if low > high:
        return None
    return math.floor(low), math.ceil(high)


def _summed(source: Interval | None, call: Any) -> Interval | None:
    """The interval of `relax.sum` or `relax.cumsum`: a sum of at least one element and at most all along the axes."""
    if source is None:
        return None
    shape = call.args[0].ty.shape.values
    if str(call.op.name) == "relax.cumsum":
        count = _size(call.args[0], call.attrs.axis)
        if bool(call.attrs.exclusive):
            source = min(source[0], 0), max(source[1], 0)
    else:
        axes = range(len(shape)) if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]
        count = math.prod(int(shape[axis]) for axis in axes)
    return min(source[0], source[0] * count), max(source[1], source[1] * count)


def _remainder(name: str, source: Interval | None, divisor: Interval | None) -> Interval | None:
    """The interval of a remainder; None unless the divisor is always positive."""
    if divisor is None or divisor[0] < 1:
        return None
    if name == "relax.floor_mod" or (source is not None and source[0] >= 0):
        return 0, divisor[1] - 1
    return 1 - divisor[1], divisor[1] - 1


def _size(expression: Any, axis: Any) -> int:
    """The extent along an axis; the number of all elements where `axis` is None."""
    sizes = [int(size) for size in expression.ty.shape.values]
    return math.prod(sizes) if axis is None else sizes[int(axis)]
