"""From the variables of an imported function back to the nodes of the user's graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from onnx import GraphProto, ModelProto, NodeProto
from tvm import relax

__all__ = ["describe_node", "described_nodes", "trace"]


def describe_node(node: NodeProto) -> str:
    """How messages name a node: `Conv 'layer1/conv'`, or by its first output where it has no name."""
    if node.name:
        return f"{node.op_type} '{node.name}'"
    return f"{node.op_type} of '{next(filter(None, node.output), '')}'"


def trace(main: relax.Function, known: Mapping[str, str]) -> dict[str, str]:
    """Variable of `main` -> the ONNX tensor whose value it holds, or on the way to which it is computed.

    `known` says it of some variables; those bound before one of them, and after the last other one, help to compute it.
    """
    bound = [str(binding.var.name) for block in main.body.blocks for binding in block.bindings]
    unique = {name for name, count in Counter(bound).items() if count == 1}
    traced = {name: tensor for name, tensor in known.items() if name not in bound or name in unique}
    target = ""
    for name in reversed(bound):
        target = known.get(name, target)
        if target and name in unique:
            traced[name] = target
    return traced


def described_nodes(model: ModelProto, original: ModelProto) -> dict[str, str]:
    """ONNX tensor -> how messages name the node of `original` that computes it, at any depth of subgraphs.

    `model` is `original` with some of its nodes written out in others; what these compute belongs to the node written
    out, which is the next one that `original` knows.
    """
    own: dict[str, str] = {}
    _describe(original.graph, own)
    described: dict[str, str] = {}
    _describe(model.graph, described)
    for tensor, text in _written_out(model.graph, own).items():
        described[tensor] = text
    return {**described, **own}


def _describe(graph: GraphProto, described: dict[str, str]) -> None:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _describe(attribute.g, described)
        for tensor in node.output:
            described[tensor] = describe_node(node)


def _written_out(graph: GraphProto, own: Mapping[str, str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    target = ""
    for node in reversed(graph.node):
        target = next((own[tensor] for tensor in node.output if tensor in own), target)
        for tensor in node.output:
            if target:
                texts[tensor] = target
    return texts
