"""Rules for quantised operators."""

from __future__ import annotations

import numpy as np
from onnx import helper

from kintune_lab.fuzz.drawing import Attributes, Drawer, Rule
from kintune_lab.fuzz.evaluation import MICROSOFT
from kintune_lab.fuzz.rules.contributed import fused
from kintune_lab.fuzz.rules.products import factors
from kintune_lab.fuzz.rules.windows import groups, window
from kintune_lab.fuzz.values import BYTES, LeafRole

__all__ = ["RULES"]

_SCALE = LeafRole(0.004, 0.1)


def _scale_of(d: Drawer, shape: tuple[int, ...] = ()) -> str:
    return d.leaf("float32", shape, _SCALE, constant=0.85, extreme=0.05)


def _zero_of(d: Drawer, dtype: str, shape: tuple[int, ...] = ()) -> str:
    return d.leaf(dtype, shape, constant=0.85, extreme=0.1)


def _quantize(d: Drawer, operator: str) -> None:
    quantise = operator == "QuantizeLinear"
    narrow = (*BYTES, *BYTES, *(("int16", "uint16") if d.opset >= 21 else ()))
    x = d.tensor(("float32",) if quantise else (*narrow, "int32"), rank=(1, 2, 3, 4))
    value = d.array(x)
    dtype = d.choice(narrow) if quantise else value.dtype.name
    attributes: Attributes = {}
    shape: tuple[int, ...] = ()
    if d.opset >= 13 and d.chance(0.4):
        attributes["axis"] = axis = d.axis(value.ndim)
        shape = (value.shape[axis],)
        if d.opset >= 21 and d.chance(0.6):
            attributes["block_size"] = block = d.choice((1, 2, 4, 16))
            shape = tuple(-(-e // block) if at == axis % value.ndim else e for at, e in enumerate(value.shape))
    inputs = [x, _scale_of(d, shape)]
    if quantise and d.opset >= 21 and d.chance(0.2):
        attributes["output_dtype"] = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    elif quantise or (dtype != "int32" and d.chance(0.7)):
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
        inputs.append(d.leaf("int32", (features,), LeafRole(-2000, 2000)))
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


def _around(d: Drawer, x: str, dtype: str) -> str:
    """A float tensor as bytes and back."""
    scale, zero = _scale_of(d), _zero_of(d, dtype)
    return d.node("DequantizeLinear", [d.node("QuantizeLinear", [x, scale, zero], {})[0], scale, zero], {})[0]


def _bytes_around(d: Drawer, operator: str) -> None:
    """Append a convolution or product of quantised tensors as nodes that quantise and dequantise floats."""
    dtype = d.choice(BYTES)
    is_conv = operator.endswith("Conv")
    x = _around(d, d.tensor(("float32",), rank=4 if is_conv else (2, 3), where=lambda v: v.size > 0), dtype)
    shape, attributes, axis = d.array(x).shape, Attributes(), 0
    if is_conv:
        kernel, attributes = window(d, shape[2:])
        attributes["group"], features = groups(d, shape[1])
        weights: tuple[int, ...] = (features, shape[1] // attributes["group"], *kernel)
    else:
        weights, axis = (shape[-1], features := d.extent()), 1
    kind, each = d.choice(("int8", *BYTES)), (features,) if d.opset >= 13 and d.chance(0.6) else ()
    scale = d.leaf("float32", each, _SCALE, constant=1)
    zero = d.constant(np.zeros(each), kind) if d.chance(0.7) else d.leaf(kind, each, constant=1)
    along: Attributes = {"axis": axis} if each else {}
    w = d.node("DequantizeLinear", [d.leaf(kind, weights, constant=1), scale, zero], along)[0]
    inputs = [x, w]
    if is_conv and d.chance(0.5):
        inputs.append(d.tensor(("float32",), shape=(features,)))
    y = d.node("Conv" if is_conv else "MatMul", inputs, attributes)[0]
    for name in ("Relu", "Sigmoid"):
        if d.chance(0.3):
            y = d.node(name, [y], {})[0]
    _around(d, y, dtype)


def _dynamic_product(d: Drawer, operator: str) -> None:
    """Append a product of what is quantised by its range with weights of bytes, or of bytes, with a float result."""
    is_dynamic = operator == "DynamicQuantizeMatMul"
    a, b = factors(d, ("float32",) if is_dynamic else BYTES, BYTES)
    columns = d.array(b).shape[-1]
    each = (columns,) if d.array(b).ndim == 2 and d.chance(0.4) else ()
    inputs = [a, b, *([] if is_dynamic else [_scale_of(d)]), _scale_of(d, each)]
    if not is_dynamic:
        inputs.append(_zero_of(d, d.dtype(a)) if d.chance(0.6) else "")
    inputs.append(_zero_of(d, d.dtype(b), each) if d.chance(0.6) else "")
    inputs.append(d.tensor(("float32",), shape=(columns,)) if d.array(b).ndim > 1 and d.chance(0.4) else "")
    fused(d, operator, inputs, {})


def _qgemm(d: Drawer, operator: str) -> None:
    a = d.tensor(BYTES, rank=2)
    attributes: Attributes = {"transA": d.integer(0, 1), "transB": d.integer(0, 1)}
    _, depth = d.array(a).shape[:: -1 if attributes["transA"] else 1]
    columns = d.extent()
    b = d.tensor(BYTES, shape=(columns, depth) if attributes["transB"] else (depth, columns))
    inputs = [part for name in (a, b) for part in (name, _scale_of(d), _zero_of(d, d.dtype(name)))]
    inputs.append(d.leaf("int32", (columns,), LeafRole(-2000, 2000)) if d.chance(0.5) else "")
    if d.chance(0.7):
        inputs += [_scale_of(d), _zero_of(d, d.dtype(a))]
    fused(d, operator, inputs, attributes)


def _qlinear_softmax(d: Drawer, operator: str) -> None:
    x = d.tensor(BYTES, rank=(1, 2, 3, 4))
    quantised = [x, *(make for _ in range(2) for make in (_scale_of(d), _zero_of(d, d.dtype(x))))]
    fused(d, operator, quantised, {"axis": -1, "opset": 13})


def _qlinear_where(d: Drawer, operator: str) -> None:
    x = d.tensor(BYTES)
    dtype, shape = d.dtype(x), d.array(x).shape

    def step() -> list[str]:  # constants: onnxruntime ends the process where some of them are, and others are not
        return [d.leaf("float32", (), _SCALE, constant=1), d.leaf(dtype, (), constant=1)]

    condition, y = d.tensor(("bool",), shape=shape), d.tensor((dtype,), shape=shape)
    fused(d, operator, [condition, x, *step(), y, *step(), *step()], {})


def _qattention(d: Drawer, operator: str) -> None:
    batch, heads, size, steps = d.integer(1, 2), d.choice((1, 2, 4)), d.choice((4, 8)), d.extent(17)
    width = d.choice((4, 8, 17))
    x, w = d.tensor(BYTES, shape=(batch, steps, width)), d.leaf("int8", (width, 3 * heads * size), constant=1)
    inputs = [x, w, d.leaf("float32", (3 * heads * size,)), _scale_of(d), _scale_of(d)]
    inputs.append(d.leaf("int32", (batch, steps), LeafRole(0, 1)) if d.chance(0.3) else "")
    inputs += [_zero_of(d, d.dtype(x)), _zero_of(d, "int8")] if d.chance(0.7) else []
    fused(d, operator, inputs, {"num_heads": heads, "unidirectional": d.integer(0, 1)})


def _quantised_embedding(d: Drawer, operator: str) -> None:
    batch, steps, width, words = d.integer(1, 3), d.extent(17), d.choice((4, 8, 17)), d.choice((5, 33))
    ids = d.indices((batch, steps), words, "int32", negative=False)
    segments = d.indices((batch, steps), 2, "int32", negative=False)
    kind = d.choice(BYTES)
    shapes = ((words, width), (steps + d.integer(0, 3), width), (2, width), (width,), (width,))
    tables = [d.leaf(kind, shape, constant=1) for shape in shapes]
    mask = d.leaf("int32", (batch, steps), LeafRole(0, 1)) if d.chance(0.5) else ""
    steps_and_points = [*(_scale_of(d) for _ in shapes), *(_zero_of(d, kind) for _ in shapes)]
    fused(d, operator, [ids, segments, *tables, mask, *steps_and_points], {}, 2)


def _quantised_lstm(d: Drawer, operator: str) -> None:
    """Append a DynamicQuantizeLSTM of one sequence, since onnxruntime quantises several together."""
    steps, features, hidden = d.extent(7), d.choice((1, 3, 17)), d.choice((1, 3, 8))
    direction, kind = d.choice(("forward", "reverse", "bidirectional")), d.choice(BYTES)
    directions = 2 if direction == "bidirectional" else 1
    columns = (directions, 4 * hidden) if d.chance(0.3) else (directions,)

    def optional(*shape: int) -> str:
        return d.leaf("float32", shape, LeafRole(-1.5, 1.5)) if d.chance(0.4) else ""

    inputs = [d.tensor(("float32",), shape=(steps, 1, features))]
    inputs += [d.leaf(kind, (directions, rows, 4 * hidden), constant=1) for rows in (features, hidden)]
    inputs += [optional(directions, 8 * hidden), "", optional(directions, 1, hidden), optional(directions, 1, hidden)]
    inputs.append(optional(directions, 3 * hidden))
    for _ in range(2):
        inputs.append(d.leaf("float32", columns, LeafRole(0.001, 0.01), constant=1))
        inputs.append(d.leaf(kind, columns, constant=1) if len(columns) == 1 else d.constant(np.zeros(columns), kind))
    fused(d, operator, inputs, {"hidden_size": hidden, "direction": direction}, 3)


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
    **dict.fromkeys(("bytes around Conv", "bytes around MatMul"), _bytes_around),
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), _dynamic_product),
    "QGemm": _qgemm,
    "QLinearSoftmax": _qlinear_softmax,
    "QLinearWhere": _qlinear_where,
    "QAttention": _qattention,
    "QEmbedLayerNormalization": _quantised_embedding,
    "DynamicQuantizeLSTM": _quantised_lstm,
}
