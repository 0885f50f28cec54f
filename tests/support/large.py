"""Workloads whose data is larger than 2 GiB, almost all of it zeros that take no memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.targets import native_target

__all__ = ["COLUMNS", "DEPTH", "LARGE", "large_product", "sums_of_rows"]

LARGE = (1 << 31) + (1 << 18)
"""Bytes of the data."""

DEPTH, COLUMNS = 4096, 4


def large_product(dtype: str, emit: Callable[[Any, Any], Any]) -> Any:
    """The kernel of a network whose input is the data, of a type; `emit(builder, data)` computes the one result."""
    import tvm
    from tvm import relax

    from kintune.compiler.graph.lower import lower

    builder = relax.BlockBuilder()
    rows = LARGE // DEPTH // np.dtype(dtype).itemsize
    x = relax.Var("x", relax.TensorType((rows, DEPTH), dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(emit(builder, x))
        builder.emit_func_output(found)
    (kernel,) = lower(tvm.IRModule(dict(builder.get().functions_items())), native_target()).workloads
    return kernel.module


def sums_of_rows(module: Any) -> Any:
    """What a module computes of data that is 1 in the first row, 3 in the last, and else 0, and weights of 1.

    Of the result, the first two rows and the last two.
    """
    import tvm

    arrays = [_zeros([int(extent) for extent in p.shape], str(p.dtype)) for p in module["main"].params]
    data, *weights, result = arrays
    data[0], data[-1] = 1, 3
    for array in weights:
        array[...] = 1
    tvm.compile(module, native_target())["main"](*(tvm.runtime.from_dlpack(array) for array in arrays))
    return result[[0, 1, -2, -1]]


def _zeros(shape: list[int], dtype: str) -> Any:
    """Zeros, aligned as the runtime asks for it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)
