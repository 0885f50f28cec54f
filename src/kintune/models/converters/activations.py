"""Activation functions and softmax; half precision is computed in float32 where accuracy would be lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters.node import Node
from kintune.models.converters.reduction import index_of_extreme
from kintune.models.converters.registration import MICROSOFT, Convert, OnnxOperator
from kintune.models.expressions import along_axis, dtype_of, shape_of
from kintune.models.formulas import Real, choose, gelu, log1p, parametric_relu

__all__ = ["OPERATORS", "softmax"]

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _number(node: Node, name: str, default: float) -> float:
    return float(node.attributes.get(name, default))


def _widened(formula: Callable[[Node, Real], Real]) -> Convert:
    """A converter of an activation that is computed in float32 where the operand is of half precision."""
    return lambda node: node.cast(
        formula(node, Real(node, node.wide(node.required(0)))).value, dtype_of(node.required(0))
    )


def _plain(formula: Callable[[Node, Real], Real]) -> Convert:
    return lambda node: formula(node, Real(node, node.required(0))).value


def _relu(_node: Node, x: Real) -> Real:
    return x.relu() if x.dtype.startswith("float") else x.maximum(0)


def _exponential(x: Real, alpha: float, width: float = 1.0) -> Real:
    """`alpha * (exp(x / width) - 1)` where `x` is negative, else `x`."""
    return choose(x < 0, ((x / width).exp() - 1) * alpha, x)


def _celu(node: Node, x: Real) -> Real:
    alpha = _number(node, "alpha", 1)
    return _exponential(x, alpha, alpha)


def _selu(node: Node, x: Real) -> Real:
    return _exponential(x, _number(node, "alpha", _SELU_ALPHA)) * _number(node, "gamma", _SELU_GAMMA)


def _between_zero_and_one(x: Real, alpha: float, beta: float) -> Real:
    """`alpha * x + beta`, bounded by 0 and 1."""
    return (x * alpha + beta).maximum(0).minimum(1)


_SIXTH = float(np.float32(1 / 6))
"""The `alpha` of the HardSigmoid that defines HardSwish, an attribute of 32 bits also for float64."""


def _softplus(_node: Node, x: Real) -> Real:
    """`log(1 + exp(x))`, written so that the exponential does not overflow."""
    return x.relu() + log1p((-abs(x)).exp())


def _mish(_node: Node, x: Real) -> Real:
    """`x * tanh(softplus(x))`: the tangent is `s / (s + 2)`, where `s` is `e * (e + 2)` and `e` is `exp(x)`.

    Where the exponential may overflow, both parts of the fraction are divided by its square.
    """
    power, above = (-abs(x)).exp(), x > 0
    square = power * power
    upper = power * 2 + choose(above, 1, square)
    return x * (upper / (upper + choose(above, square * 2, square.constant(2))))


def _gelu(node: Node, x: Real) -> Real:
    return gelu(x, node.attributes.get("approximate", "none"))


def _shrink(node: Node, x: Real) -> Real:
    lambd, bias = _number(node, "lambd", 0.5), _number(node, "bias", 0)
    wide = x if x.dtype.startswith("float") else Real(node, node.cast(x.value, "float64"))
    found = choose(wide < -lambd, wide + bias, choose(wide > lambd, wide - bias, 0))
    return Real(node, node.cast(found.value, x.dtype))


def _normalised(operator: Callable[..., Any]) -> Convert:
    """A converter of softmax and similar functions; before operator set 13, they are over all axes from `axis` on."""

    def convert(node: Node) -> relax.Expr:
        data = node.required(0)
        shape = shape_of(data)
        axis = int(node.attributes.get("axis", -1 if node.opset >= 13 else 1))
        if not -len(shape) <= axis <= len(shape) - (node.opset >= 13 and len(shape) > 0):
            raise ValueError(f"axis {axis} is out of range for a tensor of {len(shape)} dimensions")
        axis = axis + len(shape) if axis < 0 else axis
        if node.opset >= 13 or axis == len(shape) - 1:
            return operator(node, data, axis)
        flat = node.emit(relax.op.reshape(data, [math.prod(shape[:axis]), math.prod(shape[axis:])]))
        return relax.op.reshape(node.emit(operator(node, flat, 1)), list(shape))

    return convert


def _wide(operator: Callable[..., Any]) -> Callable[..., Any]:
    return lambda node, data, axis: node.cast(node.emit(operator(node.wide(data), axis)), dtype_of(data))


def _hardmax(node: Node, data: Any, axis: int) -> Any:
    """1 at the first greatest element, else 0; all are 0 where that is NaN, as in onnxruntime."""
    shape, dtype = shape_of(data), dtype_of(data)
    if not shape[axis]:
        return data
    data = node.wide(data)
    found = node.emit(index_of_extreme(node, data, axis))
    positions = along_axis(np.arange(shape[axis], dtype=np.int64), axis, len(shape))
    hit = node.emit(relax.op.equal(found, relax.const(positions, "int64")))
    hit = node.emit(relax.op.logical_and(hit, node.emit(relax.op.logical_not(node.emit(relax.op.isnan(data))))))
    return relax.op.astype(hit, dtype)


_softmax = _normalised(_wide(relax.op.nn.softmax))


def softmax(node: Node) -> relax.Expr:
    """Converts a Softmax node."""
    return _softmax(node)


OPERATORS = (
    OnnxOperator("Celu", _widened(_celu)),
    OnnxOperator("Elu", _widened(lambda node, x: _exponential(x, _number(node, "alpha", 1)))),
    OnnxOperator("Gelu", _widened(_gelu)),
    OnnxOperator("Gelu", _widened(_gelu), domain=MICROSOFT),
    OnnxOperator(
        "HardSigmoid",
        _plain(lambda node, x: _between_zero_and_one(x, _number(node, "alpha", 0.2), _number(node, "beta", 0.5))),
    ),
    OnnxOperator("HardSwish", _plain(lambda node, x: x * _between_zero_and_one(x, _SIXTH, 0.5))),
    OnnxOperator("Hardmax", _normalised(_hardmax)),
    OnnxOperator("LeakyRelu", _plain(lambda node, x: x.leakyrelu(alpha=_number(node, "alpha", 0.01)))),
    OnnxOperator("LogSoftmax", _normalised(_wide(relax.op.nn.log_softmax))),
    OnnxOperator("Mish", _widened(_mish)),
    OnnxOperator("PRelu", _plain(lambda node, x: parametric_relu(x, node.required(1)))),
    OnnxOperator("Relu", _plain(_relu)),
    OnnxOperator("Selu", _widened(_selu)),
    OnnxOperator("Shrink", _plain(_shrink)),
    OnnxOperator("Softmax", softmax),
    OnnxOperator("Softplus", _widened(_softplus)),
    OnnxOperator("Softsign", _plain(lambda node, x: x / (abs(x) + 1))),
    OnnxOperator("Swish", _widened(lambda node, x: x * (x * _number(node, "alpha", 1)).sigmoid())),
    OnnxOperator("ThresholdedRelu", _plain(lambda node, x: choose(x > _number(node, "alpha", 1), x, 0))),
)
