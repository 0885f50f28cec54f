"""Optionals, and a product of integers of 16 bits, which onnxruntime computes on no CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from kintune.errors import ModelError

pytestmark = pytest.mark.tvm


def test_optionals_are_what_they_hold(compare_model: Any) -> None:
    x = np.array([[-1.5, 2.5]], np.float32)
    nodes = [
        helper.make_node("Optional", ["x"], ["held"]),
        helper.make_node("OptionalHasElement", ["held"], ["has"]),
        helper.make_node("OptionalGetElement", ["held"], ["value"]),
        helper.make_node("Relu", ["value"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    results = [("y", TensorProto.FLOAT, x.shape), ("has", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "graph", ports, [helper.make_tensor_value_info(*each) for each in results])
    compare_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), {"x": x})


def test_products_of_integers_of_16_bits(compare: Any, make_case: Any) -> None:
    left = np.array([[-30000, 2, 3]], np.int16)
    right = np.array([[60000], [4], [5]], np.uint16)
    expected = [left.astype(np.int32) @ right.astype(np.int32)]
    bad = make_case("MatMulInteger16", left, right.astype(np.float32), domain="com.microsoft")
    with pytest.raises(ModelError, match="input 1 has elements of float32"):
        compare([bad], 17, expected=[])
    compare([make_case("MatMulInteger16", left, right, domain="com.microsoft")], 17, expected=expected)
