from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def _operands(rewrite: Any, shape: tuple[int, ...], constant: Any) -> tuple[int, int]:
    """The ranks of the operands of `minimum(x, constant)` after the pass."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(relax.op.minimum(x, relax.const(np.asarray(constant, "float32"))))
        builder.emit_func_output(found)
    call = rewrite(builder.get())["main"].body.blocks[0].bindings[0].value
    first, second = (int(argument.ty.ndim) for argument in call.args)
    return first, second


def test_a_single_element_becomes_a_scalar() -> None:
    from kintune.compiler.graph.canonical import LowerScalars

    assert _operands(LowerScalars(), (1, 8, 4, 4), [[[[6.0]]]]) == (4, 0)
    assert _operands(LowerScalars(), (1, 8, 4, 4), [6.0]) == (4, 0)
    assert _operands(LowerScalars(), (1, 8, 4, 4), [6.0] * 4) == (4, 1)
    assert _operands(LowerScalars(), (4,), [[6.0]]) == (1, 2)
