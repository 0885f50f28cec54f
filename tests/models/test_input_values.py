"""The values that a graph demands of its inputs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from kintune.core.model import Tensor
from kintune.models.input_values import InputDemand, onnx_demands
from kintune_runtime.inputs import draw_inputs


def graph(text: str, **constants: object) -> ModelProto:
    """A model of these nodes, a line each: `y = Equal(sr, rate)`; `sr` and `flag` are numbers, `x` has eight."""
    nodes = []
    for line in text.splitlines():
        output, _, call = line.partition(" = ")
        operator, _, inputs = call.rstrip(")").partition("(")
        nodes.append(helper.make_node(operator, inputs.split(", "), [output]))
    kinds = {"sr": TensorProto.INT64, "flag": TensorProto.BOOL, "x": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kind, [8] if name == "x" else []) for name, kind in kinds.items()]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_model(GraphProto(node=nodes, input=inputs, initializer=initializers))


def branch(model: ModelProto, condition: str) -> ModelProto:
    """The model with an If on this tensor."""
    inner = GraphProto(name="branch")
    model.graph.node.append(helper.make_node("If", [condition], ["y"], then_branch=inner, else_branch=inner))
    return model


def test_an_input_is_drawn_from_what_it_is_compared_with() -> None:
    model = graph(
        "a = Equal(sr, wide)\nf = Cast(sr)\nb = Equal(narrow, f)", wide=np.int64(16000), narrow=np.float32(8e3)
    )
    assert onnx_demands(model) == {"sr": InputDemand((16000, 8000))}
    tensor = Tensor("sr", (), "int64", values="choices", choices=(16000, 8000))
    assert [int(draw_inputs([tensor], choice=number)["sr"]) for number in range(3)] == [16000, 8000, 16000]


@pytest.mark.parametrize(("value", "other"), [(16000, 8000), (1, 0), (0, 1), (-1, 0)])
def test_beside_a_single_value_another_one_is_drawn(value: int, other: int) -> None:
    assert onnx_demands(graph("a = Equal(sr, wide)", wide=np.int64(value))) == {"sr": InputDemand((value, other))}


def test_inside_a_branch_it_is_compared_as_well() -> None:
    inner = graph("b = Equal(sr, narrow)", narrow=np.int64(8000)).graph
    model = graph("a = Equal(sr, wide)", wide=np.int64(16000))
    model.graph.node.append(helper.make_node("If", ["a"], ["y"], then_branch=inner, else_branch=inner))
    assert onnx_demands(model)["sr"].choices == (16000, 8000)


def test_an_order_counts_where_a_branch_depends_on_it() -> None:
    model = graph("a = Less(sr, limit)\nb = Not(a)", limit=np.int64(100))
    assert onnx_demands(model) == {}
    assert onnx_demands(branch(model, "b")) == {"sr": InputDemand((100, 99, 101))}


def test_a_flag_is_true_and_false() -> None:
    assert onnx_demands(branch(graph("a = Not(flag)"), "flag")) == {"flag": InputDemand((1, 0))}


@pytest.mark.parametrize(
    ("text", "is_positive"),
    [
        ("y = Sqrt(x)", True),
        ("a = Sub(one, x)\nb = Identity(a)\ny = Log(b)", True),
        ("y = Pow(x, half)", True),
        ("y = Pow(x, one)", False),
        ("a = Mul(x, x)\ny = Sqrt(a)", False),
        ("a = Equal(x, one)", False),
    ],
)
def test_what_a_root_is_taken_of_is_positive(text: str, is_positive: bool) -> None:
    found = onnx_demands(graph(text, one=np.float32(1), half=np.float32(0.5)))
    assert found == ({"x": InputDemand(positive=True)} if is_positive else {})
    drawn = draw_inputs([Tensor("x", (1000,), "float32", values="positive")])["x"]
    assert drawn.min() > 0
    assert drawn.max() < 1


def test_values_that_an_input_cannot_have_are_left_out() -> None:
    model = graph("a = Cast(sr)\nb = Equal(a, odd)", odd=np.array([2.5, 3.0, np.inf]))
    assert onnx_demands(model) == {"sr": InputDemand((3.0,))}
