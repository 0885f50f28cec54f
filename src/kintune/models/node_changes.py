"""Changes to the nodes of a model that depend on the types and the constant values of their operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, shape_inference

from kintune.models.onnx_nodes import subgraphs

__all__ = ["Change", "Constants", "Types", "change_nodes", "with_constants"]

Constants: TypeAlias = Mapping[str, TensorProto]
"""Constant tensors by their names."""

Types: TypeAlias = Mapping[str, int]
"""Types of the elements of tensors, as ONNX numbers them, by the tensors' names."""

Change: TypeAlias = Callable[[NodeProto, Constants, Types], Iterable[NodeProto]]
"""Changes a node in place; returns the nodes that compute its new operands."""


def change_nodes(model: ModelProto, change: Change) -> None:
    """Change the nodes of a model in place, also those of subgraphs; nothing is done if ONNX infers no types."""
    try:
        inferred = shape_inference.infer_shapes(model)
    except Exception:  # it has its own exception types; nothing that it cannot read is run
        return
    _change(model.graph, inferred.graph, {}, {}, change)


def with_constants(graph: GraphProto, outer: Constants) -> Iterator[tuple[NodeProto, Constants]]:
    """All nodes of the graph and of those inside it, with the constants that they see."""
    constants = _constants(graph, outer)
    for node in graph.node:
        yield node, constants
        for inner in subgraphs(node):
            yield from with_constants(inner, constants)


def _change(graph: GraphProto, inferred: GraphProto, outer: Constants, outer_types: Types, change: Change) -> None:
    """Changes the nodes of a graph and of those inside it; `inferred` is the same graph with its types."""
    constants = _constants(graph, outer)
    types = {**outer_types, **{name: tensor.data_type for name, tensor in constants.items()}}
    for port in (*inferred.input, *inferred.output, *inferred.value_info):
        types[port.name] = port.type.tensor_type.elem_type
    written: list[NodeProto] = []
    for node, twin in zip(graph.node, inferred.node, strict=True):
        for inner, inner_twin in zip(subgraphs(node), subgraphs(twin), strict=True):
            _change(inner, inner_twin, constants, types, change)
        copy = NodeProto()
        copy.CopyFrom(node)
        written.extend(change(copy, constants, types))
        written.append(copy)
    del graph.node[:]
    graph.node.extend(written)


def _constants(graph: GraphProto, outer: Constants) -> dict[str, TensorProto]:
    found = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t
    return found
