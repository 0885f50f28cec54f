"""Calls and onnxruntime's nodes that compute the same come together."""

from __future__ import annotations

import msgspec

from kintune.core.call_times import NodeTime
from kintune.core.kernel_call import SourceNode
from kintune.core.profile import IN_ONNXRUNTIME, ProfiledCall
from kintune.models.source_graph import GraphNode
from kintune.profiling.matching import compare


def chain(*nodes: tuple[str, str]) -> list[GraphNode]:
    """A graph of nodes one after another; the tensor of node `a` is `a:0`."""
    before = "x"
    graph = []
    for name, op in nodes:
        graph.append(GraphNode(SourceNode(name, op), (before,), (f"{name}:0",)))
        before = f"{name}:0"
    return graph


def call(place: int, us: float, *nodes: tuple[str, str], inserted: bool = False) -> ProfiledCall:
    named = tuple(SourceNode(name, op) for name, op in nodes)
    return ProfiledCall(place=place, kernel=f"k{place}", title="", nodes=named, us=us, inserted=inserted)


CONV, RELU, POOL, FC = ("conv", "Conv"), ("relu", "Relu"), ("pool", "MaxPool"), ("fc", "Gemm")


def test_a_fused_node_is_found_by_its_tensor() -> None:
    calls = [call(0, 10.0, CONV, RELU), call(1, 4.0, POOL)]
    nodes = [NodeTime("relu:0_nchwc", "Conv", 12.0, 0.0), NodeTime("pool", "MaxPool", 3.0, 12.0)]
    first, second = compare(calls, nodes, chain(CONV, RELU, POOL), ["x"])
    assert (first.calls, first.nodes, first.us, first.onnxruntime_us) == ((0,), (0,), 10.0, 12.0)
    assert (second.calls, second.nodes) == ((1,), (1,))


def test_nodes_that_are_apart_there_are_added() -> None:
    nodes = [NodeTime("fused conv", "Conv", 5.0, 0.0), NodeTime("relu", "Relu", 2.0, 5.0)]
    (group,) = compare([call(0, 10.0, CONV, RELU)], nodes, chain(CONV, RELU), ["x"])
    assert (group.nodes, group.onnxruntime_us) == ((0, 1), 7.0)


def test_calls_that_are_one_node_there_are_one_group() -> None:
    nodes = [NodeTime("relu:0_nchwc", "Conv", 5.0, 0.0)]
    (group,) = compare([call(0, 3.0, CONV), call(1, 1.0, RELU)], nodes, chain(CONV, RELU), ["x"])
    assert (group.calls, group.us) == ((0, 1), 4.0)


def test_what_follows_in_one_call_does_not_join_the_next() -> None:
    calls = [call(0, 3.0, CONV, RELU), call(1, 1.0, FC)]
    nodes = [NodeTime("conv", "FusedConv", 5.0, 0.0), NodeTime("fc", "Gemm", 2.0, 5.0)]
    assert [group.calls for group in compare(calls, nodes, chain(CONV, RELU, FC), ["x"])] == [(0,), (1,)]


def test_what_is_of_one_side_alone_is_in_no_group() -> None:
    calls = [call(0, 3.0, CONV, inserted=True), call(1, 1.0)]
    nodes = [NodeTime("ReorderInput", "ReorderInput", 5.0, 0.0)]
    assert compare(calls, nodes, chain(CONV), ["x"]) == ()


def test_a_node_in_onnxruntime_is_named_as_there() -> None:
    left = msgspec.structs.replace(
        call(0, 3.0, ("relu:0_nchwc", "FusedConv")), kernel="relu:0_nchwc", where=IN_ONNXRUNTIME
    )
    nodes = [NodeTime("relu", "FusedConv", 5.0, 0.0)]
    (group,) = compare([left], nodes, chain(CONV, RELU), ["x"])
    assert (group.calls, group.nodes) == ((0,), (0,))
