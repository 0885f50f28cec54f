"""Graphs of bfloat16 in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import GraphProto, TensorProto, helper, numpy_helper

from kintune.models.wide_bfloat16 import widen_bfloat16

W = np.random.default_rng(0).standard_normal((8, 8)).astype(ml_dtypes.bfloat16)


def model(kind: int) -> Any:
    """y = the product of x and a weight, behind a cast."""
    values = W if kind == TensorProto.BFLOAT16 else W.astype(np.float32)
    nodes = [helper.make_node("Cast", ["x"], ["a"], to=kind), helper.make_node("MatMul", ["a", "w"], ["y"])]
    graph: GraphProto = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [2, 8])],
        [helper.make_tensor_value_info("y", kind, [2, 8])],
        [numpy_helper.from_array(values, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_everything_becomes_float32() -> None:
    wide = model(TensorProto.BFLOAT16)
    assert widen_bfloat16(wide) == {"y"}
    session = onnxruntime.InferenceSession(wide.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.ones((2, 8), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ W.astype(np.float32), rtol=1e-5, atol=1e-5)


def test_weights_may_be_changed_first() -> None:
    wide = model(TensorProto.BFLOAT16)
    widen_bfloat16(wide, lambda values: values * 2)
    np.testing.assert_array_equal(numpy_helper.to_array(wide.graph.initializer[0]), 2 * W.astype(np.float32))


def test_a_graph_of_other_types_stays() -> None:
    plain = model(TensorProto.FLOAT)
    before = plain.SerializeToString()
    assert widen_bfloat16(plain) is None
    assert plain.SerializeToString() == before
