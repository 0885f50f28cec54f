"""Every operator of the importer that takes a feature map, between two convolutions: the same as in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.graphs import Graph, run_onnxruntime

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.tvm

SHAPE = (2, 4, 6, 8)
OPSET = 21
Build = Callable[[Graph, str], str]

UNARY = (
    "Abs", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
    "LeakyRelu", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Softplus",
    "Softsign", "Tanh", "ThresholdedRelu", "Dropout", "Sum", "Max", "Min", "Mean",
)  # fmt: skip
PLAIN = (
    "Flatten", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Hardmax", "LogSoftmax", "Softmax", "Transpose",
    "MeanVarianceNormalization",
)  # fmt: skip
BOUNDED = ("Acos", "Asin", "Atanh", "Cosh", "Sinh", "Asinh", "Tan")
POSITIVE = ("Log", "Sqrt", "Acosh")
REDUCED = (
    "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip
COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
LOGICAL = ("And", "Or", "Xor")
BITWISE = ("BitwiseAnd", "BitwiseOr", "BitwiseXor")


def _integers(g: Graph, x: str, kind: int = 7) -> str:
    return g("Cast", g("Mul", x, g.constant(10)), to=kind)


def _floats(g: Graph, x: str) -> str:
    return g("Cast", x, to=1)


def _bounded(g: Graph, x: str) -> str:
    return g("Clip", x, g.constant(-0.9), g.constant(0.9))


def _positive(g: Graph, x: str) -> str:
    return g("Add", g("Abs", x), g.constant(1.1))


def _indices(g: Graph, values: Any) -> str:
    return g.constant(values, np.int64)


def _shifted(g: Graph, x: str) -> str:
    return g("BitShift", x, g.constant(2, np.uint64), direction="LEFT")


def _other(g: Graph, x: str) -> str:
    """Another map of the same shape, in the order in which the network got it."""
    return g("Add", "x", g.constant(0.25)) if x else "x"


def _two_results(g: Graph, operator: str, x: str, *inputs: str, **attributes: Any) -> tuple[str, str]:
    first = g(operator, x, *inputs, **attributes)
    g.nodes[-1].output.append(f"{first}_second")
    return first, f"{first}_second"


def _split(g: Graph, x: str) -> str:
    first, second = _two_results(g, "Split", x, _indices(g, [1, 3]), axis=1)
    return g("Mul", first, second)


def _top(g: Graph, x: str) -> str:
    values, places = _two_results(g, "TopK", x, _indices(g, [3]), axis=1)
    return g("Add", values, _floats(g, places))


def _quantised(g: Graph, x: str) -> str:
    step = (g.constant([0.03, 0.05, 0.04, 0.02]), g.constant([3, 0, 1, 2], np.uint8))
    return g("DequantizeLinear", g("QuantizeLinear", x, *step, axis=1), *step, axis=1)


def _dynamic(g: Graph, x: str) -> str:
    first = g("DynamicQuantizeLinear", x)
    g.nodes[-1].output.extend([f"{first}_step", f"{first}_zero"])
    return g("DequantizeLinear", first, f"{first}_step", f"{first}_zero")


def _grid(g: Graph, x: str) -> str:
    return g("GridSample", x, g.constant(np.random.default_rng(3).uniform(-1, 1, (2, 5, 7, 2))))


OTHERS: dict[str, Build] = {
    "Add": lambda g, x: g("Add", _other(g, x), x),
    "AveragePool": lambda g, x: g("AveragePool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    "ArgMax": lambda g, x: _floats(g, g("ArgMax", x, axis=-3)),
    "ArgMin": lambda g, x: _floats(g, g("ArgMin", x, axis=2, keepdims=0)),
    "BatchNormalization": lambda g, x: g("BatchNormalization", g("Relu", x), *(g.weight(4) for _ in range(4))),
    "BitShift": lambda g, x: _floats(g, _shifted(g, _integers(g, g("Abs", x), 13))),
    "BitwiseNot": lambda g, x: _floats(g, g("BitwiseNot", _integers(g, x))),
    "Cast": lambda g, x: _floats(g, g("Cast", x, to=6)),
    "CastLike": lambda g, x: g("CastLike", _integers(g, x), x),
    "CenterCropPad": lambda g, x: g("CenterCropPad", x, g.constant([3, 20], np.int64), axes=[2, 3]),
    "Clip": _bounded,
    "Compress": lambda g, x: g("Compress", x, g.constant([True, False, True, True], np.bool_), axis=1),
    "ConstantOfShape": lambda g, x: g("Add", x, g("ConstantOfShape", g("Shape", x))),
    "Conv": lambda g, x: g.conv(x, 4, 6, strides=[2, 1]),
    "ConvTranspose": lambda g, x: g("ConvTranspose", x, g.weight(4, 2, 3, 2), group=2, strides=[2, 1]),
    "CumSum": lambda g, x: g("CumSum", x, _indices(g, 1)),
    "DepthToSpace": lambda g, x: g("DepthToSpace", x, blocksize=2, mode="CRD"),
    "DequantizeLinear": _quantised,
    "Det": lambda g, x: g("Det", g("Slice", x, _indices(g, [0, 0]), _indices(g, [3, 3]), _indices(g, [2, 3]))),
    "Div": lambda g, x: g("Div", _other(g, x), _positive(g, x)),
    "DynamicQuantizeLinear": _dynamic,
    "Einsum": lambda g, x: g("Einsum", x, _other(g, x), equation="nchw,nkhw->nck"),
    "Expand": lambda g, x: g("Expand", g("ReduceMax", x, _indices(g, [1])), _indices(g, [2, 4, 6, 8])),
    "EyeLike": lambda g, x: g("EyeLike", g("Flatten", x)),
    "Gather": lambda g, x: g("Gather", x, _indices(g, [2, 0]), axis=1),
    "GatherElements": lambda g, x: g("GatherElements", x, _indices(g, np.arange(96).reshape(2, 1, 6, 8) % 4), axis=1),
    "GatherND": lambda g, x: g("GatherND", x, _indices(g, [[1, 2], [0, 3]])),
    "Gemm": lambda g, x: g("Gemm", g("Flatten", x, axis=2), g.weight(48, 5), g.weight(5)),
    "GroupNormalization": lambda g, x: g("GroupNormalization", x, g.weight(4), g.weight(4), num_groups=2),
    "GridSample": _grid,
    "InstanceNormalization": lambda g, x: g("InstanceNormalization", x, g.weight(4), g.weight(4)),
    "IsInf": lambda g, x: _floats(g, g("IsInf", g("Mul", x, g.constant(1e38)))),
    "IsNaN": lambda g, x: _floats(g, g("IsNaN", g("Sqrt", x))),
    "LRN": lambda g, x: g("LRN", x, size=3),
    "LayerNormalization": lambda g, x: g("LayerNormalization", x, g.weight(6, 8), g.weight(6, 8), axis=-2),
    "LpPool": lambda g, x: g("LpPool", x, kernel_shape=[2, 2]),
    "MatMul": lambda g, x: g("MatMul", x, g.weight(8, 5)),
    "MaxPool": lambda g, x: g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "Mod": lambda g, x: g("Mod", x, g.constant(0.7), fmod=1),
    "Mul": lambda g, x: g("Mul", g("GlobalAveragePool", x), x),
    "Not": lambda g, x: _floats(g, g("Not", g("Greater", x, g.constant(0)))),
    "OneHot": lambda g, x: g("OneHot", g("ArgMax", x, axis=1, keepdims=0), _indices(g, 4), g.constant([0, 1]), axis=1),
    "PRelu": lambda g, x: g("PRelu", x, g.weight(4, 1, 1)),
    "Pad": lambda g, x: g("Pad", x, _indices(g, [0, 1, 0, 2, 0, 0, 1, 0]), mode="edge"),
    "Pow": lambda g, x: g("Pow", _positive(g, x), g.constant([1.5])),
    "QuantizeLinear": _quantised,
    "ReduceLogSum": lambda g, x: g("ReduceLogSum", _positive(g, x), _indices(g, [1]), keepdims=0),
    "Reshape": lambda g, x: g("Reshape", x, _indices(g, [0, 2, 2, -1])),
    "Resize": lambda g, x: g("Resize", x, "", g.constant([1, 1, 1.5, 2]), mode="linear"),
    "RoiAlign": lambda g, x: g("RoiAlign", x, g.constant([[0, 0, 5, 5]]), _indices(g, [1]), output_width=3),
    "ReverseSequence": lambda g, x: g("ReverseSequence", x, _indices(g, [3, 2]), time_axis=1, batch_axis=0),
    "ScatterElements": lambda g, x: g("ScatterElements", x, _indices(g, [[[[2]]]]), g.weight(1, 1, 1, 1), axis=1),
    "ScatterND": lambda g, x: g("ScatterND", x, _indices(g, [[1, 3]]), g.weight(1, 6, 8)),
    "Shape": lambda g, x: g("Reshape", x, g("Shape", _other(g, x))),
    "Size": lambda g, x: g("Mul", x, _floats(g, g("Size", x))),
    "Slice": lambda g, x: g("Slice", x, *(_indices(g, [v]) for v in (-1, -9, 1, -2))),
    "SpaceToDepth": lambda g, x: g("SpaceToDepth", x, blocksize=2),
    "Split": _split,
    "Squeeze": lambda g, x: g("Squeeze", g("ReduceMax", x, _indices(g, [1])), _indices(g, [-3])),
    "Sub": lambda g, x: g("Sub", g.constant([1]), x),
    "Tile": lambda g, x: g("Tile", x, _indices(g, [1, 2, 1, 3])),
    "TopK": _top,
    "Trilu": lambda g, x: g("Trilu", x),
    "Unsqueeze": lambda g, x: g("Unsqueeze", x, _indices(g, [-1, 1])),
    "Where": lambda g, x: g("Where", g("Greater", x, _other(g, x)), x, g.constant([0.5])),
}  # fmt: skip


def _tables() -> dict[str, Build]:
    table = dict(OTHERS)
    for name in ("Concat", "LpNormalization"):
        table[name] = lambda g, x, name=name: g(name, x, axis=1)
    for name in UNARY + PLAIN:
        table[name] = lambda g, x, name=name: g(name, x)
    for name in BOUNDED:
        table[name] = lambda g, x, name=name: g(name, _bounded(g, x))
    for name in POSITIVE:
        table[name] = lambda g, x, name=name: g(name, _positive(g, x))
    for number, name in enumerate(REDUCED):
        table[name] = lambda g, x, name=name, number=number: g(
            name, _bounded(g, x), _indices(g, [(1,), (2, 3), (-1, -3)][number % 3]), keepdims=number % 2
        )
    for name in COMPARED:
        table[name] = lambda g, x, name=name: _floats(g, g(name, g("Round", x), g.constant([1])))
    for name in LOGICAL:
        table[name] = lambda g, x, name=name: _floats(g, g(name, *(g("Greater", x, g.constant(v)) for v in (0, 1))))
    for name in BITWISE:
        table[name] = lambda g, x, name=name: _floats(g, g(name, _integers(g, x), _integers(g, _other(g, x))))
    return table  # fmt: skip


TABLE = _tables()
SUMMED = [*UNARY, *BOUNDED, *POSITIVE, *COMPARED, *LOGICAL, *BITWISE]
"""What computes each element from the same of the map: some of them are summed into one result, which saves kernels."""

RESULTS = [
    *(tuple(SUMMED[start::5]) for start in range(5)),
    *((name,) for name in sorted(TABLE) if name not in SUMMED),
]
PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_between_convolutions(part: int, tmp_path: Path) -> None:
    import tvm
    from tvm import relax

    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    groups = RESULTS[part::PARTS]
    x = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
    path = tmp_path / "model.onnx"
    shapes = [found.shape for found in run_onnxruntime(_network(path, groups), x)]
    channels = [shape[1] if len(shape) == len(SHAPE) else 0 for shape in shapes]
    wanted = run_onnxruntime(_network(path, groups, channels), x)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2, "opt-level": 0})
    program = assemble(lower(load(parse_ref(str(path))).module, target), {}, target)
    machine = relax.VirtualMachine(program.executable, tvm.cpu())
    found = list(machine["main"](tvm.runtime.tensor(x), *program.weights))
    for names, one, other in zip(groups, (result.numpy() for result in found), wanted, strict=True):
        assert one.shape == other.shape, names
        largest = float(np.abs(other).max(initial=1.0))
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * largest, err_msg=str(names))


def _network(path: Path, groups: Sequence[Sequence[str]], channels: Sequence[int] = ()) -> Path:
    """Operators after one convolution, and before one where `channels` says how many the result has."""
    g = Graph()
    before = g("Sub", g.conv("x", SHAPE[1], SHAPE[1]), g.constant(1))
    results = []
    for number, names in enumerate(groups):
        parts = [TABLE[name](g, before) for name in names]
        found = parts[0]
        if len(parts) > 1:
            found = g("Sum", *(g("Clip", part, g.constant(-9), g.constant(9)) for part in parts))
        if channels and channels[number]:
            found = g("Relu", g.conv(found, channels[number], 3, 1))
        results.append(found)
    return g.save(path, SHAPE, results, OPSET)
