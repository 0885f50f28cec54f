from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def ranges_of(make: Any) -> Any:
    """The interval of what `make` computes from an integer input, a narrow one and a float one."""
    from tvm import relax

    from kintune.models.index_range import Ranges

    builder = relax.BlockBuilder()
    inputs = [relax.Var(n, relax.TensorType([2, 6], d)) for n, d in (("i", "int64"), ("b", "uint8"), ("x", "float32"))]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(make(relax.op, relax.const, *inputs))
        builder.emit_func_output(result)
    ranges = Ranges()
    last: Any = None
    for binding in builder.get()["main"].body.blocks[0].bindings:
        ranges.note(binding.var, binding.value)
        last = binding.var
    return ranges.of(last)


def of(value: int) -> Any:
    return np.int64(value)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda op, c, i, b, x: op.argmax(x, 1), (0, 5)),
        (lambda op, c, i, b, x: op.argsort(x, 1), (0, 5)),
        (lambda op, c, i, b, x: op.topk(x, 2, ret_type="indices"), (0, 5)),
        (lambda op, c, i, b, x: op.floor_mod(i, c(of(4), "int64")), (0, 3)),
        (lambda op, c, i, b, x: op.mod(i, c(of(4), "int64")), (-3, 3)),
        (lambda op, c, i, b, x: op.clip(i, -2, 7), (-2, 7)),
        (lambda op, c, i, b, x: op.maximum(op.minimum(i, c(of(7), "int64")), c(of(0), "int64")), (0, 7)),
        (lambda op, c, i, b, x: op.multiply(op.astype(b, "int64"), c(of(-2), "int64")), (-510, 0)),
        (lambda op, c, i, b, x: op.cumsum(op.astype(op.equal(i, c(of(1), "int64")), "int64"), 1), (0, 6)),
        (lambda op, c, i, b, x: op.sum(op.astype(b, "int64")), (0, 255 * 12)),
        (lambda op, c, i, b, x: op.concat([op.reshape(op.argmin(x, 0), [6]), c(np.array([9]), "int64")]), (0, 9)),
        (lambda op, c, i, b, x: op.add(b, b), (0, 255)),  # it wraps around
        (lambda op, c, i, b, x: op.add(i, c(of(1), "int64")), None),
        (lambda op, c, i, b, x: op.astype(op.clip(x, 0, 3), "int64"), None),  # what is not a number stays that
    ],
)
def test_intervals(make: Any, expected: Any) -> None:
    assert ranges_of(make) == expected
