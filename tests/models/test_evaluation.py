"""Nodes of constants are evaluated in onnxruntime, but where it deviates from the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from kintune.models.evaluation import evaluate


@pytest.mark.parametrize("special", [np.nan, -np.inf])
@pytest.mark.parametrize("operator", ["ReduceMax", "GlobalMaxPool", "ArgMax"])
def test_maxima_of_what_is_not_finite_are_left_to_the_compiler(operator: str, special: float) -> None:
    node = helper.make_node(operator, ["x"], ["y"])
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    assert evaluate(node, [x], 17) is not None
    x[0, 0, 3] = special
    assert evaluate(node, [x], 17) is None


@pytest.mark.parametrize(
    ("operator", "attributes", "common", "x"),
    [
        ("Shrink", {}, np.array([0.7], np.float32), np.array([0.7])),
        ("ReduceSum", {}, np.array([3, 1 << 18]), np.array([3, 1 << 60])),
        ("ReduceSumSquare", {}, np.array([3, 1 << 18]), np.array([3, -(1 << 30)])),
        ("MeanVarianceNormalization", {"axes": [0]}, None, np.array([2, 2], np.float32)),
    ],
)
def test_what_onnxruntime_computes_otherwise_is_left_to_the_compiler(
    operator: str, attributes: dict[str, Any], common: NDArray[Any] | None, x: NDArray[Any]
) -> None:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    assert evaluate(node, [x], 12) is None
    if common is not None:
        assert evaluate(node, [common], 12) is not None


def test_bits_are_no_numbers() -> None:
    """onnxruntime returns the bits of the floats of 8 bits that it has."""
    x = np.array([1.5, -4], np.float32)
    assert evaluate(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN), [x], 21) is None
    assert evaluate(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT8), [x], 21) is not None


def test_products_of_no_elements_are_left_to_the_compiler() -> None:
    """onnxruntime does not write them."""
    one, zero = np.array(0.5, np.float32), np.array(3, np.uint8)
    node = helper.make_node("QLinearMatMul", ["a", "s", "z", "b", "s", "z", "s", "z"], ["y"])
    for size in (0, 2):
        a, b = np.ones(size, np.uint8), np.ones((size, 3), np.uint8)
        assert (evaluate(node, [a, one, zero, b, one, zero, one, zero], 13) is None) == (size == 0)
