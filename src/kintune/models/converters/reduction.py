"""Reductions over axes, running sums and products, positions of extremes, and the k greatest."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from kintune.models.converters.node import Node, axis_of
from kintune.models.converters.registration import Convert, OnnxOperator
from kintune.models.emitter import Emitter
from kintune.models.expressions import HALVES, REPLACE_NAN, along_axis, dtype_of, is_float, shape_of

__all__ = ["OPERATORS", "greatest", "index_of_extreme"]

_SORTED_AS = {
    **dict.fromkeys(("bool", "int8", "int16", "uint8", "uint16"), "int32"),
    **dict.fromkeys(HALVES, "float32"),
    "uint32": "int64",
}
"""Element types that the compiler does not sort -> those that hold the same values."""

Reduce = Callable[[Any, Sequence[int], bool], Any]
"""A reduction of a tensor over axes, which are kept with one element or removed."""


def _axes(node: Node, rank: int) -> list[int]:
    """The axes to reduce; empty where the node reduces nothing."""
    given = node.given_integers("axes", 1)
    if given:
        return sorted({axis_of(axis, rank) for axis in given})
    return [] if node.attributes.get("noop_with_empty_axes", 0) else list(range(rank))


def _reduction(
    reduce: Callable[[Node, Any, Sequence[int], bool], Any], element: Callable[[Node, Any], Any] | None = None
) -> Convert:
    """A converter of a reduction; `element` is applied where no axis is reduced (default: the operand is returned)."""

    def convert(node: Node) -> relax.Expr:
        data = node.required(0)
        axes = _axes(node, len(shape_of(data)))
        if not axes:
            return data if element is None else element(node, data)
        return reduce(node, data, axes, bool(node.attributes.get("keepdims", 1)))

    return convert


def _in(dtypes: Callable[[str], str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the reduction is computed in the type that `dtypes` maps the operand's to, and cast back."""

    def decorate(reduce: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(reduce)
        def wrapped(node: Node, data: Any, *rest: Any) -> Any:
            own = dtype_of(data)
            other = dtypes(own)
            if other == own:
                return reduce(node, data, *rest)
            return relax.op.astype(node.emit(reduce(node, node.emit(relax.op.astype(data, other)), *rest)), own)

        return wrapped

    return decorate


def _summing_type(dtype: str) -> str:
    return "float32" if dtype in HALVES else dtype


def _real_type(dtype: str) -> str:
    if dtype in HALVES:
        return "float32"
    return dtype if is_float(dtype) else "float64"


def _ordered_type(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


def _plain(operator: Callable[..., Any], dtypes: Callable[[str], str]) -> Callable[..., Any]:
    @_in(dtypes)
    def reduce(_node: Node, data: Any, axes: Sequence[int], keep: bool) -> Any:
        return operator(data, list(axes), keep)

    return reduce


_sum = _plain(relax.op.sum, _summing_type)
_product = _plain(relax.op.prod, _summing_type)
_maximum = _plain(relax.op.max, _ordered_type)
_minimum = _plain(relax.op.min, _ordered_type)


@_in(_summing_type)
def _mean(node: Node, data: Any, axes: Sequence[int], keep: bool) -> Any:
    if is_float(dtype_of(data)):
        return relax.op.mean(data, list(axes), keep)
    total = node.emit(relax.op.sum(data, list(axes), keep))
    count = int(np.prod([shape_of(data)[axis] for axis in axes]))
    return relax.op.divide(total, relax.const(count, dtype_of(data)))


@_in(_summing_type)
def _absolute_sum(node: Node, data: Any, axes: Sequence[int], keep: bool) -> Any:
    return relax.op.sum(node.emit(relax.op.abs(data)), list(axes), keep)


@_in(_summing_type)
def _sum_of_squares(node: Node, data: Any, axes: Sequence[int], keep: bool) -> Any:
    return relax.op.sum(node.emit(relax.op.multiply(data, data)), list(axes), keep)


@_in(_real_type)
def _norm(node: Node, data: Any, axes: Sequence[int], keep: bool) -> Any:
    return relax.op.sqrt(node.emit(_sum_of_squares(node, data, axes, keep)))


@_in(_real_type)
def _log_of_sum(node: Node, data: Any, axes: Sequence[int], keep: bool) -> Any:
    return relax.op.log(node.emit(relax.op.sum(data, list(axes), keep)))


@_in(_real_type)
def _log_of_sum_of_exponentials(node: Node, data: Any, axes: Sequence[int], keep: bool) -> Any:
    """Log-sum-exp with the greatest element subtracted, so that no exponential overflows; not if it is infinite."""
    dtype = dtype_of(data)
    greatest = node.emit(relax.op.max(data, list(axes), True))
    offset = node.emit(relax.op.where(relax.op.isfinite(greatest), greatest, relax.const(0, dtype)))
    total = node.emit(relax.op.sum(relax.op.exp(relax.op.subtract(data, offset)), list(axes), True))
    result = node.emit(relax.op.add(relax.op.log(total), offset))
    return result if keep else relax.op.squeeze(result, list(axes))


@_in(_real_type)
def _log(_node: Node, data: Any) -> Any:
    return relax.op.log(data)


def _without_later_nan(node: Node, data: Any, axis: int, value: float) -> Any:
    """A call, not bound yet, that replaces NaN by `value`, but for the first element along `axis`."""

    def replaced(x: te.Tensor) -> te.Tensor:
        def compute(*at: Any) -> Any:
            own = x(*at)
            of_nan = tirx.Select(at[axis] > 0, tirx.const(value, x.dtype), own)
            return tirx.Select(tirx.isnan(own), of_nan, own)

        return te.compute(x.shape, compute, name="replaced", tag=topi.tag.ELEMWISE)

    return node.builder.call_te(replaced, data, primfunc_name_hint=REPLACE_NAN)


def index_of_extreme(
    node: Node, data: Any, axis: int, *, largest: bool = True, last: bool = False, keep: bool = True
) -> Any:
    """The index (int64) of the greatest or least element along `axis`: the first of equal ones, or the `last`.

    NaN is treated as onnxruntime does: as the extreme if it is the first element, and else as if it were not there.

    Raises:
        ValueError: when there are no elements along the axis.
    """
    shape, data = shape_of(data), node.wide(data)
    if not shape[axis]:
        raise ValueError(f"dimension {axis} has no elements")
    numbers = data
    if is_float(dtype_of(data)):
        numbers = node.emit(_without_later_nan(node, data, axis, -math.inf if largest else math.inf))
    if not last:
        return (relax.op.argmax if largest else relax.op.argmin)(numbers, axis, keep)
    extreme = node.emit((relax.op.max if largest else relax.op.min)(numbers, [axis], True))
    place = relax.const(along_axis(np.arange(1, shape[axis] + 1), axis, len(shape)), "int64")
    reached = node.emit(relax.op.equal(data, extreme))  # nowhere if the first is NaN
    marked = node.emit(relax.op.where(reached, place, relax.const(0, "int64")))
    found = node.emit(relax.op.max(marked, [axis], keep))
    return relax.op.maximum(node.emit(relax.op.subtract(found, relax.const(1, "int64"))), relax.const(0, "int64"))


def _index_of_extreme(largest: bool) -> Convert:
    def convert(node: Node) -> relax.Expr:
        data = node.required(0)
        axis = axis_of(int(node.attributes.get("axis", 0)), len(shape_of(data)))
        last, keep = (bool(node.attributes.get(*each)) for each in (("select_last_index", 0), ("keepdims", 1)))
        return index_of_extreme(node, data, axis, largest=largest, last=last, keep=keep)

    return convert


def _running(operator: Callable[..., Any]) -> Convert:
    """A converter of a running sum or product: `reverse` starts at the end, `exclusive` leaves out the own element."""

    def convert(node: Node) -> relax.Expr:
        data = node.required(0)
        given = node.constant(1)
        axis = axis_of(int(np.reshape(given if given is not None else 0, -1)[0]), len(shape_of(data)))
        dtype = dtype_of(data)
        wide = _summing_type(dtype)
        data = node.cast(data, wide)
        backwards = bool(node.attributes.get("reverse", 0))
        data = node.emit(relax.op.flip(data, axis)) if backwards else data
        result = node.emit(operator(data, axis, wide, bool(node.attributes.get("exclusive", 0))))
        result = node.emit(relax.op.flip(result, axis)) if backwards else result
        return result if wide == dtype else relax.op.astype(result, dtype)

    return convert


def _top(node: Node) -> relax.Expr:
    """The k greatest (or least) elements along an axis, sorted, and their indices."""
    data = node.required(0)
    given = node.given_integers("k", 1)
    shape = shape_of(data)
    axis = axis_of(int(node.attributes.get("axis", -1)), len(shape))
    count = 1 if given is None else given[0]
    if not 0 <= count <= shape[axis]:
        raise ValueError(f"k is {count}, but dimension {axis} has {shape[axis]} elements")
    if count == 0:
        empty = [0 if i == axis else size for i, size in enumerate(shape)]
        return relax.Tuple([relax.op.zeros(empty, dtype_of(data)), relax.op.zeros(empty, "int64")])
    if dtype_of(data) == "uint64":
        raise ValueError("elements of uint64 cannot be sorted")
    return relax.Tuple([*greatest(node, data, count, axis, largest=bool(node.attributes.get("largest", 1)))])


def greatest(t: Emitter, data: Any, count: int, axis: int, *, largest: bool = True) -> tuple[Any, Any]:
    """The greatest (or least) elements along an axis, sorted, and their indices."""
    own = dtype_of(data)
    sortable = t.cast(data, _SORTED_AS.get(own, own))
    both = t.emit(relax.op.topk(sortable, count, axis, ret_type="both", largest=largest, dtype="int64"))
    return t.cast(t.emit(both[0]), own), t.emit(both[1])


OPERATORS = (
    OnnxOperator("ArgMax", _index_of_extreme(largest=True)),
    OnnxOperator("ArgMin", _index_of_extreme(largest=False)),
    OnnxOperator("CumProd", _running(relax.op.cumprod), constants={1: "axis"}),
    OnnxOperator("CumSum", _running(relax.op.cumsum), constants={1: "axis"}),
    OnnxOperator("ReduceL1", _reduction(_absolute_sum, lambda _, data: relax.op.abs(data)), constants={1: "axes"}),
    OnnxOperator("ReduceL2", _reduction(_norm, lambda _, data: relax.op.abs(data)), constants={1: "axes"}),
    OnnxOperator("ReduceLogSum", _reduction(_log_of_sum, _log), constants={1: "axes"}),
    OnnxOperator("ReduceLogSumExp", _reduction(_log_of_sum_of_exponentials), constants={1: "axes"}),
    OnnxOperator("ReduceMax", _reduction(_maximum), constants={1: "axes"}),
    OnnxOperator("ReduceMean", _reduction(_mean), constants={1: "axes"}),
    OnnxOperator("ReduceMin", _reduction(_minimum), constants={1: "axes"}),
    OnnxOperator("ReduceProd", _reduction(_product), constants={1: "axes"}),
    OnnxOperator("ReduceSum", _reduction(_sum), constants={1: "axes"}),
    OnnxOperator(
        "ReduceSumSquare",
        _reduction(_sum_of_squares, lambda _, data: relax.op.multiply(data, data)),
        constants={1: "axes"},
    ),
    OnnxOperator("TopK", _top, constants={1: "k"}),
)
