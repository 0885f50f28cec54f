"""The nodes of the user's graph and how they are connected, as the file has them, before simplification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from onnx import GraphProto

from kintune.core.kernel_call import SourceNode
from kintune.models.onnx_nodes import subgraphs

__all__ = ["GraphNode", "absorbed", "onnx_graph"]


_ENDS = frozenset({"Add", "Sub", "Mul", "Div", "BatchNormalization", "Relu", "Clip"})
"""Operators that are folded into the node before them, where they are the only reader of its result."""


class GraphNode(NamedTuple):
    """A node, and the names of the tensors that it reads and computes.

    A `shape_only` node reads the shapes of its inputs, not their values.  An `inner` node is in a branch or a body of
    another node, and may never run.
    """

    node: SourceNode
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape_only: bool = False
    inner: bool = False


def onnx_graph(graph: GraphProto) -> tuple[GraphNode, ...]:
    """The nodes of an ONNX graph in its order; those of graphs inside a node come before it."""
    found: list[GraphNode] = []
    for node in graph.node:
        for graph_inside in subgraphs(node):
            found += (each._replace(inner=True) for each in onnx_graph(graph_inside))
        outputs = tuple(filter(None, node.output))
        name = node.name or next(iter(outputs), "")
        inputs = tuple(filter(None, node.input))
        found.append(GraphNode(SourceNode(name, node.op_type), inputs, outputs, node.op_type in ("Shape", "Size")))
    return tuple(found)


def absorbed(graph: Iterable[GraphNode], inputs: Iterable[str], owners: Mapping[int, int]) -> dict[int, list[int]]:
    """Assigns the nodes that have no owner to one, and returns them as owner -> numbers of nodes.

    `owners` maps the number of a node in `graph` to the number of its owner: the kernel that computes it.  A node
    without one goes to

    1. the owner of the node before it, if it is a bias, scale or activation and the only reader of that node's result;
    2. else the owner that reads its result, the one with the least number of several;
    3. else, where no owner reads its result, the owner before it, the one with the greatest number of several.

    Inner nodes are left out, and so are those whose results do not depend on the values of the `inputs`: these compute
    weights or sizes.
    """
    nodes = list(graph)
    readers: dict[str, list[int]] = {}
    producers: dict[str, int] = {}
    varying = set(inputs)
    for number, each in enumerate(nodes):
        for tensor in each.inputs:
            readers.setdefault(tensor, []).append(number)
        producers.update(dict.fromkeys(each.outputs, number))
        if not each.shape_only and any(tensor in varying for tensor in each.inputs):
            varying.update(each.outputs)
    owned = dict(owners)
    free = [
        number
        for number, each in enumerate(nodes)
        if number not in owned and not each.inner and any(tensor in varying for tensor in each.outputs)
    ]
    found: dict[int, list[int]] = {}
    for number in free:
        before = [producers[tensor] for tensor in nodes[number].inputs if tensor in varying and tensor in producers]
        ends = nodes[number].node.op in _ENDS and len(before) == 1
        if ends and before[0] in owned and sum(len(readers.get(t, ())) for t in nodes[before[0]].outputs) == 1:
            owned[number] = owned[before[0]]
            found.setdefault(owned[number], []).append(number)
    for number in reversed([number for number in free if number not in owned]):
        taking = [owned[r] for tensor in nodes[number].outputs for r in readers.get(tensor, ()) if r in owned]
        if taking:
            owned[number] = min(taking)
            found.setdefault(owned[number], []).insert(0, number)
    for number in free:
        owners_before = [owned[producers[t]] for t in nodes[number].inputs if producers.get(t) in owned]
        if number not in owned and owners_before:
            owned[number] = max(owners_before)
            found.setdefault(owned[number], []).append(number)
    return found
