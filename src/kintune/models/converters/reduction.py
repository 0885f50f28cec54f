"""Reductions over axes, running sums and products, positions of extremes, and the k greatest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from kintune.models.converters.node import Node, axis_of
from kintune.models.converters.registration import Convert, OnnxOperator
from kintune.models.emitter import Emitter
from kintune.models.expressions import HALVES, REPLACE_NAN, along_axis, dtype_of, is_float, shape_of
from kintune.models.formulas import Real, choose

__all__ = ["OPERATORS", "greatest", "index_of_extreme"]

_SORTED_AS = {
    **dict.fromkeys(("bool", "int8", "int16", "uint8", "uint16"), "int32"),
    **dict.fromkeys(HALVES, "float32"),
    "uint32": "int64",
}
"""Element types that the compiler does not sort -> those that hold the same values."""


def _axes(node: Node, rank: int) -> list[int]:
    """The axes to reduce; empty where the node reduces nothing."""
    given = node.given_integers("axes", 1)
    if given:
        return sorted({axis_of(axis, rank) for axis in given})
    return [] if node.attributes.get("noop_with_empty_axes", 0) else list(range(rank))


def _reduction(
    formula: Callable[..., Real],
    dtypes: Callable[[str], str],
    alone: Callable[[Real], Real] = lambda x: x,
) -> Convert:
    """A converter of a reduction; it is computed in the type that `dtypes` maps the operand's to, and cast back.

    `formula` takes the operand and the arguments of a reduction by Relax.  `alone` applies where no axis is reduced.
    """

    def convert(node: Node) -> relax.Expr:
        data = node.required(0)
        axes, own = _axes(node, len(shape_of(data))), dtype_of(data)
        x = Real(node, node.cast(data, dtypes(own)))
        found = formula(x, axis=axes, keepdims=bool(node.attributes.get("keepdims", 1))) if axes else alone(x)
        return node.cast(found.value, own)

    return convert


def _summing_type(dtype: str) -> str:
    return "float32" if dtype in HALVES else dtype


def _real_type(dtype: str) -> str:
    if dtype in HALVES:
        return "float32"
    return dtype if is_float(dtype) else "float64"


def _ordered_type(dtype: str) -> str:
    return "uint8" if dtype == "bool" else dtype


def _mean(x: Real, axis: Sequence[int], keepdims: bool) -> Real:
    if is_float(x.dtype):
        return x.mean(axis=axis, keepdims=keepdims)
    return x.sum(axis=axis, keepdims=keepdims) / math.prod(shape_of(x.value)[each] for each in axis)


def _log_of_sum_of_exponentials(x: Real, axis: Sequence[int], keepdims: bool) -> Real:
    """Log-sum-exp with the greatest element subtracted, so that no exponential overflows; not if it is infinite."""
    greatest = x.max(axis=axis, keepdims=True)
    offset = choose(greatest.isfinite(), greatest, 0)
    found = (x - offset).exp().sum(axis=axis, keepdims=True).log() + offset
    return found if keepdims else found.squeeze(axis=axis)


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
    kept, x = {"axis": [axis], "keepdims": True}, Real(node, numbers)
    extreme = x.max(**kept) if largest else x.min(**kept)
    place = Real(node, node.const(along_axis(np.arange(1, shape[axis] + 1), axis, len(shape)), "int64"))
    reached = Real(node, data).equal(extreme)  # nowhere if the first is NaN
    return (choose(reached, place, 0).max(axis=[axis], keepdims=keep) - 1).maximum(0).value


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


_AXES = {1: "axes"}

OPERATORS = (
    OnnxOperator("ArgMax", _index_of_extreme(largest=True)),
    OnnxOperator("ArgMin", _index_of_extreme(largest=False)),
    OnnxOperator("CumProd", _running(relax.op.cumprod), constants={1: "axis"}),
    OnnxOperator("CumSum", _running(relax.op.cumsum), constants={1: "axis"}),
    OnnxOperator("ReduceL1", _reduction(lambda x, **over: abs(x).sum(**over), _summing_type, abs), constants=_AXES),
    OnnxOperator(
        "ReduceL2", _reduction(lambda x, **over: (x * x).sum(**over).sqrt(), _real_type, abs), constants=_AXES
    ),
    OnnxOperator(
        "ReduceLogSum",
        _reduction(lambda x, **over: x.sum(**over).log(), _real_type, lambda x: x.log()),
        constants=_AXES,
    ),
    OnnxOperator("ReduceLogSumExp", _reduction(_log_of_sum_of_exponentials, _real_type), constants=_AXES),
    OnnxOperator("ReduceMax", _reduction(lambda x, **over: x.max(**over), _ordered_type), constants=_AXES),
    OnnxOperator("ReduceMean", _reduction(_mean, _summing_type), constants=_AXES),
    OnnxOperator("ReduceMin", _reduction(lambda x, **over: x.min(**over), _ordered_type), constants=_AXES),
    OnnxOperator("ReduceProd", _reduction(lambda x, **over: x.prod(**over), _summing_type), constants=_AXES),
    OnnxOperator("ReduceSum", _reduction(lambda x, **over: x.sum(**over), _summing_type), constants=_AXES),
    OnnxOperator(
        "ReduceSumSquare",
        _reduction(lambda x, **over: (x * x).sum(**over), _summing_type, lambda x: x * x),
        constants=_AXES,
    ),
    OnnxOperator("TopK", _top, constants={1: "k"}),
)
