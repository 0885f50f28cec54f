"""Activations: functions that a network applies to the sums of a layer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tvm import relax

from kintune.models.expressions import dtype_of, is_float
from kintune.models.formulas import Real, choose, expm1, gelu, parametric_relu
from kintune.models.torch_converters.elementwise import bounded
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def _relu(t: Translation, a: SimpleNamespace) -> Expression:
    return t.emit(relax.op.nn.relu(a.self)) if is_float(t.result.dtype) else bounded(t, relax.op.maximum, a.self, 0)


def _hardtanh(t: Translation, a: SimpleNamespace) -> Expression:
    return bounded(t, relax.op.minimum, bounded(t, relax.op.maximum, a.self, a.min_val), a.max_val)


def _leaky_relu(t: Translation, a: SimpleNamespace) -> Expression:
    return t.finish(t.emit(relax.op.nn.leakyrelu(t.wide(a.self), float(a.negative_slope))))


def _elu(t: Translation, a: SimpleNamespace) -> Expression:
    """Unlike ONNX's, small numbers keep their digits, as in PyTorch."""
    x = Real(t, t.wide(a.self))
    return t.finish(choose(x > 0, x * a.scale, expm1(x * a.input_scale) * (a.alpha * a.scale)).value)


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
    "gelu.default": lambda t, a: t.finish(gelu(Real(t, t.wide(a.self)), a.approximate).value),
    "_prelu_kernel.default": lambda t, a: t.finish(parametric_relu(Real(t, t.wide(a.self)), t.wide(a.weight)).value),
    **dict.fromkeys(("rrelu.default", "rrelu_with_noise.default"), _random_relu),
    "rrelu_with_noise_functional.default": _random_relu_and_slopes,
}
"""Operator of aten -> its converter."""
