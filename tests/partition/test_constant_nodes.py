from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, checker

from kintune.partition.constant_nodes import fold_constants
from kintune.partition.tensor_types import infer_types
from tests.support.partitions import computed, drawn, parse, values_of, weight_names


def folded(text: str, **outside: list[float]) -> ModelProto:
    model = parse(text)
    fold_constants(model.graph, 17, {name: np.array(values, np.float32) for name, values in outside.items()})
    return model


def operators(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_what_constants_alone_decide_is_a_weight() -> None:
    text = """m (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
        one = Constant<value = float[2] {1, 1}>()  more = Add(w, one)  most = Mul(more, more)  y = Add(x, most) }"""
    model = folded(text)
    assert operators(model) == ["Add"]
    assert values_of(model, "most").tolist() == [4, 9]
    checker.check_model(model, full_check=True)
    x = drawn(model)
    assert computed(model, x)["y"].tolist() == computed(parse(text), x)["y"].tolist()


def test_a_node_that_computes_an_output_stays() -> None:
    model = folded("m (float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}> { z = Neg(w)  y = Relu(x) }")
    assert operators(model) == ["Neg", "Relu"]


@pytest.mark.parametrize("operator", ["RandomUniformLike", "RandomNormalLike", "Dropout"])
def test_what_is_drawn_stays(operator: str) -> None:
    model = folded(f"m (float[2] x) => (float[2] y) <float[2] w = {{1, 2}}> {{ r = {operator}(w)  y = Add(x, r) }}")
    assert operators(model) == [operator, "Add"]


def test_an_operator_that_onnxruntime_does_not_know_stays() -> None:
    model = folded("m (float[2] x) => (float[2] y) <float[2] w = {1, 2}> {"
                   " r = com.microsoft.Wobble(w)  y = Add(x, r) }")  # fmt: skip
    assert operators(model) == ["Wobble", "Add"]


def test_weights_that_are_not_in_the_graph_count() -> None:
    model = folded("m (float[2] x, float[2] w) => (float[2] y) { r = Neg(w)  y = Add(x, r) }", w=[3, 4])
    assert operators(model) == ["Add"]
    assert values_of(model, "r").tolist() == [-3, -4]


def test_all_outputs_of_a_node_become_weights() -> None:
    model = folded("m (float[2] x) => (float[2] y) <float[4] w = {1, 2, 3, 4}> {"
                   " a, b = Split(w)  h = Add(x, a)  y = Add(h, b) }")  # fmt: skip
    assert operators(model) == ["Add", "Add"]
    assert set(weight_names(model)) >= {"a", "b"}


def test_bodies_are_folded_with_the_weights_around_them() -> None:
    text = """m (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
        n = Neg(w)
        y = If(c) <
            then_branch = yes () => (float[2] a) <float[2] v = {5, 6}> { k = Mul(n, v)  a = Add(x, k) },
            else_branch = no () => (float[2] b) { b = Neg(n) }
        > }"""
    model = folded(text)
    (chosen,) = model.graph.node
    yes, no = sorted((attribute.g for attribute in chosen.attribute), key=lambda graph: graph.name, reverse=True)
    assert [node.op_type for node in yes.node] == ["Add"]
    assert [node.op_type for node in no.node] == ["Neg"]  # it computes the body's output
    for c in (False, True):
        inputs = {"x": np.array([1, 2], np.float32), "c": np.array(c)}
        assert computed(model, inputs)["y"].tolist() == computed(parse(text), inputs)["y"].tolist()


class TestShapes:
    """Shapes that are fixed are constants, although what has them is not."""

    def shapes(self, text: str) -> ModelProto:
        model = parse(text)
        fold_constants(model.graph, 17, {}, infer_types(model))
        return model

    @pytest.mark.parametrize(
        ("attributes", "values"),
        [("", [2, 3, 4]), ("<start = 1>", [3, 4]), ("<end = -1>", [2, 3]), ("<start = -2, end = 2>", [3])],
    )
    def test_a_fixed_shape_is_a_weight(self, attributes: str, values: list[int]) -> None:
        text = f"m (float[2, 3, 4] x) => (int64[N] y) {{ h = Relu(x)  s = Shape{attributes}(h)  y = Neg(s) }}"
        model = self.shapes(text)
        assert operators(model) == ["Relu", "Neg"]
        assert values_of(model, "s").tolist() == values
        assert computed(model, drawn(model))["y"].tolist() == computed(parse(text), drawn(model))["y"].tolist()

    def test_the_number_of_elements_too(self) -> None:
        model = self.shapes("m (float[2, 3] x) => (int64 y) { s = Size(x)  y = Neg(s) }")
        assert values_of(model, "s").tolist() == 6

    def test_what_a_shape_decides_is_a_weight_too(self) -> None:
        model = self.shapes(
            "m (float[2, 3] x) => (float[6] y) <int64[1] rest = {-1}> { s = Shape(x)"
            "  n = ReduceProd<keepdims = 1>(s)  y = Reshape(x, n) }"
        )
        assert operators(model) == ["Reshape"]
        assert values_of(model, "n").tolist() == [6]

    def test_a_shape_that_depends_on_the_data_stays(self) -> None:
        model = self.shapes("m (float[2, 3] x) => (int64[2] y) { n = NonZero(x)  s = Shape(n)  y = Neg(s) }")
        assert operators(model) == ["NonZero", "Shape", "Neg"]

    def test_a_shape_in_a_body(self) -> None:
        text = """m (float[2, 3] x, bool c) => (int64[2] y) {
            k = Constant<value = float[1] {1}>()
            h = Add(x, k)
            y = If(c) <
                then_branch = yes () => (int64[2] a) { s = Shape(h)  a = Neg(s) },
                else_branch = no () => (int64[2] b) { t = Transpose(h)  s2 = Shape(t)  b = Neg(s2) }
            > }"""
        model = self.shapes(text)
        bodies = {a.g.name: [node.op_type for node in a.g.node] for a in model.graph.node[-1].attribute}
        assert bodies == {"yes": ["Neg"], "no": ["Transpose", "Neg"]}
        for c in (False, True):
            inputs = {"x": np.ones((2, 3), np.float32), "c": np.array(c)}
            assert computed(model, inputs)["y"].tolist() == computed(parse(text), inputs)["y"].tolist()


@pytest.mark.parametrize(
    ("reads", "left"),
    [
        ("y = MatMul(x, d)", ["DequantizeLinear", "MatMul"]),
        ("t = Transpose(d)  y = MatMul(x, t)", ["DequantizeLinear", "Transpose", "MatMul"]),
        ("y = Add(x, d)", ["Add"]),
        ("h = MatMul(x, d)  y = Add(h, d)", ["MatMul", "Add"]),
    ],
)
def test_quantised_weights_of_products_stay_integers(reads: str, left: list[str]) -> None:
    model = folded("m (float[2, 2] x) => (float[2, 2] y) <int8[2, 2] w = {1, 2, 3, 4}, float s = {0.5}, int8 z = {0}> {"
                   f" d = DequantizeLinear(w, s, z)  {reads} }}")  # fmt: skip
    assert operators(model) == left
