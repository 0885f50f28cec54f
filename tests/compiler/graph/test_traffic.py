"""Networks that read text, as PaddleOCR's do it: how much memory is moved by kernels that reduce nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support.graphs import Graph

if TYPE_CHECKING:
    import tvm


pytestmark = pytest.mark.tvm

MOST = 0.15


def _hard_sigmoid(g: Graph, x: str) -> str:
    return g("Div", g("Clip", g("Add", x, g.constant([3])), g.constant(0), g.constant(6)), g.constant([6]))


def _relu6_of_sum(g: Graph, x: str) -> str:
    return g("Clip", g("Add", g.constant(3), x), g.constant(0), g.constant(6))


ACTIVATIONS: tuple[Callable[[Graph, str], str], ...] = (
    lambda g, x: g("HardSwish", x),
    lambda g, x: g("Mul", x, g("HardSigmoid", x, alpha=1 / 6)),
    lambda g, x: g("Mul", x, _hard_sigmoid(g, x)),
    lambda g, x: g("Div", g("Mul", x, _relu6_of_sum(g, x)), g.constant(6)),
)
"""Hard-swish as exporters write it."""


def _block(g: Graph, x: str, inputs: int, outputs: int, number: int, strides: Sequence[int] = (1, 1)) -> str:
    """A depthwise and a pointwise convolution: batch norm, learnable scale and offset, activation, and both again."""
    for kernel, group, step, wide in ((3, inputs, strides, inputs), (1, 1, (1, 1), outputs)):
        x = g.conv(x, inputs, wide, kernel, group=group, strides=step)
        x = g("BatchNormalization", x, *(g.weight(wide) for _ in range(4)))
        x = g("Add", g("Mul", x, g.weight(1)), g.weight(1))
        x = ACTIVATIONS[number % len(ACTIVATIONS)](g, x)
        x = (
            g("Add", g.weight(1), g("Mul", g.weight(1), x))
            if number % 2
            else g("Add", g("Mul", x, g.weight(1)), g.weight(1))
        )
    return x  # fmt: skip


def _squeeze(g: Graph, x: str, channels: int, number: int) -> str:
    """The channels weighed by their means."""
    inner = g("Relu", g.conv(g("GlobalAveragePool", x), channels, channels // 4, 1))
    inner = g.conv(inner, channels // 4, channels, 1)
    weight = _hard_sigmoid(g, inner) if number % 2 else g("HardSigmoid", inner, alpha=0.2, beta=0.5)
    return g("Mul", x, weight) if number % 3 else g("Mul", weight, x)


def _enlarged(g: Graph, x: str, times: int) -> str:
    how = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    return g("Resize", x, "", g.constant([1, 1, times, times]), **how)


def _detector(g: Graph) -> str:
    """A backbone of four scales, a pyramid whose maps are added from small to large, and a map of probabilities."""
    x, channels = g("HardSwish", g.conv("x", 3, 16, strides=[2, 2])), 16
    maps = []
    for number, wide in enumerate((32, 48, 48, 48, 96, 96, 192, 384)):
        strides = (2, 2) if wide != channels and number else (1, 1)
        x = _block(g, x, channels, wide, number, strides)
        channels = wide
        if number in (3, 5, 6, 7):
            maps.append((_squeeze(g, x, wide, number) if number == 7 else x, wide))
    inner = []
    for number, (found, wide) in enumerate(maps):
        narrow = g.conv(found, wide, 96, 1)
        inner.append(g("Add", narrow, _squeeze(g, narrow, 96, number)))
    for number in (2, 1, 0):
        inner[number] = g("Add", inner[number], _enlarged(g, inner[number + 1], 2))
    parts = []
    for number, found in enumerate(inner):
        narrow = g.conv(found, 96, 24)
        narrow = g("Add", narrow, _squeeze(g, narrow, 24, number))
        parts.append(_enlarged(g, narrow, 2**number) if number else narrow)
    x = g("Relu", g.conv(g("Concat", *parts[::-1], axis=1), 96, 24))
    x = g("ConvTranspose", x, g.weight(24, 24, 2, 2), g.weight(24), strides=[2, 2])
    x = g("Relu", g("BatchNormalization", x, *(g.weight(24) for _ in range(4))))
    return g("Sigmoid", g("ConvTranspose", x, g.weight(24, 1, 2, 2), g.weight(1), strides=[2, 2]))


def _recogniser(g: Graph) -> str:
    """A backbone that keeps most columns, mixing across them, and a classifier of each column."""
    x, channels = g.conv("x", 3, 16, strides=[2, 2]), 16
    for number, strides in enumerate([(1, 1), (2, 1), (1, 1), (2, 1), (1, 2), (2, 1), (1, 1)]):
        wide = 2 * channels if number in (0, 2, 4) else channels
        x = _block(g, x, channels, wide, number, strides)
        channels = wide
        x = _squeeze(g, x, channels, number) if number > 4 else x
    x = g("AveragePool", x, kernel_shape=[3, 2], strides=[3, 2])
    x = g("Mul", g("Sigmoid", x), x)
    tokens = g("Transpose", g("Squeeze", x, g.constant([2], np.int64)), perm=[0, 2, 1])
    tokens = g("LayerNormalization", tokens, g.weight(channels), g.weight(channels), axis=-1)
    inner = g("Add", g("MatMul", tokens, g.weight(channels, 2 * channels)), g.weight(2 * channels))
    inner = g("MatMul", g("Mul", inner, g("Sigmoid", inner)), g.weight(2 * channels, channels))
    tokens = g("Add", tokens, g("Add", inner, g.weight(channels)))
    return g("Softmax", g("Add", g("MatMul", tokens, g.weight(channels, 500)), g.weight(500)), axis=2)


NETWORKS = {
    "detector": (_detector, (1, 3, 640, 640)),
    "recogniser": (_recogniser, (1, 3, 48, 320)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_little_is_moved_by_kernels_without_a_reduction(name: str, cpu: tvm.target.Target, tmp_path: Path) -> None:
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.pieces import STRIDED_JOINS, pieces_of
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    build, shape = NETWORKS[name]
    g = Graph()
    path = g.save(tmp_path / "model.onnx", shape, [build(g)])
    lowered = lower(load(parse_ref(str(path))).module, cpu)
    placed = {d for name, d in lowered.functions.items() if pieces_of(lowered.module[name], STRIDED_JOINS)}
    moving = [workload for workload in lowered.workloads if workload.digest not in placed]
    kernels = [workload for workload in moving if workload.signature != "reshape"]  # it moves nothing
    moved = sum(workload.occurrences * workload.bytes for workload in kernels)
    copied = sum(workload.occurrences * workload.bytes for workload in kernels if not workload.reduces)
    assert 0 < copied / moved <= MOST, [workload.signature for workload in kernels if not workload.reduces]
