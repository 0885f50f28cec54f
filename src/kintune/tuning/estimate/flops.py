"""How many floating-point operations a model takes."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx import ModelProto, NodeProto, TensorProto, helper, shape_inference

from kintune.models.zoo.network import OPSET, Network

__all__ = ["count_flops", "count_network_flops"]

Shapes = dict[str, tuple[int, ...]]


def count_flops(model: ModelProto) -> float:
    """Operations of one run: two for each multiplication of a convolution or matrix product, others not counted.

    Shapes must be fixed; a node whose shapes cannot be inferred counts nothing, and so do bodies of control flow.
    """
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    graph = inferred.graph
    shapes: Shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
    return float(sum(_multiplications(node, shapes) * 2 for node in graph.node))


def count_network_flops(network: Network) -> float:
    """Operations of one run of a zoo network, counted on its structure: no weight is drawn."""
    weights = [helper.make_tensor_value_info(w.name, TensorProto.FLOAT, w.shape) for w in network.weights]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in network.inputs]
    outputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in network.outputs]
    graph = helper.make_graph(network.nodes, network.name, [*inputs, *weights], outputs, network.constants)
    return count_flops(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)]))


def _multiplications(node: NodeProto, shapes: Shapes) -> int:
    count = _COUNTERS.get(node.op_type)
    if count is None or node.domain not in ("", "ai.onnx") or not all(i in shapes for i in node.input[:2]):
        return 0
    output = shapes.get(node.output[0])
    return 0 if output is None else count(node, shapes[node.input[0]], shapes[node.input[1]], output)


def _of_convolution(_: NodeProto, _data: tuple[int, ...], weight: tuple[int, ...], output: tuple[int, ...]) -> int:
    """Each output element sums over a weight's input channels and window; groups are in the weight's shape."""
    return math.prod(output) * math.prod(weight[1:])


def _of_transposed(_: NodeProto, data: tuple[int, ...], weight: tuple[int, ...], _output: tuple[int, ...]) -> int:
    """Each input element is spread over a weight's output channels and window."""
    return math.prod(data) * math.prod(weight[1:])


def _of_product(_: NodeProto, left: tuple[int, ...], _right: tuple[int, ...], output: tuple[int, ...]) -> int:
    return math.prod(output) * left[-1]


def _of_gemm(node: NodeProto, left: tuple[int, ...], _right: tuple[int, ...], output: tuple[int, ...]) -> int:
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    return math.prod(output) * left[0 if transposed else 1]


_Counter = Callable[[NodeProto, tuple[int, ...], tuple[int, ...], tuple[int, ...]], int]
_COUNTERS: dict[str, _Counter] = {
    "Conv": _of_convolution,
    "ConvTranspose": _of_transposed,
    "Gemm": _of_gemm,
    "MatMul": _of_product,
}
