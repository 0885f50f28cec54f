"""Estimates whether a region can pay: the time that compiling it may save against the cost of calling it.

The estimate is rough and optimistic: regions that pass are timed after tuning, and those that are slower are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx import NodeProto

from kintune.partition.tensor_types import TensorType

__all__ = ["can_pay"]

_NODE_US = 1.0  # onnxruntime's overhead for each node, at least
_BYTES_PER_US = 10_000  # bandwidth of a core; tensors between fused kernels are not read and written
_FLOPS_PER_US = 50_000
_GAIN = 0.1  # share of the arithmetic's time that tuning may save
_ENTER_US = 5.0  # overhead of a call of a region
_TENSOR_US = 0.2  # and for each tensor that it reads or writes

_FREE = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Constant", "Shape"})
"""Operators that onnxruntime runs without touching the elements, or nearly."""

_PRODUCTS = frozenset({
    "Attention", "Conv", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul",
    "MultiHeadAttention",
})  # fmt: skip
_RECURRENT = frozenset({"DynamicQuantizeLSTM", "LSTM", "GRU", "RNN"})


def can_pay(
    members: Sequence[NodeProto], types: Mapping[str, TensorType], inputs: Sequence[str], outputs: Sequence[str]
) -> bool:
    """Return whether a region of these nodes may save more time than a call of it costs.

    `inputs` and `outputs` are the tensors that cross the region's border; `types` has the types of its tensors.
    """
    working = [node for node in members if node.op_type not in _FREE]
    if not working:
        return False
    inner = {name for node in members for name in node.output if name} - set(outputs)
    moved = sum(types[name].nbytes for name in inner if name in types)
    gain_us = _NODE_US * len(working) + 2 * moved / _BYTES_PER_US
    gain_us += _GAIN * sum(_flops(node, types) for node in working) / _FLOPS_PER_US
    return gain_us > _ENTER_US + _TENSOR_US * (len(inputs) + len(outputs))


def _flops(node: NodeProto, types: Mapping[str, TensorType]) -> float:
    """An estimate of the floating-point operations of a node."""
    made = types.get(next(filter(None, node.output), ""))
    elements = math.prod(made.shape) if made is not None and made.shape is not None else 0
    if node.op_type in _RECURRENT:
        return _recurrent_flops(node, types)
    if node.op_type not in _PRODUCTS or len(node.input) < 2:
        return float(elements)
    weight, data = types.get(node.input[1]), types.get(node.input[0])
    if weight is None or not weight.shape:
        return float(elements)
    if node.op_type in ("Conv", "FusedConv"):
        return 2.0 * elements * math.prod(weight.shape[1:])
    if node.op_type == "ConvTranspose":
        source = math.prod(data.shape) if data is not None and data.shape is not None else 0
        return 2.0 * source * math.prod(weight.shape[1:])
    depth = data.shape[-1] if data is not None and data.shape else weight.shape[-1]
    return 2.0 * elements * depth


def _recurrent_flops(node: NodeProto, types: Mapping[str, TensorType]) -> float:
    """The operations of a recurrent layer's products: each step of each sequence is multiplied by all weights."""
    data, *weights = [types.get(name) for name in node.input[:3]]
    if data is None or not data.shape:
        return 0.0
    sizes = [math.prod(weight.shape) for weight in weights if weight is not None and weight.shape is not None]
    return 2.0 * math.prod(data.shape[:2]) * sum(sizes)
