"""Nodes of constants are evaluated in onnxruntime, but where it ignores a NaN."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from kintune.models.evaluation import evaluate


@pytest.mark.parametrize("special", [np.nan, -np.inf])
@pytest.mark.parametrize("operator", ["ReduceMax", "GlobalMaxPool"])
def test_maxima_of_what_is_not_finite_are_left_to_the_compiler(operator: str, special: float) -> None:
    node = helper.make_node(operator, ["x"], ["y"])
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    assert evaluate(node, [x], 17) is not None
    x[0, 0, 3] = special
    assert evaluate(node, [x], 17) is None


def test_bits_are_no_numbers() -> None:
    """onnxruntime returns the bits of the floats of 8 bits that it has."""
    x = np.array([1.5, -4], np.float32)
    assert evaluate(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN), [x], 21) is None
    assert evaluate(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT8), [x], 21) is not None
