"""Every operator that a rule knows, and some that none knows, between convolutions: the same as without layouts.

The fast tests of `models` have ONNX's operators of the kinds that are slow here.
"""

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
UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor", "negative",
    "round", "sigmoid", "sign", "sin", "sinh", "square", "tan", "tanh", "trunc",
)  # fmt: skip
ACTIVATIONS = ("gelu", "gelu_tanh", "leakyrelu", "relu", "selu", "silu")
BINARY = (
    "add", "atan2", "divide", "equal", "floor_divide", "floor_mod", "greater", "greater_equal", "less", "less_equal",
    "log_add_exp", "maximum", "minimum", "mod", "multiply", "not_equal", "power", "subtract",
)  # fmt: skip


def _operators(kind: str) -> list[Callable[[Any, Any], Any]]:
    """Functions of a convolution's result, and of another network input of its shape."""
    from tvm import relax

    op = relax.op
    rng = np.random.default_rng(5)

    def const(*shape: int) -> Any:
        return relax.const(rng.random(shape, dtype="float32") + np.float32(0.5))

    channel, spatial = const(4), const(6)
    table: dict[str, list[Callable[[Any, Any], Any]]] = {
        "unary": [
            *(lambda x, _y, name=name: getattr(op, name)(op.clip(x, -0.9, 0.9)) for name in UNARY),
            *(lambda x, _y, name=name: getattr(op.nn, name)(x) for name in ACTIVATIONS),
            lambda x, _y: op.log(op.add(op.abs(x), relax.const(0.5))),
            lambda x, _y: op.rsqrt(op.sqrt(op.add(op.abs(x), relax.const(0.5)))),
            lambda x, _y: op.astype(op.logical_not(op.isnan(x)), "float32"),
            lambda x, _y: op.astype(op.bitwise_not(op.astype(x, "int32")), "float32"),
        ],
        "binary": [
            *(
                lambda x, y, name=name: op.astype(getattr(op, name)(op.clip(x, 0.3, 4.0), op.abs(y)), "float32")
                for name in BINARY
            ),
            lambda x, y: op.add(y, x),
            lambda x, _y: op.multiply(const(1), x),
            lambda x, _y: op.multiply(x, const(1, 1, 1, 1)),
            lambda x, _y: op.subtract(relax.const(1.0), x),
            lambda x, _y: op.add(const(4, 1, 1), x),
            lambda x, _y: op.divide(x, const(1, 4, 1, 1)),
            lambda x, _y: op.add(x, const(8)),
            lambda x, _y: op.add(x, const(6, 1)),
            lambda x, _y: op.add(x, const(4, 6, 8)),
            lambda x, _y: op.add(x, const(1, 2, 4, 6, 8)),
            lambda x, y: op.where(op.greater(x, y), x, relax.const(0.0)),
            lambda x, y: op.where(op.greater(x, op.mean(y, [0], False)), op.multiply(x, const(4, 1, 1)), y),
            lambda x, y: op.multiply(x, op.max(y, [2, 3], True)),
            lambda x, _y: op.multiply(x, op.sigmoid(op.mean(x, [2, 3], True))),
            lambda x, _y: op.add(op.permute_dims(x, [0, 1, 3, 2]), op.permute_dims(op.exp(x), [0, 1, 3, 2])),
            lambda x, _y: op.nn.prelu(x, channel, 1),
            lambda x, _y: op.nn.prelu(x, spatial, 2),
        ],
        "reductions": [
            *(lambda x, _y, name=name: getattr(op, name)(x, [2, 3], False) for name in ("max", "mean", "min", "sum")),
            *(lambda x, _y, name=name: getattr(op, name)(x, [1], True) for name in ("prod", "std", "variance")),
            lambda x, _y: op.sum(x, [-1], False),
            lambda x, _y: op.sum(x, [0, 2], False),
            lambda x, _y: op.mean(x),
            lambda x, _y: op.astype(op.argmax(x, 1), "float32"),
            lambda x, _y: op.astype(op.argmin(x, -2, True), "float32"),
            lambda x, _y: op.nn.softmax(x, 1),
            lambda x, _y: op.nn.softmax(x),
            lambda x, _y: op.nn.log_softmax(x, -3),
            lambda x, _y: op.nn.layer_norm(x, const(8), const(8), [-1]),
            lambda x, _y: op.nn.layer_norm(x, const(6, 8), const(6, 8), [2, 3]),
            lambda x, _y: op.nn.layer_norm(x, const(4, 6, 8), const(4, 6, 8), [1, 2, 3]),
            lambda x, _y: op.nn.rms_norm(x, const(8), [-1]),
            lambda x, _y: op.nn.instance_norm(x, channel, channel, 1, [2, 3]),
            lambda x, _y: op.nn.group_norm(x, channel, channel, 2, 1, [2, 3]),
            lambda x, _y: op.cumsum(x, 1),
            lambda x, _y: op.cumprod(x, -1),
            lambda x, _y: op.cumsum(x),
        ],
        "moves": [
            lambda x, y: op.concat([x, y, op.exp(x)], 1),
            lambda x, _y: op.concat([x, const(*SHAPE)], -1),
            lambda x, _y: op.split(x, [1, 3], 1)[1],
            lambda x, _y: op.add(op.split(x, 2, -1)[0], op.split(x, 2, -1)[1]),
            lambda x, _y: op.strided_slice(x, [1, -1], [1, -1], [4, -9], [2, -1]),
            lambda x, _y: op.take(x, relax.const(np.array([2, 0, 1])), 1),
            lambda x, _y: op.take(x, relax.const(2, "int64"), 2),
            lambda x, _y: op.take(x, relax.const(np.array([[0, 1], [1, 0]])), 0),
            lambda x, _y: op.nn.pad(x, [0, 0, 1, 0, 2, 3, 0, 1], "constant", 2.0),
            lambda x, _y: op.nn.pad(x, [0, 0, 0, 0, 2, 1, 1, 2], "reflect"),
            lambda x, _y: op.flip(x, 1),
            lambda x, _y: op.repeat(x, 2, 3),
            lambda x, _y: op.repeat(x, 2),
            lambda x, _y: op.tile(x, (1, 3, 2, 1)),
            lambda x, _y: op.tile(x, (2, 1, 1, 1, 1)),
            lambda x, _y: op.broadcast_to(op.max(x, [1], True), SHAPE),
            lambda x, _y: op.broadcast_to(op.max(x, [1], False), (3, 2, 6, 8)),
            lambda x, _y: op.expand_dims(x, [-1, 1]),
            lambda x, _y: op.squeeze(op.max(x, [1], True), [-3]),
            lambda x, _y: op.reshape(x, (2, 4, 48)),
            lambda x, _y: op.permute_dims(op.reshape(x, (2, 4, 48)), [0, 2, 1]),
            lambda x, _y: op.reshape(x, (2, 2, 2, 6, 8)),
            lambda x, _y: op.reshape(x, (8, 48)),
            lambda x, _y: op.flatten(x),
            lambda x, _y: op.permute_dims(x),
            lambda x, _y: op.permute_dims(x, [0, 2, 3, 1]),
            lambda x, _y: op.reshape(op.permute_dims(op.reshape(x, (2, 2, 2, 6, 8)), [0, 2, 1, 3, 4]), SHAPE),
            lambda x, y: op.matmul(x, op.permute_dims(y, [0, 1, 3, 2])),
            lambda x, y: op.stack([x, y], 1),
            lambda x, y: op.gather_elements(x, op.astype(op.greater(y, x), "int64"), 2),
            lambda x, _y: op.triu(x),
        ],
        "windows": [
            lambda x, _y: op.nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 1, 1)),
            lambda x, _y: op.nn.max_pool2d(x, (3, 3), (2, 2), (0, 0), (1, 1), True),
            lambda x, _y: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1), False, True),
            lambda x, _y: op.nn.avg_pool2d(x, (2, 3), (1, 2), (1, 0), (1, 1), True, False),
            lambda x, _y: op.nn.adaptive_avg_pool2d(x, (1, 1)),
            lambda x, _y: op.nn.adaptive_avg_pool2d(x, (3, 4)),
            lambda x, _y: op.image.resize2d(x, (12, 16), method="nearest_neighbor", rounding_method="floor"),
            lambda x, _y: op.image.resize2d(x, (5, 9), method="linear"),
            lambda x, _y: op.image.resize2d(x, (5, 9), method="cubic"),
            lambda x, _y: op.nn.conv2d(x, const(6, 4, 3, 3), (2, 1), (1, 0, 1, 1)),
            lambda x, _y: op.nn.conv2d(x, const(8, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
            lambda x, _y: op.nn.conv2d(x, const(6, 2, 3, 3), (1, 1), (2, 2), (2, 2), 2),
            lambda x, y: op.nn.conv2d(x, op.reshape(y, (24, 4, 2, 2))),
            lambda x, _y: op.nn.conv2d_transpose(x, const(4, 3, 3, 3), (2, 2), (1, 1)),
            lambda x, _y: op.nn.conv2d_transpose(x, const(4, 2, 2, 2), (2, 2), (0, 0), (0, 0), (1, 1), 2),
            lambda x, _y: op.nn.conv1d(op.reshape(x, (2, 4, 48)), const(4, 4, 3)),
            lambda x, _y: op.nn.conv3d(op.expand_dims(x, [2]), const(3, 4, 1, 2, 2)),
            lambda x, _y: op.astype(op.quantize(x, channel, relax.const(np.arange(4, dtype="int8")), 1), "float32"),
            lambda x, _y: op.dequantize(op.astype(op.multiply(x, relax.const(9.0)), "int8"), channel,
                                        relax.const(np.zeros(4, "int8")), 1),
            lambda x, _y: op.nn.avg_pool2d(op.permute_dims(x, [0, 3, 1, 2]), (2, 2)),
        ],
    }  # fmt: skip
    return table[kind]


