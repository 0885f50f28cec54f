"""The nodes of an ONNX model: iteration over nested ones too, topological order, and names for messages.

Nodes are nested in the subgraphs of If, Loop and Scan, and in local functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from kintune.errors import ModelError

__all__ = [
    "DEFAULT_DOMAINS",
    "describe_node",
    "described_nodes",
    "nested_tensors",
    "nodes",
    "operator_name",
    "sort_nodes",
    "subgraphs",
    "used_tensors",
]

DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})
"""The names of the ONNX standard's operator set."""


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


def sort_nodes(label: str, graph: GraphProto) -> None:
    """Sort the nodes of `graph`, and of the graphs inside it, topologically.

    A graph that is sorted already is left as it is.

    Raises:
        ModelError: when nodes need each other's results; one of them is named.
    """
    for node in graph.node:
        for inner in subgraphs(node):
            sort_nodes(label, inner)
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needed = [
        {producers[name] for name in used_tensors(node) if name in producers} if producers else set()
        for node in graph.node
    ]
    if all(index > latest for index, before in enumerate(needed) for latest in before):
        return
    order = list(_ordered(needed))
    if len(order) < len(needed):
        stuck = next(index for index in range(len(needed)) if index not in set(order))
        raise ModelError(
            f"{label}: is not a valid ONNX model: node {describe_node(_on_cycle(graph, needed, set(order), stuck))} "
            "needs its own result, the graph has a cycle"
        )
    nodes = [NodeProto.FromString(graph.node[index].SerializeToString()) for index in order]
    del graph.node[:]
    graph.node.extend(nodes)


def used_tensors(node: NodeProto) -> Iterator[str]:
    """The tensors that a node reads: its inputs, and those that graphs inside it take from outside."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        yield from _free(graph)


def _free(graph: GraphProto) -> Iterator[str]:
    own = {value.name for value in graph.input}
    own |= {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in used_tensors(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def _ordered(needed: list[set[int]]) -> Iterable[int]:
    """A topological order of node indices, by Kahn's algorithm with a stack, which follows users depth first.

    `needed` has, for each node, the nodes whose results it reads.  Nodes on cycles, and those after them, are left out.
    Nodes that become ready at the same time keep the file's order.
    """
    missing = [len(before) for before in needed]
    users: dict[int, list[int]] = defaultdict(list)
    for index, before in enumerate(needed):
        for source in before:
            users[source].append(index)
    ready = [index for index, count in enumerate(missing) if count == 0]
    order: list[int] = []
    ready.reverse()
    while ready:
        index = ready.pop()
        order.append(index)
        for user in reversed(users[index]):
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    return order


def _on_cycle(graph: GraphProto, needed: list[set[int]], done: set[int], start: int) -> NodeProto:
    """A node on a cycle: a walk along what each node needs, from one that is never ready, ends in a cycle."""
    seen: set[int] = set()
    index = start
    while index not in seen:
        seen.add(index)
        index = next(before for before in sorted(needed[index]) if before not in done)
    return graph.node[index]


def describe_node(node: NodeProto) -> str:
    """How messages name a node: `Conv 'layer1/conv'`, or by its first output where it has no name; in one line."""
    named = f"'{node.name}'" if node.name else f"of '{next(filter(None, node.output), '')}'"
    said = f"{node.op_type} {named}"
    return said if said.isprintable() else said.encode("unicode_escape").decode()


def operator_name(node: NodeProto) -> str:
    """How messages name the operator of a node: `LSTM`, and `com.microsoft::Gelu` of another domain."""
    return node.op_type if node.domain in DEFAULT_DOMAINS else f"{node.domain}::{node.op_type}"


def described_nodes(model: ModelProto, original: ModelProto) -> dict[str, str]:
    """Maps each ONNX tensor to the text that names the node of `original` that computes it, at any depth of subgraphs.

    `model` is `original` with some nodes replaced by several others.  A tensor that is not in `original` belongs to the
    next node whose outputs are.
    """
    own: dict[str, str] = {}
    _described(original.graph, own)
    described: dict[str, str] = {}
    _described(model.graph, described)
    for tensor, text in _written_out(model.graph, own).items():
        described[tensor] = text
    return {**described, **own}


def _described(graph: GraphProto, described: dict[str, str]) -> None:
    for node in graph.node:
        for inner in subgraphs(node):
            _described(inner, described)
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
