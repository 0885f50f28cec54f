"""Maxima and minima that keep what is not a number, as other runtimes do.

On the machines there are, `max(a, b)` of two floating-point numbers is one instruction that gives `b` when either is
not a number.  So a bound that is a constant comes first, which costs nothing; of two operands that are both computed,
the first is looked at too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops import binary, statistical

__all__ = ["keep_nan"]

_LEVEL = 100  # above the compiler's own rules
_RULE = "FLegalize"


@cache
def keep_nan() -> None:
    """From now on, this process legalises maxima, minima, clips and ReLUs so that they keep NaN."""
    for name, rule in (
        ("relax.maximum", _pairwise(topi.maximum, tirx.max)),
        ("relax.minimum", _pairwise(topi.minimum, tirx.min)),
        ("relax.nn.relu", _relu),
        ("relax.clip", _clip),
        ("relax.max", _over_axes(topi.max, tirx.max, -math.inf)),
        ("relax.min", _over_axes(topi.min, tirx.min, math.inf)),
    ):
        tvm.ir.register_op_attr(name, _RULE, rule, level=_LEVEL)


def _pairwise(function: Any, element: Callable[[Any, Any], Any]) -> Callable[..., relax.Expr]:
    usual = binary._binary(function)

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        left, right = call.args
        if not _is_float(call) or _is_number(left):
            return usual(builder, call)
        if _is_number(right):
            return usual(builder, relax.Call(call.op, [right, left], call.attrs, call.ty_args))
        name = function.__name__

        def both(a: Any, b: Any) -> Any:
            return _broadcast(a, b, element, name)

        return builder.call_te(both, left, right, primfunc_name_hint=name)

    return legalise


def _broadcast(a: te.Tensor, b: te.Tensor, element: Callable[[Any, Any], Any], name: str) -> te.Tensor:
    """The element-wise result; the first operand is returned where it is not a number."""
    shape = np.broadcast_shapes(tuple(map(int, a.shape)), tuple(map(int, b.shape)))

    def at(tensor: te.Tensor, indices: Any) -> Any:
        own = indices[len(shape) - len(tensor.shape) :]
        return tensor(*(0 if int(size) == 1 else index for size, index in zip(tensor.shape, own, strict=True)))

    def compute(*indices: Any) -> Any:
        x, y = at(a, indices), at(b, indices)
        return tirx.Select(tirx.isnan(x), x, element(x, y))

    return te.compute(shape, compute, name=f"T_{name}", tag=topi.tag.BROADCAST)


def _over_axes(
    function: Any, element: Callable[[Any, Any], Any], identity: float
) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    """An extreme over axes: infinite where all is infinite, and NaN where anything is."""
    usual = statistical._statistical(function)

    def combine(found: Any, value: Any) -> Any:
        return tirx.Select(tirx.isnan(found), found, element(found, value))

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if not _is_float(call):
            return usual(builder, call)
        rank = int(call.args[0].ty.ndim)
        axes = call.attrs.axis
        reduced = range(rank) if axes is None else sorted(int(axis) % rank for axis in axes)
        name = function.__name__

        def over(x: te.Tensor) -> te.Tensor:
            along = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in reduced}
            kept = [axis for axis in range(rank) if axis not in along]
            shape = [x.shape[axis] for axis in kept]
            if call.attrs.keepdims:
                shape = [1 if axis in along else x.shape[axis] for axis in range(rank)]
            reduce = te.comm_reducer(combine, lambda dtype: tirx.const(identity, dtype), name=name)

            def compute(*indices: Any) -> Any:
                outer = iter(indices if not call.attrs.keepdims else [indices[axis] for axis in kept])
                at = [along[axis] if axis in along else next(outer) for axis in range(rank)]
                return reduce(x(*at), axis=list(along.values()))

            return te.compute(shape, compute, name=f"{name}_red", tag=topi.tag.COMM_REDUCE)

        return builder.call_te(over, *call.args, primfunc_name_hint=name)

    return legalise


def _relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def relu(x: te.Tensor) -> te.Tensor:
        zero = tirx.const(0, x.dtype)
        return te.compute(x.shape, lambda *i: tirx.max(zero, x(*i)), name="compute", tag=topi.tag.ELEMWISE)

    return builder.call_te(relu, *call.args, primfunc_name_hint="relu")


def _clip(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def clip(x: te.Tensor, low: Any, high: Any) -> te.Tensor:
        least, most = (
            tirx.const(float(bound.value) if _is_float(call) else int(bound.value), x.dtype) for bound in (low, high)
        )
        return te.compute(
            x.shape, lambda *i: tirx.max(least, tirx.min(most, x(*i))), name="compute", tag=topi.tag.ELEMWISE
        )

    return builder.call_te(clip, *call.args, primfunc_name_hint="tir_clip")


def _is_float(call: relax.Call) -> bool:
    return str(call.ty.dtype).startswith(("float", "bfloat"))


def _is_number(expression: relax.Expr) -> bool:
    """Whether an operand is a constant without NaN."""
    return (
        isinstance(expression, tvm.ir.GenericConst) and not np.isnan(expression.value.numpy().astype(np.float64)).any()
    )