def _network(operators: list[Callable[[Any, Any], Any]]) -> tvm.IRModule:
    """Each operator after a convolution, a ReLU after it and, where that is possible, another convolution."""
    from tvm import relax

    rng = np.random.default_rng(3)
    weight = relax.const(rng.standard_normal((4, 4, 3, 3)).astype("float32"))
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType(SHAPE, "float32")) for name in "xy")
    results = []
    with builder.function("main", [x, y]):
        with builder.dataflow():
            first = builder.emit(relax.op.nn.conv2d(x, weight, padding=(1, 1)))
            for operator in operators:
                found = builder.emit(relax.op.nn.relu(operator(first, y)))
                shape = [int(extent) for extent in found.ty.shape]
                if len(shape) == 4 and shape[1] == 4 and min(shape) > 0:
                    again = relax.op.nn.conv2d(builder.emit(relax.op.clip(found, 0.0, 9.0)), weight, padding=(1, 1))
                    results.append(builder.emit(again))
                results.append(found)
            outputs = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(outputs)
    return builder.get()


def _run(lowered: Any, target: tvm.target.Target, run: RunsProgram, *inputs: Any) -> list[Any]:
    from kintune.compiler.graph.assemble import assemble

    return run(assemble(lowered, {}, target), *inputs)


