"""Nodes in an order in which each comes after what it uses; some exporters write them in another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from onnx import GraphProto, NodeProto

from kintune.errors import ModelError
from kintune.models.walk import subgraphs

__all__ = ["describe_node", "sort_nodes"]


def sort_nodes(label: str, graph: GraphProto) -> None:
    """Bring the nodes of `graph`, and of the graphs inside it, into an order that they can be computed in.

    Nodes that are in order stay as they are; otherwise the order in the file decides between nodes that could follow.

    Raises:
        ModelError: nodes need each other's results; one of them is named.
    """
    for node in graph.node:
        for inner in subgraphs(node):
            sort_nodes(label, inner)
    producers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    needed = [
        {producers[name] for name in _used(node) if name in producers} if producers else set() for node in graph.node
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


def describe_node(node: NodeProto) -> str:
    """A node as messages name it: by its name, else by its first output; and its operator."""
    name = node.name or next((name for name in node.output if name), "without a name")
    return f"{name} ({node.op_type})"


def _used(node: NodeProto) -> Iterator[str]:
    """All that a node needs from around it: its inputs, and what the graphs inside it take from outside."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        yield from _free(graph)


def _free(graph: GraphProto) -> Iterator[str]:
    own = {value.name for value in graph.input}
    own |= {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in _used(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def _ordered(needed: list[set[int]]) -> Iterable[int]:
    """The indices of nodes, depth first along what each needs, in the file's order; nodes on cycles are left out."""
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
    """A node on a cycle: whoever follows what is needed from a node that is stuck comes back to one."""
    seen: set[int] = set()
    index = start
    while index not in seen:
        seen.add(index)
        index = next(before for before in sorted(needed[index]) if before not in done)
    return graph.node[index]
