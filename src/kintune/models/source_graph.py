"""The nodes of the user's graph and how they are connected, as the file has them, before anything is simplified."""

from __future__ import annotations

from typing import NamedTuple

from onnx import GraphProto

from kintune.core.kernel_call import SourceNode
from kintune.models.onnx_nodes import subgraphs

__all__ = ["GraphNode", "onnx_graph"]


class GraphNode(NamedTuple):
    """A node, and the names of the tensors that it reads and makes.

    Where `shape_only`, it looks at the shape of what it reads, and not at the values.
    """

    node: SourceNode
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape_only: bool = False


def onnx_graph(graph: GraphProto) -> tuple[GraphNode, ...]:
    """The nodes of an ONNX graph in its order; those of graphs inside a node come before it."""
    found: list[GraphNode] = []
    for node in graph.node:
        results: list[str] = []
        for inner in subgraphs(node):
            found += onnx_graph(inner)
            results += [value.name for value in inner.output]
        outputs = tuple(filter(None, node.output))
        name = node.name or next(iter(outputs), "")
        inputs = (*filter(None, node.input), *results)
        found.append(GraphNode(SourceNode(name, node.op_type), inputs, outputs, node.op_type in ("Shape", "Size")))
    return tuple(found)
