"""Walks over everything an ONNX model nests: subgraphs of If, Loop and Scan, and local functions."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["nested_tensors", "nodes", "subgraphs"]


def nodes(model: ModelProto) -> Iterator[NodeProto]:
    """All nodes of the model, of its subgraphs at any depth, and of its local functions."""
    for node in model.graph.node:
        yield from _with_subgraphs(node)
    for function in model.functions:
        for node in function.node:
            yield from _with_subgraphs(node)


def nested_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """All tensors but the graph's own initializers: attributes of nodes, and initializers of subgraphs."""
    for node in nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            yield from _sparse(attribute)
            for graph in _graphs(attribute):
                yield from graph.initializer
                for tensor in graph.sparse_initializer:
                    yield tensor.values
                    yield tensor.indices


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds itself, such as the branches of an If."""
    for attribute in node.attribute:
        yield from _graphs(attribute)


def _with_subgraphs(node: NodeProto) -> Iterator[NodeProto]:
    yield node
    for attribute in node.attribute:
        for graph in _graphs(attribute):
            for inner in graph.node:
                yield from _with_subgraphs(inner)


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _sparse(attribute: AttributeProto) -> Iterator[TensorProto]:
    tensors = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for tensor in (*tensors, *attribute.sparse_tensors):
        yield tensor.values
        yield tensor.indices
