"""Outputs that are a sigmoid."""

from __future__ import annotations

import numpy as np
from onnx import parser

from kintune.models.final_sigmoids import exact_sigmoid, final_sigmoids, leave_out


def test_only_sigmoids_that_nothing_reads_are_final() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        m (float[2] x) => (float[2] a, float[2] b, float[2] c) {
            a = Sigmoid(x)
            b = Sigmoid(a)
            c = Tanh(x)
        }"""
    )
    assert final_sigmoids(model) == {"b"}
    assert leave_out(model) == {"b"}
    assert [node.op_type for node in model.graph.node] == ["Sigmoid", "Identity", "Tanh"]


def test_it_is_exact_where_float32_is_not() -> None:
    found = exact_sigmoid(np.array([-80.0, -20.0, 0.0, 200.0, -np.inf, np.nan], np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [np.exp(-80.0), 2.0611537e-09, 0.5, 1.0, 0.0, np.nan], rtol=1e-6)
