"""Which nodes of onnxruntime's optimised graph compute the same as which kernel calls.

onnxruntime fuses nodes as well, and names the results after one of them, or after a tensor.  Calls and nodes that
share a node of the user's graph are in one group: groups are the connected components of that relation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kintune.core.call_times import NodeTime
from kintune.core.profile import IN_ONNXRUNTIME, ComparedGroup, ProfiledCall
from kintune.models.source_graph import GraphNode, absorbed

__all__ = ["compare"]

_ADDED = re.compile(r"(_nchwc|_nhwc|_transpose|_token_\d+|/\w*Fusion\w*|_\w*[Ff]usion\w*|_fused|/duplicated)$")
_FUSED = "fused "


def compare(
    calls: Sequence[ProfiledCall], nodes: Sequence[NodeTime], graph: Sequence[GraphNode], inputs: Iterable[str]
) -> tuple[ComparedGroup, ...]:
    """The groups that hold both calls and nodes, in the order of their calls.

    `graph` has the nodes of the user's file, `inputs` the names of its inputs.
    """
    numbers = {(each.node.name, each.node.op): number for number, each in enumerate(graph)}
    named = _Names(graph)
    sets = _Sets()
    for call in calls:
        if call.where == IN_ONNXRUNTIME:  # it is named as the nodes are
            if (number := named.find(call.kernel)) is not None:
                sets.join(("call", call.place), ("source", number))
            continue
        if call.inserted:
            continue
        for node in call.nodes:
            number = numbers.get((node.name, node.op))
            if number is not None:
                sets.join(("call", call.place), ("source", number))
    owners: dict[int, int] = {}
    for position, theirs in enumerate(nodes):
        number = named.find(theirs.name)
        if number is not None:
            owners.setdefault(number, position)
    for call in calls:
        _extend([numbers[key] for node in call.nodes if (key := (node.name, node.op)) in numbers], owners)
    for position, taken in absorbed(graph, inputs, owners).items():
        owners.update(dict.fromkeys(taken, position))
    for number, position in owners.items():
        sets.join(("node", position), ("source", number))
    us = {call.place: call.us for call in calls}
    groups = []
    for members in sets.all():
        own = tuple(sorted(number for kind, number in members if kind == "call"))
        other = tuple(sorted(number for kind, number in members if kind == "node"))
        if own and other:
            groups.append(ComparedGroup(own, other, sum(us[place] for place in own), sum(nodes[n].us for n in other)))
    return tuple(sorted(groups, key=lambda group: group.calls))


def _extend(nodes: Sequence[int], owners: dict[int, int]) -> None:
    """Give the nodes of one call that have no owner that of the node before them, or else of the first one owned."""
    owner = next((owners[number] for number in nodes if number in owners), None)
    for number in nodes:
        owner = owners.get(number, owner)
        if owner is not None:
            owners[number] = owner


class _Names:
    """Finds the node of the user's graph that a name of onnxruntime stands for."""

    def __init__(self, graph: Sequence[GraphNode]) -> None:
        self._nodes = {each.node.name: number for number, each in enumerate(graph)}
        self._tensors = {tensor: number for number, each in enumerate(graph) for tensor in each.outputs}

    def find(self, name: str) -> int | None:
        """The number of the node; None where the name belongs to no node."""
        name = name.removeprefix(_FUSED)
        while name:
            if (found := self._nodes.get(name, self._tensors.get(name))) is not None:
                return found
            shorter = _ADDED.sub("", name)
            if shorter == name:
                return None
            name = shorter
        return None


class _Sets:
    """Disjoint sets of members, which `join` unites (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[tuple[str, int], tuple[str, int]] = {}

    def join(self, one: tuple[str, int], other: tuple[str, int]) -> None:
        """Put both into one set."""
        self._parents[self._root(one)] = self._root(other)

    def all(self) -> Iterable[list[tuple[str, int]]]:
        """The sets."""
        found: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for member in list(self._parents):
            found.setdefault(self._root(member), []).append(member)
        return found.values()

    def _root(self, member: tuple[str, int]) -> tuple[str, int]:
        self._parents.setdefault(member, member)
        while (parent := self._parents[member]) != member:
            self._parents[member] = self._parents[parent]
            member = parent
        return member
