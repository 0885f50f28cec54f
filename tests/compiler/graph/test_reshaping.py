"""Reshapes that are moved behind element-wise operators leave every shape, and every number, as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

FLAT, WIDE = (6, 8), (2, 3, 8)


def _scale(shape: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    from tvm import relax

    return lambda emit, x: emit(relax.op.multiply(x, relax.const(np.full(shape, 0.5, np.float32))))


def _chosen(emit: Any, x: Any) -> Any:
    from tvm import relax

    bound = relax.const(np.full((1, 1, 1), 0.25, np.float32))
    return emit(relax.op.maximum(relax.op.subtract(bound, x), relax.const(np.zeros((), np.float32))))


def _cases() -> dict[str, Callable[[Any, Any], Any]]:
    return {
        "a number": _scale(()),
        "one axis": _scale((1,)),
        "as many axes as before": _scale((1, 1)),
        "more axes than before": _scale((1, 1, 1)),
        "a number first": _chosen,
    }


@pytest.mark.parametrize("back", ["reshaped", "result"])
@pytest.mark.parametrize(
    "name", ["a number", "one axis", "as many axes as before", "more axes than before", "a number first"]
)
def test_a_constant_of_one_element_adds_no_axes(
    name: str, back: str, cpu: tvm.target.Target, run_program: RunsProgram
) -> None:
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    draw = np.random.default_rng(1)
    array, weight = draw.standard_normal((6, 4), np.float32), draw.standard_normal((4, 8), np.float32)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(array.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(relax.op.matmul(x, relax.const(weight)))
            found = _cases()[name](builder.emit, builder.emit(relax.op.reshape(found, WIDE)))
            if back == "reshaped":
                found = builder.emit(relax.op.reshape(found, FLAT))
                found = builder.emit(relax.op.nn.softmax(found, -1))
            done = builder.emit_output(found)
        builder.emit_func_output(done)
    module = tvm.IRModule(dict(builder.get().functions_items()))
    usual, plain = (
        run_program(assemble(lower(module, cpu, conservative=kept), {}, cpu), array)[0] for kept in (False, True)
    )
    assert usual.shape == plain.shape == (FLAT if back == "reshaped" else WIDE)
    np.testing.assert_allclose(usual, plain, rtol=1e-4, atol=1e-5)
