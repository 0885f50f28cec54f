from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from kintune.partition import tensor_types
from kintune.partition.tensor_types import TensorType, bodies_of, infer_types
from tests.support.partitions import parse

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

BRANCHES = """
    m (float[2, 3] x, bool c) => (float[2, 3] y) {
        h = Relu(x)
        y = If(c) <
            then_branch = yes () => (float[2, 3] a) { t = Transpose(h)  u = Sqrt(t)  a = Transpose(u) },
            else_branch = no () => (float[2, 3] b) { b = If(c) <
                then_branch = deep () => (float[2, 3] d) { e = Exp(x)  d = Neg(e) },
                else_branch = deeper () => (float[2, 3] f) { f = Identity(x) }
            > }
        >
    }
"""


class TestTensorType:
    def test_an_extent_of_zero_is_known_but_not_fixed(self) -> None:
        assert TensorType(FLOAT, (2, 3)).is_fixed
        assert TensorType(FLOAT, ()).is_fixed
        assert not TensorType(FLOAT, (2, 0)).is_fixed
        assert not TensorType(FLOAT, None).is_fixed

    def test_bytes(self) -> None:
        assert TensorType(FLOAT, (2, 3)).nbytes == 24
        assert TensorType(INT64, ()).nbytes == 8
        assert TensorType(TensorProto.BFLOAT16, (4,)).nbytes == 8
        assert TensorType(FLOAT, None).nbytes == 0
        assert TensorType(TensorProto.STRING, (4,)).nbytes == 0

    def test_names_of_element_types(self) -> None:
        kinds = {FLOAT: "float32", BOOL: "bool", TensorProto.BFLOAT16: "bfloat16", TensorProto.STRING: "string"}
        assert {kind: TensorType(kind, ()).dtype for kind in kinds} == kinds


class TestInferTypes:
    def test_tensors_between_nodes_and_weights(self) -> None:
        types = infer_types(
            parse("m (float[2, 3] x) => (int64[3, 2] y) <float[3] w = {1, 2, 3}> {"
                  " h = Mul(x, w)  t = Transpose(h)  y = Cast<to = 7>(t) }")
        )[()]  # fmt: skip
        assert types["x"] == types["h"] == TensorType(FLOAT, (2, 3))
        assert types["t"] == TensorType(FLOAT, (3, 2))
        assert types["w"] == TensorType(FLOAT, (3,))
        assert types["y"] == TensorType(INT64, (3, 2))

    def test_an_unknown_rank_is_not_that_of_a_scalar(self) -> None:
        """onnxruntime describes both in the same way."""
        types = infer_types(
            parse("m (float[4, 3] x) => (int64[K] y) { h = ai.onnx.ml.Scaler <offset = [1.0], scale = [2.0]> (x)"
                  "  s = Shape(h)  y = Neg(s) }", "ai.onnx.ml")
        )[()]  # fmt: skip
        assert types["h"].shape is None
        assert types["h"].element == FLOAT
        types = infer_types(
            parse("m (float[4, 3] x) => (float y) { h = com.microsoft.Gelu(x)  s = ReduceSum<keepdims = 0>(h)"
                  "  y = com.microsoft.Gelu(s) }")
        )[()]  # fmt: skip
        assert types["h"] == TensorType(FLOAT, (4, 3))
        assert types["s"] == TensorType(FLOAT, ())

    def test_a_shape_that_is_computed_from_shapes(self) -> None:
        types = infer_types(
            parse("m (float[2, 3, 4] x) => (float[N, M] y) <int64[1] two = {2}, int64[1] one = {1}, int64[1] zero = {0}"
                  ", int64[1] rest = {-1}> { s = Shape(x)  r = Slice(s, zero, one)  k = Concat<axis = 0>(r, rest)"
                  "  y = Reshape(x, k) }")
        )[()]  # fmt: skip
        assert types["y"] == TensorType(FLOAT, (2, 12))

    def test_what_depends_on_the_data_has_no_shape(self) -> None:
        types = infer_types(parse("m (float[2, 3] x) => (float[N, M] y) { n = NonZero(x)  y = Cast<to = 1>(n) }"))[()]
        assert types["n"] == TensorType(INT64, None)
        assert types["y"] == TensorType(FLOAT, None)

    def test_operators_of_onnxruntime_are_known_to_onnxruntime(self) -> None:
        types = infer_types(
            parse("m (float[2, 3] x, float[3, 4] w) => (float[2, 4] y) {"
                  " h = com.microsoft.FusedMatMul(x, w)  y = Relu(h) }")
        )[()]  # fmt: skip
        assert types["h"] == TensorType(FLOAT, (2, 4))

    def test_an_operator_that_nobody_knows_has_no_type(self) -> None:
        types = infer_types(parse("m (float[2] x) => (float[2] y) { h = com.microsoft.Wobble(x)  y = Relu(h) }"))[()]
        assert "h" not in types
        assert types["y"] == TensorType(FLOAT, (2,))  # as the file says

    def test_what_is_no_tensor_is_left_out(self) -> None:
        types = infer_types(
            parse("m (float[2] x) => (float[2] y) <int64 at = {0}> {"
                  " s = SequenceConstruct(x, x)  y = SequenceAt(s, at) }")
        )[()]  # fmt: skip
        assert "s" not in types

    def test_bodies_know_the_tensors_around_them(self) -> None:
        types = infer_types(parse(BRANCHES))
        assert set(types) == {(), ((1, 0),), ((1, 1),), ((1, 1), (0, 0)), ((1, 1), (0, 1))}
        yes = types[((1, 0),)]
        assert yes["h"] == TensorType(FLOAT, (2, 3))
        assert yes["u"] == TensorType(FLOAT, (3, 2))
        assert types[((1, 1), (0, 0))]["e"] == TensorType(FLOAT, (2, 3))
        assert "u" not in types[()]

    def test_a_loop_says_nothing_of_shapes_that_may_change(self) -> None:
        types = infer_types(
            parse("""
            m (float[2] x, int64 n, bool c) => (float[N] y) {
                y = Loop(n, c, x) <body = b (int64 i, bool go, float[M] s) => (bool on, float[K] r) {
                    on = Identity(go)  r = Concat<axis = 0>(s, x)
                }>
            }""")
        )
        body = types[((0, 0),)]
        assert body["s"].shape is None
        assert body["r"].shape is None
        assert body["x"] == TensorType(FLOAT, (2,))


