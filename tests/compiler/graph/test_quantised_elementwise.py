"""Scales become tensors where that leaves shapes as they are."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_factor_before_quantising_changes_no_shape(shape: tuple[int, ...]) -> None:
    from tvm import relax

    from kintune.compiler.graph.quantised_elementwise import ScalesAsTensors

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    one, point = relax.const(np.float32(1.0)), relax.const(np.uint8(3))
    with builder.function("main", [x]):
        with builder.dataflow():
            scaled = builder.emit(relax.op.multiply(x, relax.const(np.float32(0.5))))
            found = builder.emit_output(relax.op.quantize(scaled, one, point, -1, "uint8"))
        builder.emit_func_output(found)
    done = ScalesAsTensors()(builder.get())["main"]
    product = done.body.blocks[0].bindings[0]
    assert tuple(int(extent) for extent in product.var.ty.shape) == shape
    assert int(product.value.args[1].ty.ndim) == len(shape)
