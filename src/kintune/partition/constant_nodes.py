"""Turns into weights what a graph computes from constants alone, so that no region computes it in each run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from kintune.models.evaluation import evaluate
from kintune.models.onnx_nodes import subgraphs

__all__ = ["fold_constants"]

_MOST_BYTES = 1 << 28  # of constants read by a node, beyond which it stays


def fold_constants(
    graph: GraphProto, opset: int, outside: Mapping[str, NDArray[Any]], around: Mapping[str, TensorProto] | None = None
) -> None:
    """Replace nodes that read constants alone by weights, in the graph and in the bodies of its nodes.

    `outside` has the values of weights that are no initializers; `around` has those of the graphs around it.  Nodes
    that onnxruntime cannot compute by themselves stay.
    """
    weights = {**(around or {}), **{tensor.name: tensor for tensor in graph.initializer}}
    kept: list[NodeProto] = []
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        made = None if outputs & set(node.output) else _computed(node, opset, weights, outside)
        if made is None:
            for body in subgraphs(node):
                fold_constants(body, opset, outside, weights)
            copy = NodeProto()
            copy.CopyFrom(node)
            kept.append(copy)
            continue
        for tensor in made:
            weights[tensor.name] = tensor
            graph.initializer.append(tensor)
    if len(kept) < len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)


def _computed(
    node: NodeProto, opset: int, weights: Mapping[str, TensorProto], outside: Mapping[str, NDArray[Any]]
) -> list[TensorProto] | None:
    value = next((a.t for a in node.attribute if a.name == "value" and a.HasField("t")), None)
    if node.op_type == "Constant" and value is not None:
        tensor = TensorProto()
        tensor.CopyFrom(value)
        tensor.name = node.output[0]
        return [tensor]
    if any(name and name not in weights and name not in outside for name in node.input) or any(subgraphs(node)):
        return None
    values = [
        None if not name else outside[name] if name in outside else numpy_helper.to_array(weights[name])
        for name in node.input
    ]
    if sum(value.nbytes for value in values if value is not None) > _MOST_BYTES:
        return None
    computed = evaluate(node, values, opset)
    if computed is None:
        return None
    return [numpy_helper.from_array(array, name) for name, array in zip(node.output, computed, strict=True) if name]
