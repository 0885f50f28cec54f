"""Axes mean the same after they are counted from the front, and single elements become scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram


pytestmark = pytest.mark.tvm


def _operators() -> dict[str, Callable[[Any], Any]]:
    from tvm import relax

    op = relax.op
    return {
        "squeeze": lambda x: op.squeeze(op.mean(x, [-1], True), [-1]),
        "expand_dims": lambda x: op.expand_dims(x, [-1, 0]),
        "sum": lambda x: op.sum(x, [-1, -3]),
        "softmax": lambda x: op.nn.softmax(x, -3),
        "concat": lambda x: op.concat([x, x], -2),
        "split": lambda x: op.split(x, 2, -3)[1],
        "take": lambda x: op.take(x, relax.const(np.array([1, 0]), "int64"), -1, mode="clip"),
        "argmax": lambda x: op.argmax(x, -1),
        "flip": lambda x: op.flip(x, -2),
        "layer_norm": lambda x: op.nn.layer_norm(x, relax.const(np.ones(6, "f4")), relax.const(np.ones(6, "f4")), [-1]),
        "permute_dims": lambda x: op.permute_dims(x, [0, 2, -1, -3]),
    }


def _module(kind: str) -> Any:
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 3, 6, 6), "float32"))
    weight = relax.const(np.linspace(-1, 1, 4 * 3 * 9, dtype="f4").reshape(4, 3, 3, 3))
    with builder.function("main", [x]):
        with builder.dataflow():
            convolved = builder.emit(relax.op.nn.conv2d(x, weight, padding=1))
            output = builder.emit_output(_operators()[kind](convolved))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize(
    "kind",
    [
        "squeeze", "expand_dims", "sum", "softmax", "concat", "split", "take", "argmax", "flip", "layer_norm",
        "permute_dims",
    ],
)  # fmt: skip
def test_an_operator_after_a_convolution(kind: str, cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.normalise import CountAxesFromFront

    module = _module(kind)
    assert "-" not in str(CountAxesFromFront()(module)["main"].body.blocks[0].bindings[-1]).partition("axis=")[2]
    value = np.random.default_rng(0).standard_normal((1, 3, 6, 6), np.float32)
    usual, conservative = (
        run_program(assemble(lower(module, cpu, conservative=way), {}, cpu), value)[0] for way in (False, True)
    )
    np.testing.assert_allclose(usual, conservative, rtol=1e-4, atol=1e-4)


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
    from kintune.compiler.graph.normalise import LowerScalars

    assert _operands(LowerScalars(), (1, 8, 4, 4), [[[[6.0]]]]) == (4, 0)
    assert _operands(LowerScalars(), (1, 8, 4, 4), [6.0]) == (4, 0)
    assert _operands(LowerScalars(), (1, 8, 4, 4), [6.0] * 4) == (4, 1)
    assert _operands(LowerScalars(), (4,), [[6.0]]) == (1, 2)
