"""Composes the host graph of a hybrid result, and extracts regions from a graph.  Does not import TVM.

A *marked* graph is the user's graph, prepared for import, in which the `doc_string` of a node names its region, and in
which the types of all tensors that regions read or write are declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from kintune.core.hybrid import Region
from kintune.errors import OrderError
from kintune.models.onnx_nodes import sort_nodes, subgraphs, used_tensors
from kintune.runtime.hybrid_package import operator_domain

__all__ = ["compose", "drop_unused_weights", "extract", "mark", "region_of", "region_operator", "unmarked"]

_MARK = "kintune region "


def region_operator(number: int) -> str:
    """The name of the operator that stands for the region of this number."""
    return f"Region{number}"


def mark(node: NodeProto, region: int) -> None:
    """Mark a node as belonging to the region of this number."""
    node.doc_string = f"{_MARK}{region}"


def region_of(node: NodeProto) -> int | None:
    """The number of the region that the node is marked as belonging to; None where it has no mark."""
    text = node.doc_string
    return int(text[len(_MARK) :]) if text.startswith(_MARK) else None


def unmarked(model: ModelProto) -> ModelProto:
    """A copy of a marked graph without its marks."""
    plain = ModelProto()
    plain.CopyFrom(model)
    for graph in _graphs(plain.graph):
        for node in graph.node:
            if region_of(node) is not None:
                node.ClearField("doc_string")
    return plain


def compose(marked: ModelProto, regions: Sequence[Region], kept: Sequence[int], model_digest: str) -> ModelProto:
    """Return the host graph, in which each region in `kept` is one node: an operator `Region0`, `Region1` and so on.

    `regions` are all regions of the marked graph; those in `kept` get new numbers in this order.  Weights that only
    regions read are left out.
    """
    host = ModelProto()
    host.CopyFrom(marked)
    numbers = {region: number for number, region in enumerate(kept)}
    domain = operator_domain(model_digest)
    _replace(host.graph, regions, numbers, domain)
    drop_unused_weights(host.graph)
    if kept:
        host.opset_import.append(helper.make_opsetid(domain, 1))
    sort_nodes("the host graph", host.graph)
    return host


def extract(marked: ModelProto, region: Region, number: int) -> ModelProto:
    """Return a model of one region alone: region `number` of the marked graph, including its weights.

    Raises:
        OrderError: when the graph has no such region.
    """
    found = _find(marked.graph, number, ())
    if found is None:
        raise OrderError(f"the graph has no region {number}")
    scopes = found
    graph = GraphProto(name=region.name)
    declared: dict[str, ValueInfoProto] = {}
    weights: dict[str, TensorProto] = {}
    for scope in scopes:
        declared.update((value.name, value) for value in (*scope.input, *scope.output, *scope.value_info))
        weights.update((tensor.name, tensor) for tensor in scope.initializer)
    for node in scopes[-1].node:
        if region_of(node) == number:
            added = graph.node.add()
            added.CopyFrom(node)
            added.ClearField("doc_string")
    graph.input.extend(declared[name] for name in region.inputs)
    graph.output.extend(declared[name] for name in region.outputs)
    own = {name for node in graph.node for name in node.output}
    read = dict.fromkeys(name for node in graph.node for name in used_tensors(node) if name not in own)
    graph.initializer.extend(weights[name] for name in read if name in weights and name not in region.inputs)
    model = ModelProto(ir_version=marked.ir_version, producer_name=marked.producer_name, graph=graph)
    model.opset_import.extend(marked.opset_import)
    return model


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _find(graph: GraphProto, number: int, around: tuple[GraphProto, ...]) -> tuple[GraphProto, ...] | None:
    """The graphs around the nodes of a region, from the main graph inwards; None if there is no such region."""
    scopes = (*around, graph)
    if any(region_of(node) == number for node in graph.node):
        return scopes
    for node in graph.node:
        for inner in subgraphs(node):
            if (found := _find(inner, number, scopes)) is not None:
                return found
    return None


def _replace(graph: GraphProto, regions: Sequence[Region], numbers: Mapping[int, int], domain: str) -> None:
    nodes: list[NodeProto] = []
    placed: set[int] = set()
    for node in graph.node:
        region = region_of(node)
        if region is None or region not in numbers:
            for inner in subgraphs(node):
                _replace(inner, regions, numbers, domain)
            if region is not None:
                node.ClearField("doc_string")
            nodes.append(node)
        elif region not in placed:
            placed.add(region)
            about = regions[region]
            operator = region_operator(numbers[region])
            nodes.append(helper.make_node(operator, about.inputs, about.outputs, about.name, domain=domain))
    copies = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def drop_unused_weights(graph: GraphProto) -> set[str]:
    """Remove weights that nothing reads, also in bodies; returns the names of all tensors that are read."""
    read = {value.name for value in graph.output}
    for node in graph.node:
        read.update(name for name in node.input if name)
        for inner in subgraphs(node):
            read |= drop_unused_weights(inner)
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) < len(graph.initializer):
        names = {tensor.name for tensor in kept}
        for position in reversed(range(len(graph.initializer))):
            if graph.initializer[position].name not in names:
                del graph.initializer[position]
    return read
