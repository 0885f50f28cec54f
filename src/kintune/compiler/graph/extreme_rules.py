"""Lowering rules for the greatest and the least element along axes or in windows, and for its index.

TVM's own rules start from a neutral element, which shows where no element beats it: -1 is the index in a row that holds
only the least value of its type, and floats start from the least finite number.  Here the value is searched first, by a
maximum or minimum, and then the first index with that value, by a minimum over indices.  So the result is the index of
an element, whatever the row holds.

NaN is the extreme of every row or window that has one, as in numpy and PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

from kintune.compiler.graph.rewriting import CALL_KERNEL, operator_of
from kintune.compiler.tir import PATTERN, Fusion
from kintune.models.expressions import is_float

__all__ = ["EXTREMES", "is_nan"]

Element = Callable[[Any, Any], Any]
Legalise = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def is_nan(value: Any) -> Any:
    """A test for NaN; the compiler knows none of bfloat16."""
    return tirx.isnan(tirx.Cast("float32", value) if str(value.ty) == "bfloat16" else value)


def _of_values(element: Element, neutral: Callable[[str], Any]) -> Legalise:
    """A rule for the extreme over axes."""

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axes, keep = _axes_of(call), bool(call.attrs.keepdims)
        name = operator_of(call).removeprefix("relax.")

        def extreme(x: te.Tensor) -> te.Tensor:
            return _reduced(x, axes, keep, lambda at: x(*at), _extreme(element, neutral, x.dtype), f"{name}_red")

        return builder.call_te(extreme, call.args[0], primfunc_name_hint=name)

    return legalise


def _of_places(element: Element, neutral: Callable[[str], Any]) -> Legalise:
    """A rule for the index of the first extreme along an axis, or among all elements."""

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axes, keep = _axes_of(call), bool(call.attrs.keepdims)
        name = operator_of(call).removeprefix("relax.")

        def place(x: te.Tensor) -> te.Tensor:
            kept = [axis for axis in range(len(x.shape)) if axis not in axes]
            last = math.prod(int(x.shape[axis]) for axis in axes) - 1
            kind = "int32" if last < 2**31 else "int64"
            best = _reduced(x, axes, False, lambda at: x(*at), _extreme(element, neutral, x.dtype), f"{name}_value")

            def number_if_best(at: Sequence[Any]) -> Any:
                number: Any = tirx.const(0, kind)
                for axis in axes:
                    number = number * tirx.const(int(x.shape[axis]), kind) + at[axis].astype(kind)
                own = x(*at)
                chosen = tirx.Select(own == best(*(at[axis] for axis in kept)), number, tirx.const(last, kind))
                return tirx.Select(is_nan(own), number, chosen) if is_float(str(x.dtype)) else chosen

            first = _reduced(x, axes, False, number_if_best, te.min, f"{name}_first")

            def compute(*at: Any) -> Any:
                return first(*([at[axis] for axis in kept] if keep else at)).astype("int64")

            shape = [1 if axis in axes else x.shape[axis] for axis in range(len(x.shape)) if keep or axis not in axes]
            return te.compute(shape, compute, name=name)

        return builder.call_te(place, call.args[0], primfunc_name_hint=name, primfunc_attrs={PATTERN: Fusion.REDUCTION})

    return legalise


def _of_windows(name: str) -> Legalise:
    """A rule for the greatest element of windows: TVM's own, which starts from -inf and keeps NaN."""
    usual = tvm.ir.Op.get(name).get_attr("FLegalize")

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        made = usual(builder, call)
        if operator_of(made) == CALL_KERNEL and is_float(str(call.ty.dtype)):
            builder.update_func(made.args[0], _started_from_infinity(builder.get()[made.args[0]]))
        return made

    return legalise


def _started_from_infinity(function: tirx.PrimFunc) -> tirx.PrimFunc:
    def number(found: Any, _mutator: Any) -> Any:
        lowest = float(found.value) == float(tirx.min_value(str(found.ty)).value)
        return tirx.const(-math.inf, str(found.ty)) if lowest else found

    def greater(found: Any, mutator: Any) -> Any:
        kept = mutator.default_mutate(found)
        return tirx.Select(is_nan(kept.a), kept.a, kept)

    body = tvm_ffi.structural_mutate(function.body, [(tirx.FloatImm, number), (tirx.Max, greater)])
    return function.with_body(body)


def _axes_of(call: relax.Call) -> list[int]:
    """The axes that are reduced; one, several or (None) all are given."""
    rank, given = int(call.args[0].ty.ndim), call.attrs.axis
    if given is None:
        return list(range(rank))
    return sorted({int(axis) % rank for axis in (given if hasattr(given, "__len__") else [given])})


def _extreme(element: Element, neutral: Callable[[str], Any], dtype: Any) -> Callable[..., Any]:
    def combine(found: Any, value: Any) -> Any:
        more = element(found, value)
        return tirx.Select(is_nan(found), found, more) if is_float(str(dtype)) else more

    return te.comm_reducer(combine, neutral, name="extreme")  # type: ignore[no-any-return]


def _reduced(
    x: te.Tensor,
    axes: Sequence[int],
    keep: bool,
    value: Callable[[Sequence[Any]], Any],
    reduce: Callable[..., Any],
    name: str,
) -> te.Tensor:
    """`reduce` over `axes` of the `value` at the indices of each element of `x`."""
    rank = len(x.shape)
    along = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in axes}
    kept = [axis for axis in range(rank) if axis not in along]
    shape = [1 if axis in along else x.shape[axis] for axis in range(rank) if keep or axis not in along]

    def compute(*indices: Any) -> Any:
        outer = iter([indices[axis] for axis in kept] if keep else indices)
        at = [along[axis] if axis in along else next(outer) for axis in range(rank)]
        return reduce(value(at), axis=list(along.values()))

    return te.compute(shape, compute, name=name, tag=topi.tag.COMM_REDUCE)


def _least(dtype: str) -> Any:
    return tirx.const(-math.inf, dtype) if is_float(dtype) else tirx.min_value(dtype)


def _greatest(dtype: str) -> Any:
    return tirx.const(math.inf, dtype) if is_float(dtype) else tirx.max_value(dtype)


EXTREMES: dict[str, Legalise] = {
    "relax.max": _of_values(tirx.max, _least),
    "relax.min": _of_values(tirx.min, _greatest),
    "relax.argmax": _of_places(tirx.max, _least),
    "relax.argmin": _of_places(tirx.min, _greatest),
    **{name: _of_windows(name) for name in (f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3))},
}
"""Operator of Relax -> its rule."""