ALIKE = ("windows", "unary", "reductions", "moves")


@pytest.mark.parametrize("kind", ["binary", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ALIKE)])
def test_operators_between_convolutions(kind: str, cpu: tvm.target.Target, run_program: RunsProgram) -> None:
    from kintune.compiler.graph.lower import lower

    module = _network(_operators(kind))
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(SHAPE).astype("float32") for _ in "xy"]
    usual = _run(lower(module, cpu), cpu, run_program, *inputs)
    plain = _run(lower(module, cpu, conservative=True), cpu, run_program, *inputs)
    assert len(usual) == len(plain) >= len(_operators(kind))
    for i, (one, other) in enumerate(zip(usual, plain, strict=True)):
        assert one.shape == other.shape, i
        largest = float(np.abs(other).max(initial=1.0))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3 * largest, err_msg=str(i))


def test_a_sum_lies_in_the_order_that_its_operands_have_both() -> None:
    """The first product brings its operand into the network's order, and all sums after it stay there."""
    from tvm import relax

    from kintune.compiler.graph.layout import ChooseLayouts
    from kintune.compiler.graph.rewriting import operator_of

    rng = np.random.default_rng(3)
    weights = [relax.const(rng.standard_normal(shape, np.float32)) for shape in ((4, 4, 1, 1), (48, 48))]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 6, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            found = builder.emit(relax.op.reshape(builder.emit(relax.op.nn.conv2d(x, weights[0])), (1, 4, 48)))
            for _ in range(3):
                found = builder.emit(relax.op.add(found, builder.emit(relax.op.matmul(found, weights[1]))))
            found = builder.emit_output(relax.op.nn.relu(found))
        builder.emit_func_output(found)
    bindings = ChooseLayouts()(builder.get())["main"].body.blocks[0].bindings
    moved = [each.value for each in bindings if operator_of(each.value) == "relax.permute_dims"]
    assert sum(isinstance(call.args[0], relax.Var) for call in moved) == 2  # the input, and the convolution's result
