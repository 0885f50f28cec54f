"""Indices of any type are kept inside the tensor, and those inside of it are not changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def guarded(make: Any, size: int, dtype: str, count: int) -> Any:
    """Runs what `make` computes from a vector of this size and from as many indices, with the indices guarded."""
    import tvm
    from tvm import relax

    from kintune.core.model import Tensor
    from kintune.models.index_guard import guard_indices

    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType([size], "float32"))
    index = relax.Var("i", relax.TensorType([count], dtype))
    with builder.function("main", [data, index]):
        with builder.dataflow():
            result = builder.emit_output(make(relax.op, data, index))
        builder.emit_func_output(result)
    inputs = (Tensor("x", (size,), "float32"), Tensor("i", (count,), dtype))
    module = guard_indices(builder.get(), inputs, {}, {}).module
    machine = relax.VirtualMachine(tvm.compile(relax.get_pipeline("zero")(module), "llvm"), tvm.cpu())
    return lambda *values: machine["main"](*map(tvm.runtime.tensor, values)).numpy()


@pytest.mark.parametrize("size", [1, 100, 127, 128, 129, 200, 256, 300])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_all_indices_of_a_narrow_type(size: int, dtype: str) -> None:
    values, x = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1), np.arange(size, dtype=np.float32)
    read = guarded(lambda op, data, index: op.take(data, index, 0), size, dtype, len(values))
    np.testing.assert_array_equal(read(x, values.astype(dtype)), x[np.clip(values, 0, size - 1)])


@pytest.mark.parametrize("size", [1, 100, 127])
def test_negative_indices_of_a_narrow_type_count_from_the_end(size: int) -> None:
    values = np.arange(-128, 128)

    def count(op: Any, data: Any, index: Any) -> Any:
        from tvm import relax

        ones = relax.const(np.ones(len(values), np.float32))
        return op.scatter_elements(data, index, ones, 0, "add")

    expected = np.zeros(size, np.float32)
    np.add.at(expected, np.clip(np.where(values < 0, values + size, values), 0, size - 1), 1)
    found = guarded(count, size, "int8", len(values))(np.zeros(size, np.float32), values.astype(np.int8))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        *(("take", dtype) for dtype in ("int16", "uint16", "int32", "uint32", "int64", "uint64")),
        *((operator, "int64") for operator in ("gather_elements", "gather_nd")),
    ],
)
def test_extremes_of_a_wide_type(operator: str, dtype: str) -> None:
    limits, size = np.iinfo(dtype), 7
    values = [limits.min, limits.min + 1, 0, 1, size - 1, size, limits.max // 2, limits.max - 1, limits.max]

    def make(op: Any, data: Any, index: Any) -> Any:
        if operator == "gather_nd":
            return op.gather_nd(data, op.reshape(index, [len(values), 1]))
        return op.take(data, index, 0) if operator == "take" else op.gather_elements(data, index, 0)

    x = np.arange(size, dtype=np.float32)
    found = guarded(make, size, dtype, len(values))(x, np.array(values, dtype))
    np.testing.assert_array_equal(found, x[[min(max(value, 0), size - 1) for value in values]])
