from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, checker, numpy_helper

from kintune.partition.single_node import SingleNode, single_node
from kintune.partition.tensor_types import TensorType, infer_types
from tests.support.partitions import computed, parse


def alone(model: ModelProto, number: int = 0, outside: dict[str, TensorType] | None = None) -> SingleNode | None:
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    types = infer_types(model)[()]
    return single_node(model.graph.node[number], types, weights, list(model.opset_import), (outside or {}).get)


def digest(text: str, opset: int = 17) -> str:
    found = alone(parse(text, opset=opset))
    assert found is not None
    return found.digest


ADD = "m (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }"


def test_the_model_computes_what_the_node_computes() -> None:
    found = alone(
        parse("m (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { h = Relu(x) y = Mul(h, w) }"), 1
    )
    assert found is not None
    checker.check_model(found.model, full_check=True)
    assert found.inputs == {"h": (2, 3)}
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert computed(found.model, {"h": x})["y"].tolist() == (x * [1, 2, 3]).tolist()


class TestDigest:
    def test_names_say_nothing(self) -> None:
        other = "m (float[2, 3] left) => (float[2, 3] sum) <float[3] b = {1, 2, 3}> { sum = Add(left, b) }"
        named = parse(ADD)
        named.graph.node[0].name = "a name"
        found = alone(named)
        assert found is not None
        assert digest(ADD) == digest(other) == found.digest

    @pytest.mark.parametrize(
        "other",
        [
            "m (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 4}> { y = Add(x, w) }",
            "m (float[4, 3] x) => (float[4, 3] y) <float[3] w = {1, 2, 3}> { y = Add(x, w) }",
            "m (double[2, 3] x) => (double[2, 3] y) <double[3] w = {1, 2, 3}> { y = Add(x, w) }",
            "m (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { y = Add(w, x) }",
            "m (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { y = Sub(x, w) }",
            "m (float[2, 3] x, float[3] w) => (float[2, 3] y) { y = Add(x, w) }",
            "m (float[2, 3] x) => (float[2, 3] y) { y = Add(x, x) }",
        ],
    )
    def test_constants_shapes_types_order_and_operator_say_something(self, other: str) -> None:
        assert digest(ADD) != digest(other)

    def test_attributes_and_the_opset_say_something(self) -> None:
        text = "m (float[2, 3] x) => (float[2, 3] y) { y = Softmax<axis = 1>(x) }"
        assert digest(text) == digest(text)
        assert digest(text) != digest(text.replace("axis = 1", "axis = 0"))
        assert digest(text) != digest(text, opset=13)

    def test_the_values_of_a_large_constant_say_nothing(self) -> None:
        """Weights of a layer do not decide how it is compiled."""

        def conv(value: float) -> str:
            model = parse("m (float[1, 16, 8, 8] x) => (float[1, 16, 6, 6] y) { y = Conv(x, w) }")
            weight = np.full((16, 16, 3, 3), value, np.float32)
            model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
            found = alone(model)
            assert found is not None
            return found.digest

        assert conv(1.0) == conv(2.0)

    def test_an_output_that_is_left_out_says_something(self) -> None:
        both = "m (float[4] x) => (float[2] v, int64[2] i) <int64[1] k = {2}> { v, i = TopK(x, k) }"
        one = 'm (float[4] x) => (float[2] v) <int64[1] k = {2}> { v, "" = TopK(x, k) }'
        model = parse(both)
        del model.graph.output[1:]
        model.graph.node[0].output[1] = ""
        found = alone(model)
        assert found is not None, one
        assert [value.name for value in found.model.graph.output] == ["v"]
        assert digest(both) != found.digest


class TestWhatIsNotFixed:
    @pytest.mark.parametrize(
        "text",
        [
            "m (float[2, 3] x) => (int64[2, N] y) { y = NonZero(x) }",  # its output
            "m (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }",  # its input
            "m (float[0, 3] x) => (float[0, 3] y) { y = Relu(x) }",  # nothing to compute
            "m (string[2] x) => (string[2] y) { y = Identity(x) }",
            "m (float[2] x) => (float[2] y) { y = com.microsoft.Wobble(h) }",  # of unknown type
        ],
    )
    def test_the_node_cannot_stand_alone(self, text: str) -> None:
        assert alone(parse(text)) is None


def test_a_weight_that_is_not_in_the_graph_is_an_input() -> None:
    model = parse("m (float[2, 3] x) => (float[2, 4] y) { y = MatMul(x, w) }")
    found = alone(model, outside={"w": TensorType(TensorProto.FLOAT, (3, 4))})
    assert found is not None
    assert found.inputs == {"x": (2, 3), "w": (3, 4)}


def test_what_a_body_takes_from_around_it_is_an_input_too() -> None:
    model = parse(
        """m (float[2] x, bool c) => (float[2] y) { y = If(c) <
            then_branch = a () => (float[2] p) { p = Relu(x) }, else_branch = b () => (float[2] q) { q = Neg(x) }> }"""
    )
    found = alone(model)
    assert found is not None
    assert found.inputs == {"c": (), "x": (2,)}
