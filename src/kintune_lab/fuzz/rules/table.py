"""All rules by operator, values of attributes that schemas do not list, and how often operators are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from onnx import TensorProto, defs

from kintune_lab.fuzz.drawing import Drawer, Rule
from kintune_lab.fuzz.rules import (
    bodies,
    contributed,
    elementwise,
    indexing,
    products,
    quantised,
    recurrent,
    reductions,
    shaping,
    transforms,
    windows,
)

__all__ = ["ATTRIBUTES", "OTHERS", "QUANTISED", "RULES", "SHARES"]

# Attributes whose values the schema does not list; by operator and name, or by name.

_TYPES = [
    *(TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32),
    *(TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8, TensorProto.BOOL, TensorProto.UINT32),
]
_FLOAT_TYPES = [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE]

ATTRIBUTES: Mapping[tuple[str, str], Callable[[Drawer, int], Any]] = {
    ("", "axis"): lambda d, rank: d.axis(rank),
    ("", "axes"): lambda d, rank: d.axes(rank),
    ("", "perm"): lambda d, rank: [int(at) for at in d.rng.permutation(rank)],
    ("", "to"): lambda d, rank: d.choice(_TYPES),
    ("", "dtype"): lambda d, rank: d.choice(_TYPES),
    ("", "output_datatype"): lambda d, rank: d.choice(_FLOAT_TYPES),
    ("", "stash_type"): lambda d, rank: TensorProto.FLOAT,
    ("", "p"): lambda d, rank: d.integer(1, 2),
    ("", "start"): lambda d, rank: d.integer(-rank, rank),
    ("", "end"): lambda d, rank: d.integer(-rank, rank),
    ("", "direction"): lambda d, rank: d.choice(("LEFT", "RIGHT")),
    ("", "approximate"): lambda d, rank: d.choice(("none", "tanh")),
    ("", "reduction"): lambda d, rank: d.choice(("none", "sum", "mean")),
    ("", "batch_axis"): lambda d, rank: 0,
    ("", "time_axis"): lambda d, rank: 1,
    ("", "round_mode"): lambda d, rank: "up",
    ("", "k"): lambda d, rank: d.integer(-3, 3),
    ("Transpose", "perm"): lambda d, rank: [int(at) for at in d.rng.permutation(rank)],
    ("Flatten", "axis"): lambda d, rank: d.integer(-rank if d.opset >= 11 else 0, rank),
    ("LRN", "size"): lambda d, rank: d.choice((1, 3, 5)),
    ("Shrink", "lambd"): lambda d, rank: 0.5,
    ("BitCast", "to"): lambda d, rank: d.choice(_TYPES),
}

RULES: dict[str, Rule] = {
    name: rule
    for module in (
        bodies,
        contributed,
        elementwise,
        indexing,
        products,
        quantised,
        recurrent,
        reductions,
        shaping,
        transforms,
        windows,
    )
    for name, rule in module.RULES.items()
}

OTHERS = tuple(name for name in RULES if not defs.has(name) and name != "Upsample")
"""Rules for operators of onnxruntime's own set, and for several nodes."""

SHARES = {
    **dict.fromkeys(("Conv", "MatMul", "Gemm"), 3.0),
    **dict.fromkeys(("Add", "Mul", "Sub", "Div", "Reshape", "Transpose", "Concat", "Slice", "Gather", "Softmax"), 2.0),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger"), 1.5),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "EyeLike", "Range"), 0.3),
    **dict.fromkeys(("Shape", "Size", "ConstantOfShape", "Dropout", "Identity", "SequenceLength"), 0.5),
}
"""How often operators are drawn, relative to 1."""

QUANTISED = {
    **dict.fromkeys(quantised.RULES, 1.0),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger", "bytes around Conv"), 4.0),
    **dict.fromkeys(("bytes around MatMul", "DynamicQuantizeLinear", "DynamicQuantizeMatMul"), 3.0),
    **dict.fromkeys(
        ("Relu", "Add", "Mul", "MaxPool", "Concat", "Reshape", "Transpose", "Clip", "Cast", "Softmax"), 0.7
    ),
}
"""The operators of quantised graphs, and how often they are drawn."""
