"""Rules for quantised operators."""

from __future__ import annotations

import numpy as np

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.evaluation import MICROSOFT
from kintune_lab.fuzz.rules.products import factors
from kintune_lab.fuzz.rules.windows import groups, window
from kintune_lab.fuzz.values import BYTES, Role

__all__ = ["RULES"]

_SCALE = Role(0.004, 0.1)


def _scale_of(d: Drawer, shape: tuple[int, ...] = ()) -> str:
    return d.leaf("float32", shape, _SCALE, constant=0.85, extreme=0.05)


def _zero_of(d: Drawer, dtype: str, shape: tuple[int, ...] = ()) -> str:
    return d.leaf(dtype, shape, constant=0.85, extreme=0.1)


def _quantize(d: Drawer, operator: str) -> None:
    quantise = operator == "QuantizeLinear"
    x = d.tensor(("float32",) if quantise else (*BYTES, "int32"), rank=(1, 2, 3, 4))
    value = d.array(x)
    dtype = d.choice(BYTES) if quantise else value.dtype.name
    attributes: Attributes = {}
    shape: tuple[int, ...] = ()
    if d.opset >= 13 and d.chance(0.4):
        attributes["axis"] = axis = d.axis(value.ndim)
        shape = (value.shape[axis],)
    inputs = [x, _scale_of(d, shape)]
    if quantise or (dtype in BYTES and d.chance(0.7)):
        inputs.append(_zero_of(d, dtype, shape))
    d.node(operator, inputs, attributes)


def _matmul_integer(d: Drawer, operator: str) -> None:
    a, b = factors(d, BYTES, BYTES)
    inputs = [a, b]
    if d.chance(0.7):
        inputs.append(_zero_of(d, d.dtype(a)))
        if d.chance(0.6):
            columns = d.array(b).shape[-1]
            shape = (columns,) if d.array(b).ndim == 2 and d.chance(0.4) else ()
            inputs.append(_zero_of(d, d.dtype(b), shape))
    d.node(operator, inputs, {})


def _qlinear_matmul(d: Drawer, operator: str) -> None:
    a, b = factors(d, BYTES, BYTES)
    operands: list[str] = []
    for name in (a, b):
        operands += [name, _scale_of(d), _zero_of(d, d.dtype(name))]
    d.node(operator, [*operands, _scale_of(d), _zero_of(d, d.dtype(a))], {})


def _conv_integer(d: Drawer, operator: str) -> None:
    x = d.tensor(BYTES, rank=4)
    _, channels, *spatial = d.array(x).shape
    kernel, attributes = window(d, tuple(spatial))
    group, features = groups(d, channels)
    w = d.tensor(BYTES, shape=(features, channels // group, *kernel))
    attributes["group"] = group
    x_zero, w_zero = _zero_of(d, d.dtype(x)), _zero_of(d, d.dtype(w))
    if operator == "ConvInteger":
        d.node(operator, [x, w, *([x_zero, w_zero][: d.integer(0, 2)])], attributes)
        return
    scales = _scale_of(d, (features,) if d.chance(0.4) else ())
    if d.array(scales).shape:
        w_zero = d.constant(np.full((features,), d.array(w_zero)), d.dtype(w))
    inputs = [x, _scale_of(d), x_zero, w, scales, w_zero, _scale_of(d), _zero_of(d, d.dtype(x))]
    if d.chance(0.5):
        inputs.append(d.leaf("int32", (features,), Role(-2000, 2000)))
    d.node(operator, inputs, attributes)


def _dynamic_quantize(d: Drawer, operator: str) -> None:
    d.node(operator, [d.tensor(("float32",), where=lambda v: v.size > 0)], {}, 3)


def _qlinear_pair(d: Drawer, operator: str) -> None:
    a = d.tensor(BYTES)
    b = d.tensor((d.dtype(a),), shape=d.broadcastable(d.array(a).shape))
    dtype = d.dtype(a)
    quantised = [part for name in (a, b) for part in (name, _scale_of(d), _zero_of(d, dtype))]
    d.node(operator, [*quantised, _scale_of(d), _zero_of(d, dtype)], {}, domain=MICROSOFT)


def _qlinear_activation(d: Drawer, operator: str) -> None:
    x = d.tensor(BYTES)
    dtype = d.dtype(x)
    attributes: Attributes = {"alpha": 0.1} if operator == "QLinearLeakyRelu" else {}
    inputs = [x, *(make for _ in range(2) for make in (_scale_of(d), _zero_of(d, dtype)))]
    d.node(operator, inputs, attributes, domain=MICROSOFT)


def _qlinear_pool(d: Drawer, operator: str) -> None:
    x = d.tensor(BYTES, rank=4)
    dtype = d.dtype(x)
    attributes: Attributes = {}
    if operator == "QLinearAveragePool":
        kernel, attributes = window(d, d.array(x).shape[2:], dilated=False)
        attributes |= {"kernel_shape": kernel, "count_include_pad": d.integer(0, 1)}
        attributes.pop("auto_pad", None)  # onnxruntime pads by negative amounts where strides exceed the window
    inputs = [x, *(make for _ in range(2) for make in (_scale_of(d), _zero_of(d, dtype)))]
    d.node(operator, inputs, attributes, domain=MICROSOFT)


def _qlinear_concat(d: Drawer, operator: str) -> None:
    x = d.tensor(BYTES, rank=(1, 2, 3, 4))
    value = d.array(x)
    axis = d.integer(0, value.ndim - 1)
    inputs = [_scale_of(d), _zero_of(d, value.dtype.name)]
    for name in [x, *(d.tensor((value.dtype.name,), shape=value.shape) for _ in range(d.integer(1, 2)))]:
        inputs += [name, _scale_of(d), _zero_of(d, value.dtype.name)]
    d.node(operator, inputs, {"axis": axis}, domain=MICROSOFT)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantize),
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    **dict.fromkeys(("ConvInteger", "QLinearConv"), _conv_integer),
    "DynamicQuantizeLinear": _dynamic_quantize,
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _qlinear_pair),
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu"), _qlinear_activation),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), _qlinear_pool),
    "QLinearConcat": _qlinear_concat,
}
