from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from kintune.errors import ModelError
from kintune.models.graph_file import open_graph
from kintune.models.onnx_nodes import describe_node, sort_nodes

VALUE = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])


def graph_of(nodes: list[Any]) -> Any:
    return helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])], [VALUE])


@given(st.data())
def test_any_order_is_brought_into_one_that_can_be_computed(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    names = ["x", *(f"v{i}" for i in range(count))]
    nodes = [
        helper.make_node("Add", [data.draw(st.sampled_from(names[: i + 1])) for _ in range(2)], [names[i + 1]])
        for i in range(count)
    ]
    graph = graph_of(data.draw(st.permutations(nodes)))
    sort_nodes("m", graph)
    known = {"x"}
    for node in graph.node:
        assert set(node.input) <= known
        known.update(node.output)
    assert sorted(node.output[0] for node in graph.node) == sorted(names[1:])
    once = graph.SerializeToString()
    sort_nodes("m", graph)
    assert graph.SerializeToString() == once


def test_what_a_branch_takes_from_outside_comes_first() -> None:
    inner = helper.make_graph(
        [helper.make_node("Neg", ["b"], ["y_then"]), helper.make_node("Exp", ["late"], ["b"])], "then", [], [VALUE]
    )
    inner.output[0].name = "y_then"
    outer = helper.make_graph([helper.make_node("Abs", ["late"], ["y_else"])], "else", [], [VALUE])
    outer.output[0].name = "y_else"
    graph = graph_of(
        [
            helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=outer),
            helper.make_node("Cast", ["late"], ["flag"], to=TensorProto.BOOL),
            helper.make_node("Relu", ["x"], ["late"]),
        ]
    )
    sort_nodes("m", graph)
    assert [node.op_type for node in graph.node] == ["Relu", "Cast", "If"]
    then = next(a.g for a in graph.node[2].attribute if a.name == "then_branch")
    assert [node.op_type for node in then.node] == ["Exp", "Neg"]


def test_a_cycle_is_refused_with_a_node_on_it(samples: Any) -> None:
    nodes = [
        helper.make_node("Relu", ["c"], ["y"], name="after"),
        helper.make_node("Add", ["x", "c"], ["b"], name="first"),
        helper.make_node("Neg", ["b"], ["c"], name="second"),
    ]
    path = samples.write(samples.make_model(nodes, [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])]))
    with pytest.raises(ModelError, match=r"node (Add 'first'|Neg 'second') needs its own result"):
        open_graph(path)


@pytest.mark.parametrize("as_inputs", [False, True])
def test_old_files_have_weights_that_are_inputs_or_are_not(samples: Any, as_inputs: bool) -> None:
    ports = [("x", TensorProto.FLOAT, [2]), *([("w", TensorProto.FLOAT, [2])] if as_inputs else [])]
    weights = {"w": np.ones(2, np.float32)}
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = samples.make_model([node], ports, [("y", TensorProto.FLOAT, [2])], weights, opset=7)
    model.ir_version = 3
    file = open_graph(samples.write(model))
    assert [value.name for value in file.graph.graph.input] == ["x"]
    assert list(file.weights) == ["w"]


def test_a_name_of_several_lines_is_told_in_one() -> None:
    assert describe_node(helper.make_node("Mul", ["x"], ["y"], name="a\nb")) == "Mul 'a\\nb'"
    assert describe_node(helper.make_node("Mul", ["x"], ["", "größe"])) == "Mul of 'größe'"
