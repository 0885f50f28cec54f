from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm


def test_a_quotient_is_rounded_once(cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    """By a step whose inverse is no number; ties go to the even step, what is too large to the last one."""
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    step = np.float32(0.02)
    steps = np.arange(-4000, 4000, dtype="float32").reshape(2, 4000) * np.float32(0.5)
    x = np.concatenate([steps * step, np.nextafter(steps * step, np.float32(9))])
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            one = relax.op.quantize(data, relax.const(step), relax.const(np.int8(3)), -1, "int8")
            rows = relax.const(np.array([0.02, 0.1, 0.3, 0.07], "float32"))
            many = relax.op.quantize(data, rows, relax.const(np.full(4, 128, "uint8")), 0, "uint8")
            found = builder.emit_output(relax.Tuple([builder.emit(one), builder.emit(many)]))
        builder.emit_func_output(found)
    first, second = run_program(assemble(lower(builder.get(), cpu), {}, cpu), x)
    by_row = x / np.array([[0.02], [0.1], [0.3], [0.07]], "float32")
    assert np.array_equal(first, np.clip(np.round(x / step) + 3, -128, 127).astype("int8"))
    assert np.array_equal(second, np.clip(np.round(by_row) + 128, 0, 255).astype("uint8"))
