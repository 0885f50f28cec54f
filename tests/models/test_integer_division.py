"""The quotient of the least integer by -1 wraps around; onnxruntime alone would end the test by a signal."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from kintune.models.evaluation import evaluate, open_session
from kintune.models.integer_division import guard_divisions
from kintune.models.onnx import read
from kintune.models.onnx_nodes import nodes

LEAST = {name: int(np.iinfo(name).min) for name in ("int32", "int64")}


def parsed(text: str, opset: int = 17) -> ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("dtype", LEAST)
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_a_node_of_constants_is_evaluated(operator: str, dtype: str) -> None:
    dividend = np.array([[LEAST[dtype]], [7]], dtype)
    divisor = np.array([-1, 2, -3], dtype)
    found = evaluate(helper.make_node(operator, ["a", "b"], ["y"]), [dividend, divisor], 17)
    with np.errstate(over="ignore"):
        quotients = [[LEAST[dtype], LEAST[dtype] // 2, -(LEAST[dtype] // 3) - 1], [-7, 3, -2]]
    wanted = quotients if operator == "Div" else [[0, 0, LEAST[dtype] % -3], [0, 1, -2]]
    assert found is not None
    assert found[0].dtype == dtype
    np.testing.assert_array_equal(found[0], np.array(wanted, dtype))


@pytest.mark.parametrize("opset", [7, 11, 17, 23])
def test_a_quotient_that_overflows_is_folded_with_the_graph(samples: Any, opset: int) -> None:
    text = """folded (int64[2] x) => (int64[2] y) {
        least = Constant <value = int64[2] {-9223372036854775808, 9}> ()
        minus = Constant <value = int64 {-1}> ()
        q = Div (least, minus)
        y = Add (x, q)
    }"""
    proto = read(samples.write(parsed(text, opset)), {}).proto
    assert [node.op_type for node in proto.graph.node] == ["Add"]
    (found,) = open_session(proto).run(None, {"x": np.zeros(2, np.int64)})
    np.testing.assert_array_equal(found, [LEAST["int64"], -9])


GUARDED = """guarded (int64[4] a, int64[4] b, int32[4] c, bool s) => (int64[4] p, int64[4] q, int32[4] r, int32[4] t) {
    p = Div (a, b)
    q = Mod (a, b)
    two = Constant <value = int32 {2}> ()
    r = Div (c, two)
    t = If (s) <
        then_branch = then () => (int32[4] u) { u = Div (c, r) },
        else_branch = other () => (int32[4] v) { v = Add (c, r) }>
}"""


def test_guarded_divisions_compute_the_same() -> None:
    model, guarded = parsed(GUARDED), parsed(GUARDED)
    guard_divisions(guarded)
    twice = ModelProto()
    twice.CopyFrom(guarded)
    guard_divisions(twice)
    assert twice == guarded
    made = {name: node for node in nodes(guarded) for name in node.output}
    assert made["r"].input == ["c", "two"]
    feeds: dict[str, Any] = {
        "a": np.array([7, -7, 7, -9]),
        "b": np.array([2, -1, -3, 4]),
        "c": np.array([8, -8, 3, -3], np.int32),
        "s": np.array(True),
    }
    for found, wanted in zip(open_session(guarded).run(None, feeds), open_session(model).run(None, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)
    feeds.update(a=np.full(4, LEAST["int64"]), b=np.full(4, -1), c=np.array([-2, LEAST["int32"], 2, -3], np.int32))
    quotients, remainders, *_ = open_session(guarded).run(None, feeds)
    assert (quotients == LEAST["int64"]).all()
    assert (remainders == 0).all()


def test_quotients_of_other_types_stay() -> None:
    text = """stays (float[2] x, float[2] y, uint8[2] i, int64[2] n) => (float[2] p, uint8[2] j, int64[2] m) {
        p = Div (x, y)
        j = Div (i, i)
        three = Constant <value = int64 {3}> ()
        m = Div (three, n)
    }"""
    model = parsed(text)
    guard_divisions(model)
    assert len(model.graph.node) == 4
