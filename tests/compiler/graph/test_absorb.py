from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import tvm

    from tests.support.networks import RunsProgram

pytestmark = pytest.mark.tvm

SHAPE = (2, 4, 6, 8)


def _cases() -> dict[str, tuple[Callable[[Any], Any], str]]:
    """What is computed of the input, and the signatures of the kernels that may come of it, transposes left out."""
    from tvm import relax

    op = relax.op
    rng = np.random.default_rng(4)

    def const(*shape: int) -> Any:
        return relax.const(rng.random(shape, dtype="float32") + np.float32(0.5))

    weight, deep = const(4, 4, 3, 3), const(4, 1, 3, 3)

    def conv(x: Any, padding: tuple[int, ...] = (1, 1)) -> Any:
        return op.nn.conv2d(x, weight, padding=padding)

    def twice(x: Any) -> Any:
        found = conv(x)
        return op.add(op.multiply(found, relax.const(2.0)), found)

    return {
        "batch norm": (
            lambda x: op.nn.relu(op.nn.batch_norm(conv(x), const(4), const(4), const(4), const(4), 1)[0]),
            "conv2d-add-relu",
        ),
        "scale, then offset": (lambda x: op.add(op.multiply(conv(x), const(4, 1, 1)), const(1)), "conv2d-add"),
        "constant first": (
            lambda x: op.subtract(relax.const(3.0), op.multiply(const(1, 4, 1, 1), op.add(const(4, 1, 1), conv(x)))),
            "conv2d-add",
        ),
        "depthwise": (
            lambda x: op.divide(op.subtract(op.nn.conv2d(x, deep, groups=4), const(4, 1, 1)), const(1, 1, 1, 1)),
            "conv2d-add",
        ),
        "after a transpose": (
            lambda x: op.add(op.multiply(op.permute_dims(conv(x), [0, 2, 3, 1]), const(4)), const(4)),
            "conv2d-add",
        ),
        "one offset": (lambda x: op.add(conv(x), const(4, 1, 1)), "conv2d-add"),
        "by column": (lambda x: op.multiply(conv(x), const(8)), "conv2d-multiply"),
        "read twice": (twice, "conv2d-multiply-add"),
        "division by it": (lambda x: op.divide(relax.const(1.0), conv(x)), "conv2d-divide"),
        "no finite scale": (
            lambda x: op.add(op.multiply(conv(x), relax.const(float("inf"))), const(1)),
            "conv2d-multiply-add",
        ),
        "zeros around": (lambda x: conv(op.nn.pad(x, [0, 0, 0, 0, 1, 0, 2, 1]), (0, 1, 1, 0)), "conv2d"),
        "ones around": (lambda x: conv(op.nn.pad(x, [0] * 7 + [1], "constant", 1.0)), "pad conv2d"),
        "a channel more": (
            lambda x: op.nn.conv2d(op.nn.pad(x, [0, 0, 0, 4, 0, 0, 0, 0]), const(2, 8, 1, 1)),
            "pad conv2d",
        ),
        "rows mirrored": (lambda x: conv(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 0, 0], "reflect")), "reflect-pad conv2d"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "batch norm", "scale, then offset", "constant first", "depthwise", "after a transpose", "one offset",
        "by column", "read twice", "division by it", "no finite scale", "zeros around", "ones around",
        "a channel more", "rows mirrored",
    ],
)  # fmt: skip
def test_what_stands_beside_a_convolution(name: str, cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower

    function, wanted = _cases()[name]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit_output(function(x))
        builder.emit_func_output(found)
    array = np.random.default_rng(1).random(SHAPE, dtype="float32")
    usual, plain = (lower(builder.get(), cpu, conservative=kept) for kept in (False, True))
    kernels = [w.signature.replace("transpose-", "").replace("-transpose", "") for w in usual.workloads]
    assert sorted(kernel for kernel in kernels if kernel != "transpose") == sorted(wanted.split())
    (one,), (other,) = (run_program(assemble(lowered, {}, cpu), array) for lowered in (usual, plain))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
