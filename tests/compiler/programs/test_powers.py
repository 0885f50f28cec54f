"""The exponential function of numbers that are not positive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("vector", [1, 16])
def test_every_number_that_is_not_positive(vector: int) -> None:
    import tvm
    from tvm import te

    from kintune.compiler.programs.powers import power_of_e

    reach = -np.logspace(-45, 38.5, 1 << 14, dtype=np.float64).astype(np.float32)
    x = np.concatenate([reach, np.array([0.0, -0.0, -np.inf, np.nan, -86.64, -86.65, -87.4], np.float32)])
    x = np.resize(x, (len(x) + 15) // 16 * 16)
    source = te.placeholder(x.shape, name="source")
    result: Any = te.compute(x.shape, lambda i: power_of_e(source[i]), name="result")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([source, result]).with_attr("global_symbol", "main"))
    if vector > 1:
        (loop,) = schedule.get_loops(schedule.get_sblock("result"))
        _, inner = schedule.split(loop, [None, vector])
        schedule.vectorize(inner)
    output = tvm.runtime.empty(x.shape)
    tvm.compile(schedule.mod, "llvm")["main"](tvm.runtime.tensor(x), output)
    found, expected = output.numpy(), np.maximum(np.exp(x.astype(np.float64)), 2.0**-125)
    assert np.array_equal(np.isnan(found), np.isnan(x))
    is_number = ~np.isnan(x)
    assert (np.abs(found - expected)[is_number] <= 1e-5 * expected[is_number]).all()
