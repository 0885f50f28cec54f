"""Sizes that tensors declare, compared with what is stored of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from kintune.models.stored_size import misfit

WRITTEN = [
    (kind, raw)
    for kind in TensorProto.DataType.values()
    for raw in (False, True)
    if kind != TensorProto.UNDEFINED and not (kind == TensorProto.STRING and raw)
]


@pytest.mark.parametrize(("kind", "raw"), WRITTEN)
def test_what_onnx_writes_fits(kind: int, raw: bool) -> None:
    for shape in ((), (3,), (2, 3), (0, 4)):
        values: Any = np.ones(shape)
        if kind == TensorProto.STRING:
            tensor = helper.make_tensor("t", kind, shape, [b"a"] * values.size)
        else:
            tensor = numpy_helper.from_array(values.astype(helper.tensor_dtype_to_np_dtype(kind)), "t")
            if not raw:
                tensor = helper.make_tensor("t", kind, shape, values.reshape(-1).astype(int).tolist())
        assert misfit(tensor) == ""


def test_what_does_not_fit_is_told() -> None:
    large = TensorProto(data_type=TensorProto.FLOAT, dims=[2**40, 2**40], raw_data=bytes(64))
    assert misfit(large) == f"its shape {2**40}x{2**40} needs {2**82} bytes, and 64 are stored"
    short = TensorProto(data_type=TensorProto.INT64, dims=[3], int64_data=[1, 2])
    assert misfit(short) == "its shape 3 needs 3 elements, and 2 are stored"
    assert "negative" in misfit(TensorProto(data_type=TensorProto.FLOAT, dims=[-1]))
