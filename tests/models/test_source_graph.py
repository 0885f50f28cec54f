"""The user's nodes, and who took in those that left no kernel."""

from __future__ import annotations

from onnx import TensorProto, helper

from kintune.core.kernel_call import SourceNode
from kintune.models.source_graph import GraphNode, absorbed, onnx_graph


def node(op: str, inputs: str, output: str, *, shape_only: bool = False, inner: bool = False) -> GraphNode:
    return GraphNode(SourceNode(output, op), tuple(inputs.split()), (output,), shape_only, inner)


def test_an_unnamed_node_is_called_after_its_result() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Shape", ["h"], ["y"], "size")]
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    first, second = onnx_graph(helper.make_graph(nodes, "g", [port], []))
    assert (first.node, first.shape_only) == (SourceNode("h", "Relu"), False)
    assert (second.node, second.shape_only) == (SourceNode("size", "Shape"), True)


def test_nodes_of_branches_are_marked() -> None:
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["b"])], "b", [], [])
    choice = helper.make_node("If", ["c"], ["y"], "choice", then_branch=branch, else_branch=branch)
    found = onnx_graph(helper.make_graph([choice], "g", [], []))
    assert [(each.node.op, each.inner) for each in found] == [("Relu", True), ("Relu", True), ("If", False)]


def test_a_node_goes_to_what_reads_it() -> None:
    graph = [node("Conv", "x w", "c"), node("BatchNormalization", "c s", "b"), node("Relu", "b", "r")]
    assert absorbed(graph, ["x"], {1: 7, 2: 7}) == {7: [0]}


def test_a_node_that_nobody_reads_goes_to_what_is_before_it() -> None:
    graph = [node("Gemm", "x w", "g"), node("Identity", "g", "y")]
    assert absorbed(graph, ["x"], {0: 3}) == {3: [1]}


def test_weights_sizes_and_branches_belong_to_nobody() -> None:
    graph = [
        node("Transpose", "w", "wt"),
        node("Shape", "x", "size", shape_only=True),
        node("Relu", "x", "aside", inner=True),
        node("MatMul", "x wt", "y"),
    ]
    assert absorbed(graph, ["x"], {3: 0}) == {}


def test_of_several_readers_the_first_kernel_takes_it() -> None:
    graph = [node("Reshape", "x", "r"), node("Relu", "r", "a"), node("Exp", "r", "b")]
    assert absorbed(graph, ["x"], {1: 2, 2: 1}) == {1: [0]}
