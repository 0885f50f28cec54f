"""What follows a convolution or a product in files of exporters becomes one kernel with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support.graphs import Graph

if TYPE_CHECKING:
    import tvm

pytestmark = pytest.mark.tvm

CHANNELS, SIZE = 8, 12
ONE = (1,)
CHANNEL = (CHANNELS, 1, 1)


def _clip(g: Graph, x: str) -> str:
    return g("Clip", x, g.constant(0), g.constant(6))


def _bounds(g: Graph, x: str) -> str:
    return g("Max", g.constant([-1]), g("Min", x, g.constant([3])))


def _hard_swish_written_out(g: Graph, x: str) -> str:
    return g("Div", g("Mul", x, _clip(g, g("Add", x, g.constant([3])))), g.constant([6]))


def _scaled(g: Graph, x: str, *shape: int) -> str:
    return g("Add", g("Mul", x, g.weight(*shape)), g.weight(*shape))


def _scaled_first(g: Graph, x: str, *shape: int) -> str:
    return g("Add", g.weight(*shape), g("Mul", g.weight(*shape), x))


def _learnable(g: Graph, x: str) -> str:
    """As PaddleOCR's networks do it: a scale and an offset before the activation and after it."""
    return _scaled_first(g, g("HardSwish", _scaled(g, x, *ONE)), *ONE)


def _quantised(g: Graph, x: str) -> str:
    step = (g.constant(0.03), g.constant(3, np.int8))
    return g("DequantizeLinear", g("QuantizeLinear", x, *step), *step)


def _batch_norm(g: Graph, x: str) -> str:
    return g("Relu", g("BatchNormalization", x, *(g.weight(CHANNELS) for _ in range(4))))


def _channels_last(g: Graph, x: str) -> str:
    """As exporters of networks with channels last do it."""
    last = g("Transpose", x, perm=[0, 2, 3, 1])
    last = g("Relu", g("Add", g("Mul", g.weight(CHANNELS), last), g.weight(CHANNELS)))
    return g("Transpose", last, perm=[0, 3, 1, 2])


EPILOGUES: dict[str, Callable[[Graph, str], str]] = {
    "clip": _clip,
    "minimum and maximum": _bounds,
    "hard-swish": lambda g, x: g("HardSwish", x),
    "hard-swish of a hard-sigmoid": lambda g, x: g("Mul", x, g("HardSigmoid", x, alpha=1 / 6)),
    "hard-swish written out": _hard_swish_written_out,
    "hard-sigmoid": lambda g, x: g("HardSigmoid", x),
    "swish": lambda g, x: g("Mul", g("Sigmoid", x), x),
    "mish": lambda g, x: g("Mul", x, g("Tanh", g("Softplus", x))),
    "elu": lambda g, x: g("Elu", x),
    "leaky ReLU": lambda g, x: g("LeakyRelu", x, alpha=0.1),
    "parametric ReLU": lambda g, x: g("PRelu", x, g.weight(*CHANNEL)),
    "parametric ReLU of one slope": lambda g, x: g("PRelu", x, g.weight(*ONE)),
    "one scale and offset": lambda g, x: g("Relu", _scaled(g, x, *ONE)),
    "they come first": lambda g, x: g("Relu", _scaled_first(g, x, *ONE)),
    "a scale and offset a channel": lambda g, x: g("Relu", _scaled(g, x, *CHANNEL)),
    "they come first, by channel": lambda g, x: g("Relu", _scaled_first(g, x, *CHANNEL)),
    "subtracted and divided": lambda g, x: g("Relu", g("Div", g("Sub", g.weight(*CHANNEL), x), g.weight(1, *CHANNEL))),
    "after an activation": lambda g, x: g("Mul", g.weight(*CHANNEL), g("Add", g("Relu", x), g.weight(*ONE))),
    "learnable scales": _learnable,
    "batch norm": _batch_norm,
    "quantised": _quantised,
    "where": lambda g, x: g("Where", g("Less", x, g.constant([0.5])), g.constant([0.5]), x),
    "zeros around": lambda g, x: g("Pad", g("Relu", x), g.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64)),
    "channels last": _channels_last,
    "residual": lambda g, x: g("Relu", g("Add", g("Relu", g.conv("x", 3, CHANNELS)), x)),
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_becomes_the_convolution_s_epilogue(name: str, cpu: tvm.target.Target, tmp_path: Path) -> None:
    """Between two convolutions: nothing is left but these, and what brings inputs and results in order."""
    g = Graph()
    found = g.conv(EPILOGUES[name](g, g.conv("x", 3, CHANNELS)), CHANNELS, CHANNELS)
    kernels = _kernels(g.save(tmp_path / "model.onnx", (1, 3, SIZE, SIZE), [found]), cpu)
    convolutions = [kernel for kernel in kernels if kernel.startswith("conv2d")]
    assert len(convolutions) == (3 if name == "residual" else 2), kernels
    assert set(kernels) - set(convolutions) <= {"transpose"}, kernels
    assert len(kernels) - len(convolutions) <= 2, kernels


@pytest.mark.parametrize("name", ["bias and GELU", "flattened tokens", "swish"])
def test_becomes_the_product_s_epilogue(name: str, cpu: tvm.target.Target, tmp_path: Path) -> None:
    g = Graph()
    x = g("Reshape", "x", g.constant([-1, 16], np.int64)) if name != "bias and GELU" else "x"
    found = g("MatMul", x, g.weight(16, 24))
    if name != "bias and GELU":
        found = g("Reshape", found, g.constant([2, 5, 24], np.int64))
    found = g("Add", found, g.weight(24))
    if name == "swish":
        found = g("Mul", found, g("Sigmoid", found))
    else:
        inner = g("Add", g("Erf", g("Div", found, g.constant(2**0.5))), g.constant(1))
        found = g("Mul", g("Mul", found, inner), g.constant(0.5))
    kernels = _kernels(g.save(tmp_path / "model.onnx", (2, 5, 16), [found]), cpu)
    assert len([kernel for kernel in kernels if kernel != "reshape"]) == 1, kernels


def test_no_reshape_stands_between_a_product_and_the_sum_after_it(tmp_path: Path, cpu: tvm.target.Target) -> None:
    """A residual of several layers that began with a reshape: the encoder of Whisper."""
    graph = Graph()
    y = graph("Conv", "x", graph.weight(16, 8, 3), pads=[1, 1])
    residual = graph("Relu", graph("Transpose", y, perm=[0, 2, 1]))
    for _ in range(3):
        product = graph("MatMul", graph("Sigmoid", residual), graph.weight(16, 16))
        residual = graph("Add", residual, product)
    path = graph.save(tmp_path / "m.onnx", (1, 8, 20), [graph("Neg", residual)])
    found = _kernels(path, cpu)
    assert sum(name.startswith("matmul-add") for name in found) == 3
    assert not any("reshape-add" in name for name in found)


def _kernels(path: Path, cpu: tvm.target.Target) -> list[str]:
    """The signatures of the kernels that a network calls, one a call."""
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    workloads = lower(load(parse_ref(str(path))).module, cpu).workloads
    return [workload.signature for workload in workloads for _ in range(workload.occurrences)]
