"""A drawn graph: its nodes in order, and the value of every tensor for its first set of inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, numpy_helper

from kintune.models.onnx_nodes import used_tensors
from kintune_lab.fuzz.evaluation import Refused, Value, model_of, value_info
from kintune_lab.fuzz.values import ANY, Array, LeafRole

__all__ = ["DrawnCase", "DrawnGraph", "Leaf", "as_case"]

Feeds: TypeAlias = "dict[str, Array]"


@dataclass
class Leaf:
    """A tensor that no node computes: a constant of the graph, or an input whose values `role` describes."""

    constant: bool
    role: LeafRole = ANY


@dataclass
class DrawnGraph:
    """Nodes with all values of the first set of inputs; `disputed` has what the two references differ about."""

    opset: int
    nodes: list[NodeProto] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    leaves: dict[str, Leaf] = field(default_factory=dict)
    disputed: list[str] = field(default_factory=list)
    names: int = 0


@dataclass(frozen=True)
class DrawnCase:
    """A model with one set of inputs, the outputs of which are compared in the order of `outputs`."""

    model: ModelProto
    nodes: tuple[NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: frozenset[str]


def as_case(drawn: DrawnGraph, kept: Collection[int] | None = None, outputs: Sequence[str] = ()) -> DrawnCase:
    """The model of a graph, or of some of its nodes: what the others compute becomes an input, or a constant.

    Its outputs are what no node reads, and those of `outputs` that its nodes compute.

    Raises:
        Refused: a tensor that would be an input or an output is a sequence.
    """
    nodes = [node for at, node in enumerate(drawn.nodes) if kept is None or at in kept]
    made = {name for node in nodes for name in node.output if name}
    read = [name for node in nodes for name in used_tensors(node)]
    given = [name for name in dict.fromkeys(read) if name not in made]
    fixed = _fixed(drawn)
    graph = GraphProto(name="drawn")
    graph.node.extend(nodes)
    inputs = []
    for name in given:
        value = drawn.values[name]
        if isinstance(value, list):
            raise Refused(f"{name} is a sequence")
        if name in fixed:
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name))
        else:
            inputs.append(name)
            graph.input.append(value_info(name, value))
    found = [
        name
        for name in dict.fromkeys(name for node in nodes for name in node.output if name)
        if (name not in read or name in outputs) and not isinstance(drawn.values[name], list)
    ]
    graph.output.extend(value_info(name, drawn.values[name]) for name in found)
    if not found:
        raise Refused("there is no output")
    return DrawnCase(model_of(graph, drawn.opset), tuple(nodes), tuple(inputs), tuple(found), frozenset(fixed))


def _fixed(drawn: DrawnGraph) -> set[str]:
    """The tensors that depend on no input."""
    fixed = {name for name, leaf in drawn.leaves.items() if leaf.constant}
    for node in drawn.nodes:
        if fixed.issuperset(used_tensors(node)):
            fixed.update(name for name in node.output if name)
    return fixed