def test_bodies_are_found_depth_first() -> None:
    assert [(path, body.name) for path, body in bodies_of(parse(BRANCHES).graph)] == [
        (((1, 0),), "yes"),
        (((1, 1),), "no"),
        (((1, 1), (0, 0)), "deep"),
        (((1, 1), (0, 1)), "deeper"),
    ]


def test_shapes_behind_operators_of_onnxruntime_are_known_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape that is computed from each result ends the standard's inference, unless it knows the operator."""
    monkeypatch.setattr(tensor_types, "_known_to_onnxruntime", lambda model, names: {})
    layers, given = "", "x"
    for number in range(8):
        layers += f"g{number} = com.microsoft.Gelu({given})  s{number} = Shape(g{number})"
        layers += f"  r{number} = Reshape(g{number}, s{number})"
        layers += f"  n{number} = com.microsoft.SkipLayerNormalization(r{number}, x, w)  "
        given = f"n{number}"
    types = infer_types(
        parse(f"m (float[1, 2, 3] x) => (float[a, b, c] y) <float[3] w = {{1, 2, 3}}> {{ {layers}"
              f"  y = com.microsoft.FusedMatMul<transA = 1>({given}, {given}) }}")
    )[()]  # fmt: skip
    assert {types[f"{each}7"] for each in "grn"} == {TensorType(FLOAT, (1, 2, 3))}
    assert types["s7"] == TensorType(INT64, (3,))
    assert types["y"].shape is None, "a transposed operand has another shape"


def test_a_quantised_recurrent_layer_has_the_shapes_of_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_types, "_known_to_onnxruntime", lambda model, names: {})
    names = ["x", "w", "r", *[""] * 5, "s", "z", "s", "z"]
    layer = helper.make_node(
        "DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=4, direction="bidirectional"
    )
    model = parse("m (float[5, 1, 8] x, int8[2, 8, 16] w, int8[2, 4, 16] r, float[2] s, int8[2] z) => (float y) {}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.node.append(layer)
    assert infer_types(model)[()]["y"] == TensorType(FLOAT, (5, 2, 1, 4))
