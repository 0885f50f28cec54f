"""Activation functions and softmax; half precision is computed in float32 where accuracy would be lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from kintune.models.converters.node import Node, like
from kintune.models.converters.reduction import index_of_extreme
from kintune.models.converters.registration import MICROSOFT, Convert, OnnxOperator
from kintune.models.expressions import along_axis, dtype_of, gelu_curve, log1p, shape_of

__all__ = ["OPERATORS", "softmax"]

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _number(node: Node, name: str, default: float) -> float:
    return float(node.attributes.get(name, default))


def _widened(activation: Callable[[Node, Any], Any]) -> Convert:
    """A converter of an activation that is computed in float32 where the operand is of half precision."""
    return lambda node: node.in_float32(lambda data: activation(node, data), node.required(0))


def _plain(activation: Callable[[Node, Any], Any]) -> Convert:
    return lambda node: activation(node, node.required(0))


def _below_zero(node: Node, data: Any, below: Any) -> Any:
    """`below` where `data` is negative, else `data`."""
    return relax.op.where(node.emit(relax.op.less(data, like(0, data))), node.emit(below), data)


def _relu(_node: Node, data: Any) -> Any:
    return relax.op.nn.relu(data) if dtype_of(data).startswith("float") else relax.op.maximum(data, like(0, data))


def _leaky_relu(node: Node, data: Any) -> Any:
    return relax.op.nn.leakyrelu(data, _number(node, "alpha", 0.01))


def _parametric_relu(node: Node, data: Any) -> Any:
    slope = node.required(1)
    shape, own = shape_of(data), shape_of(slope)
    rank = len(shape)
    wide = [i for i, size in enumerate(own) if size != 1]
    if len(wide) == 1 and len(own) <= rank:
        axis = wide[0] + rank - len(own)
        return relax.op.nn.prelu(data, node.emit(relax.op.reshape(slope, [own[wide[0]]])), axis)
    if not wide and rank and len(own) <= rank:
        channels = shape[min(1, rank - 1)]
        each = node.emit(relax.op.broadcast_to(node.emit(relax.op.reshape(slope, [1])), [channels]))
        return relax.op.nn.prelu(data, each, min(1, rank - 1))
    return _below_zero(node, data, relax.op.multiply(data, slope))


def _exponential(node: Node, data: Any, alpha: float, width: float) -> Any:
    """`alpha * (exp(data / width) - 1)` where `data` is negative, else `data`."""
    scaled = data if width == 1 else node.emit(relax.op.divide(data, like(width, data)))
    power = node.emit(relax.op.subtract(node.emit(relax.op.exp(scaled)), like(1, data)))
    return _below_zero(node, data, power if alpha == 1 else relax.op.multiply(power, like(alpha, data)))


def _elu(node: Node, data: Any) -> Any:
    return _exponential(node, data, _number(node, "alpha", 1), 1)


def _celu(node: Node, data: Any) -> Any:
    alpha = _number(node, "alpha", 1)
    return _exponential(node, data, alpha, alpha)


def _selu(node: Node, data: Any) -> Any:
    curve = node.emit(_exponential(node, data, _number(node, "alpha", _SELU_ALPHA), 1))
    return relax.op.multiply(curve, like(_number(node, "gamma", _SELU_GAMMA), data))


def _thresholded_relu(node: Node, data: Any) -> Any:
    above = node.emit(relax.op.greater(data, like(_number(node, "alpha", 1), data)))
    return relax.op.where(above, data, like(0, data))


def _between_zero_and_one(node: Node, data: Any, alpha: float, beta: float) -> Any:
    """`alpha * data + beta`, bounded by 0 and 1."""
    line = node.emit(relax.op.add(node.emit(relax.op.multiply(data, like(alpha, data))), like(beta, data)))
    return relax.op.minimum(node.emit(relax.op.maximum(line, like(0, data))), like(1, data))


def _hard_sigmoid(node: Node, data: Any) -> Any:
    return _between_zero_and_one(node, data, _number(node, "alpha", 0.2), _number(node, "beta", 0.5))


_SIXTH = float(np.float32(1 / 6))
"""The `alpha` of the HardSigmoid that defines HardSwish, an attribute of 32 bits also for float64."""


def _hard_swish(node: Node, data: Any) -> Any:
    return relax.op.multiply(data, node.emit(_between_zero_and_one(node, data, _SIXTH, 0.5)))


def _swish(node: Node, data: Any) -> Any:
    alpha = _number(node, "alpha", 1)
    gate = data if alpha == 1 else node.emit(relax.op.multiply(data, like(alpha, data)))
    return relax.op.multiply(data, node.emit(relax.op.sigmoid(gate)))


def _softplus(node: Node, data: Any) -> Any:
    """`log(1 + exp(data))`, written so that the exponential does not overflow."""
    power = node.emit(relax.op.exp(node.emit(relax.op.negative(node.emit(relax.op.abs(data))))))
    rest = log1p(node.emit, lambda value: like(value, data), power)
    return relax.op.add(node.emit(relax.op.nn.relu(data)), rest)


def _mish(node: Node, data: Any) -> Any:
    """`data * tanh(softplus(data))`: the tangent is `s / (s + 2)`, where `s` is `e * (e + 2)` and `e` is `exp(data)`.

    Where the exponential may overflow, both parts of the fraction are divided by its square.
    """
    emit, two = node.emit, like(2, data)
    power = emit(relax.op.exp(emit(relax.op.negative(emit(relax.op.abs(data))))))
    twice = emit(relax.op.multiply(power, two))
    square = emit(relax.op.multiply(power, power))
    above = emit(relax.op.greater(data, like(0, data)))
    upper = emit(relax.op.add(twice, emit(relax.op.where(above, like(1, data), square))))
    rest = emit(relax.op.where(above, emit(relax.op.multiply(square, two)), two))
    return relax.op.multiply(data, emit(relax.op.divide(upper, emit(relax.op.add(upper, rest)))))


def _softsign(node: Node, data: Any) -> Any:
    return relax.op.divide(data, node.emit(relax.op.add(node.emit(relax.op.abs(data)), like(1, data))))


def _gelu(node: Node, data: Any) -> Any:
    approximation = node.attributes.get("approximate", "none")
    curve = gelu_curve(node.emit, lambda value: like(value, data), data, approximation)
    half = node.emit(relax.op.multiply(data, like(0.5, data)))
    return relax.op.multiply(half, node.emit(relax.op.add(curve, like(1, data))))


def _shrink(node: Node, data: Any) -> Any:
    lambd, bias = _number(node, "lambd", 0.5), _number(node, "bias", 0)
    emit = node.emit
    wide = data if dtype_of(data).startswith("float") else emit(relax.op.astype(data, "float64"))
    above = emit(
        relax.op.where(
            emit(relax.op.greater(wide, like(lambd, wide))),
            emit(relax.op.subtract(wide, like(bias, wide))),
            like(0, wide),
        )
    )
    result = emit(
        relax.op.where(emit(relax.op.less(wide, like(-lambd, wide))), emit(relax.op.add(wide, like(bias, wide))), above)
    )
    return result if wide is data else relax.op.astype(result, dtype_of(data))


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
    return lambda node, data, axis: node.in_float32(lambda wide: operator(wide, axis), data)


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
    OnnxOperator("Elu", _widened(_elu)),
    OnnxOperator("Gelu", _widened(_gelu)),
    OnnxOperator("Gelu", _widened(_gelu), domain=MICROSOFT),
    OnnxOperator("HardSigmoid", _plain(_hard_sigmoid)),
    OnnxOperator("HardSwish", _plain(_hard_swish)),
    OnnxOperator("Hardmax", _normalised(_hardmax)),
    OnnxOperator("LeakyRelu", _plain(_leaky_relu)),
    OnnxOperator("LogSoftmax", _normalised(_wide(relax.op.nn.log_softmax))),
    OnnxOperator("Mish", _widened(_mish)),
    OnnxOperator("PRelu", _plain(_parametric_relu)),
    OnnxOperator("Relu", _plain(_relu)),
    OnnxOperator("Selu", _widened(_selu)),
    OnnxOperator("Shrink", _plain(_shrink)),
    OnnxOperator("Softmax", softmax),
    OnnxOperator("Softplus", _widened(_softplus)),
    OnnxOperator("Softsign", _plain(_softsign)),
    OnnxOperator("Swish", _widened(_swish)),
    OnnxOperator("ThresholdedRelu", _plain(_thresholded_relu)),
)
