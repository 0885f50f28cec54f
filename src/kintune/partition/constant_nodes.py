"""Folds constants: what a graph computes from constants alone becomes a weight, so that no run computes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, numpy_helper

from kintune.models.evaluation import evaluate
from kintune.models.onnx_nodes import DEFAULT_DOMAINS, subgraphs
from kintune.models.quantised_weights import quantised_weights
from kintune.partition.tensor_types import BodyPath, TensorTypes

__all__ = ["fold_constants"]

_MOST_BYTES = 1 << 28  # a node that reads more bytes of constants is not folded


def fold_constants(
    graph: GraphProto,
    opset: int,
    outside: Mapping[str, NDArray[Any]],
    types: Mapping[BodyPath, TensorTypes] | None = None,
    around: Mapping[str, TensorProto] | None = None,
    path: BodyPath = (),
) -> bool:
    """Replace nodes that read constants alone, or a shape that is fixed, by weights; also in bodies.

    `outside` has the values of weights that are no initializers, `types` the types of all tensors.  `around` has the
    weights of the graphs around this one, which is at `path`.  Nodes that onnxruntime cannot evaluate alone are kept,
    and so are dequantised weights of products: the integers behind them are multiplied, here and in onnxruntime.

    Returns whether any node was replaced; then paths of bodies may have changed.
    """
    own = (types or {}).get(path, {})
    changed = False
    weights = {**(around or {}), **{tensor.name: tensor for tensor in graph.initializer}}
    kept: list[NodeProto] = []
    outputs = {value.name for value in graph.output}
    quantised = quantised_weights(graph)
    for number, node in enumerate(graph.node):
        made = None
        if not (outputs | quantised) & set(node.output):
            made = _shape(node, own) or _computed(node, opset, weights, outside)
        if made is None:
            for place, body in enumerate(subgraphs(node)):
                inner = (*path, (number, place))
                changed = fold_constants(body, opset, outside, types, weights, inner) or changed
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
        changed = True
    return changed


def _shape(node: NodeProto, types: TensorTypes) -> list[TensorProto] | None:
    """The result of a Shape or Size node; None if the shape of its input is not fixed, or for any other node."""
    if node.op_type not in ("Shape", "Size") or node.domain not in DEFAULT_DOMAINS:
        return None
    type_ = types.get(node.input[0])
    if type_ is None or type_.shape is None:
        return None
    if node.op_type == "Size":
        values = np.array(math.prod(type_.shape), np.int64)
    else:
        given = {attribute.name: attribute.i for attribute in node.attribute}
        values = np.array(type_.shape[given.get("start", 0) : given.get("end", len(type_.shape))], np.int64)
    return [numpy_helper.from_array(values, node.output[0])]


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
