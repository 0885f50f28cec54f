"""A small convolutional network as an ONNX file, which tunes in seconds; free of TVM."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["write_small_onnx"]

_SIDE, _CLASSES = 16, 10


def write_small_onnx(
    path: str | os.PathLike[str], *, operator: str = "Relu", channels: int = 16, seed: int = 0, is_open: bool = False
) -> Path:
    """Write a network of two convolutions and a dense layer, from `x` [1, `channels`, 16, 16] to `y` [1, 10], float32.

    `operator` is applied after the first convolution; with one that does not exist, the file is valid but cannot be
    imported.  If `is_open`, height and width of `x` are one dynamic dimension.
    """
    generator = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = generator.standard_normal(shape, np.float32) / np.float32(np.sqrt(np.prod(shape[1:])))
        return numpy_helper.from_array(values, name)

    sides = ["side", "side"] if is_open else [_SIDE, _SIDE]
    domain = "" if operator == "Relu" else "unheard.of"
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            helper.make_node(operator, ["c1"], ["r1"], domain=domain),
            helper.make_node("Conv", ["r1", "w2"], ["c2"], kernel_shape=[1, 1]),
            helper.make_node("Relu", ["c2"], ["r2"]),
            helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, *sides])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, _CLASSES])],
        [
            weight("w1", 2 * channels, channels, 3, 3),
            weight("w2", 2 * channels, 2 * channels, 1, 1),
            weight("w3", _CLASSES, 2 * channels),
            weight("b3", _CLASSES),
        ],
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    target = Path(path)
    target.write_bytes(model.SerializeToString())
    return target
