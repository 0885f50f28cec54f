"""Activations: functions that a network applies to the sums of a layer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tvm import relax

from kintune.models.expressions import dtype_of, gelu_curve, is_float
from kintune.models.torch_converters.elementwise import bounded, expm1_of
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def _relu(t: Translation, a: SimpleNamespace) -> Expression:
    return t.emit(relax.op.nn.relu(a.self)) if is_float(t.result.dtype) else bounded(t, relax.op.maximum, a.self, 0)


def _hardtanh(t: Translation, a: SimpleNamespace) -> Expression:
    return bounded(t, relax.op.minimum, bounded(t, relax.op.maximum, a.self, a.min_val), a.max_val)


def _leaky_relu(t: Translation, a: SimpleNamespace) -> Expression:
    return t.finish(t.emit(relax.op.nn.leakyrelu(t.wide(a.self), float(a.negative_slope))))


def _elu(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(a.self)
    dtype = dtype_of(value)
    scaled = value if a.input_scale == 1 else t.emit(relax.op.multiply(value, t.const(a.input_scale, dtype)))
    grown = t.emit(relax.op.multiply(expm1_of(t, scaled), t.const(a.alpha * a.scale, dtype)))
    linear = value if a.scale == 1 else t.emit(relax.op.multiply(value, t.const(a.scale, dtype)))
    return t.finish(t.emit(relax.op.where(t.emit(relax.op.greater(value, t.const(0, dtype))), linear, grown)))


def _gelu(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(a.self)
    dtype = dtype_of(value)
    curve = gelu_curve(t.emit, lambda number: t.const(number, dtype), value, a.approximate)
    factor = t.emit(relax.op.multiply(t.emit(relax.op.add(curve, t.const(1, dtype))), t.const(0.5, dtype)))
    return t.finish(t.emit(relax.op.multiply(value, factor)))


def _prelu(t: Translation, a: SimpleNamespace) -> Expression:
    value, slope = t.wide(a.self), t.wide(a.weight)
    negative = t.emit(relax.op.multiply(value, slope))
    return t.finish(
        t.emit(relax.op.where(t.emit(relax.op.greater(value, t.const(0, dtype_of(value)))), value, negative))
    )


def _random_relu(t: Translation, a: SimpleNamespace) -> Expression:
    """Outside of training, a leaky ReLU: its slope is the middle of those that training draws from."""
    if a.training:
        raise NotConvertible("slopes drawn at random, as in training")
    slope = (float(a.lower) + float(a.upper)) / 2
    return t.cast(t.emit(relax.op.nn.leakyrelu(t.wide(a.self), slope)), dtype_of(a.self))


def _random_relu_and_slopes(t: Translation, a: SimpleNamespace) -> Any:
    if 1 in t.used:
        raise NotConvertible("the slopes as a result")
    return (_random_relu(t, a), None)


CONVERTERS: dict[str, Converter] = {
    "relu.default": _relu,
    "hardtanh.default": _hardtanh,
    "leaky_relu.default": _leaky_relu,
    "elu.default": _elu,
    "gelu.default": _gelu,
    "_prelu_kernel.default": _prelu,
    **dict.fromkeys(("rrelu.default", "rrelu_with_noise.default"), _random_relu),
    "rrelu_with_noise_functional.default": _random_relu_and_slopes,
}
"""Operator of aten -> its converter."""
