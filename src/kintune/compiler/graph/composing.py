"""Composes two linear maps of channels to one, where that takes fewer multiplications.

A product with constant weights, or a 1x1 convolution, maps the channels of each token or pixel.  Two of them with only
reshapes, transposes and a bias between are equal to one map, whose weights are the product of their weights.  It takes
fewer multiplications if the tensor between them has more channels than those before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.pointwise import CHANNELS, is_pointwise, pointwise
from kintune.compiler.graph.rewriting import (
    Bindings,
    Rewriter,
    along,
    axis_before,
    emit_as,
    operator_of,
    pass_of,
    static_shape,
    value_of,
)

__all__ = ["ComposeLinearMaps"]

_TYPE = "float32"
_LARGEST_SHARE = 0.75
"""Two maps are composed if the result takes at most this share of their multiplications."""


class _LinearMap(NamedTuple):
    """A map of channels: its operand, the weights (inputs, outputs), and the axis of the channels of its result."""

    data: relax.Expr
    weights: NDArray[Any]
    axis: int


class _Move(NamedTuple):
    """A transpose or reshape between two maps, and the axis of the channels of its result."""

    variable: relax.Var
    call: relax.Call
    axis: int


class _Pair(NamedTuple):
    """Two maps that can be composed; only the second one reads the first.

    `product` is the call of the first map, `variable` the one it is bound to.  `offset` (channels), of float64, is
    added to its result.
    """

    first: _LinearMap
    variable: relax.Var
    product: relax.Call
    moves: tuple[_Move, ...]
    offset: NDArray[Any] | None
    second: _LinearMap


class _ComposeLinearMaps(Rewriter):
    """A pass that replaces two linear maps by one."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        pair = _pair(binding.value, self._bindings)
        if pair is not None and (composed := self._composed(pair)) is not None:
            binding = relax.VarBinding(binding.var, composed)
        super().visit_var_binding_(binding)

    def _composed(self, pair: _Pair) -> relax.Expr | None:
        """The composed map, followed by the moves and the offset; None where a number would not be finite."""
        second = pair.second.weights.astype(np.float64)
        with np.errstate(all="ignore"):
            weights = (pair.first.weights.astype(np.float64) @ second).astype(_TYPE)
            offset = None if pair.offset is None else (pair.offset @ second).astype(_TYPE)
        if not np.isfinite(weights).all() or (offset is not None and not np.isfinite(offset).all()):
            return None
        made: relax.Expr = _mapped(pair.product, self.visit_expr(pair.first.data), weights)
        name = pair.variable
        for move in pair.moves:
            data = emit_as(self.builder_, name, made)
            made, name = _moved(move, data, weights.shape[1]), move.variable
        if offset is not None:
            data = emit_as(self.builder_, name, made)
            shaped = along(offset, pair.second.axis, int(data.ty.ndim))
            made = relax.op.add(data, relax.const(shaped, _TYPE))
        return made


ComposeLinearMaps = partial(pass_of, _ComposeLinearMaps)


def _pair(value: Any, bindings: Bindings) -> _Pair | None:
    second = _linear(value)
    if second is None:
        return None
    mid, outputs = second.weights.shape
    data, axis, offset = second.data, second.axis, None
    moves: list[_Move] = []
    while bindings.is_inner(data):
        call = bindings.value(data)
        if (first := _linear(call)) is not None:
            inputs = len(first.weights)
            pays = inputs * outputs <= _LARGEST_SHARE * mid * (inputs + outputs)
            same = first.axis == axis and first.weights.shape[1] == mid
            return _Pair(first, data, call, tuple(reversed(moves)), offset, second) if pays and same else None
        if (before := axis_before(call, axis)) is not None:
            moves.append(_Move(data, call, axis))
            data, axis = call.args[0], before
        elif (added := _added(call, axis)) is not None:
            data = added[0]
            offset = added[1] if offset is None else offset + added[1]
        else:
            return None
    return None


def _linear(value: Any) -> _LinearMap | None:
    """A product with constant weights, or a 1x1 convolution, as a map of channels; None for anything else."""
    if is_pointwise(value):
        return _LinearMap(value.args[0], value_of(value.args[1])[:, :, 0, 0].T, CHANNELS)
    if operator_of(value) != "relax.matmul":
        return None
    data, weight = value.args
    shape, result = static_shape(data), static_shape(value)
    if not isinstance(weight, tvm.ir.GenericConst) or shape is None or result is None or len(shape) < 2:
        return None
    if int(weight.ty.ndim) != 2 or {str(each.ty.dtype) for each in (data, weight, value)} != {_TYPE}:
        return None
    return _LinearMap(data, value_of(weight), len(shape) - 1)


def _added(call: Any, axis: int) -> tuple[relax.Expr, NDArray[Any]] | None:
    """The operand to which a constant is added by channel, and the constant in float64; None for anything else."""
    if operator_of(call) != "relax.add":
        return None
    first, second = call.args
    data, constant = (second, first) if isinstance(first, tvm.ir.GenericConst) else (first, second)
    shape = static_shape(data)
    if not isinstance(constant, tvm.ir.GenericConst) or shape is None or shape != static_shape(call):
        return None
    numbers = value_of(constant).astype(np.float64)
    numbers = numbers.reshape((1,) * (len(shape) - numbers.ndim) + numbers.shape)
    if numbers.size not in (1, numbers.shape[axis]):
        return None
    return data, np.broadcast_to(numbers.reshape(-1), (shape[axis],))


def _mapped(product: relax.Call, data: relax.Expr, weights: NDArray[Any]) -> relax.Call:
    """The operator of a map applied to `data` with other weights (inputs, outputs)."""
    if operator_of(product) == "relax.matmul":
        return relax.op.matmul(data, relax.const(np.ascontiguousarray(weights)))
    return pointwise(data, weights.T[:, :, None, None])


def _moved(move: _Move, data: relax.Expr, channels: int) -> relax.Expr:
    """A transpose or reshape applied to `data`, which has another number of channels."""
    if operator_of(move.call) == "relax.permute_dims":
        return relax.op.permute_dims(data, move.call.attrs.axes)
    shape: Sequence[int] = static_shape(move.call) or ()
    return relax.op.reshape(data, [channels if at == move.axis else extent for at, extent in enumerate(shape)])
