"""Writes layers of quantised networks as ONNX files: weights of uint8 with a zero point far from 128, run-time data.

    python benchmarks/write_quantised.py models/quantised
    python benchmarks/compiled.py models/quantised/*.onnx
    python benchmarks/compiled.py models/others/reader_old.onnx --shape input1=1x1x64x160

The second command compiles each layer and times it beside onnxruntime, the third one a network of such layers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["LAYERS", "main"]

Layer = tuple[list[onnx.NodeProto], dict[str, np.ndarray], tuple[int, ...]]


def _weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def _scaled(sums: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The nodes of a layer whose data is quantised at run time; `sums` reads q, w, z and wz, and writes i."""
    return [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        sums,
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["k"]),
        helper.make_node("Mul", ["f", "k"], ["y"]),
    ]


def _convolution() -> Layer:
    node = helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["i"], pads=[1, 1, 1, 1])
    return _scaled(node), {"w": _weights(64, 64, 3, 3)}, (1, 64, 32, 64)


def _convolution_1d() -> Layer:
    node = helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["i"], pads=[2, 2])
    return _scaled(node), {"w": _weights(128, 128, 5)}, (1, 128, 400)


def _depthwise() -> Layer:
    node = helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["i"], pads=[1, 1, 1, 1], group=128)
    return _scaled(node), {"w": _weights(128, 1, 3, 3)}, (1, 128, 56, 56)


def _product() -> Layer:
    node = helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["i"])
    return _scaled(node), {"w": _weights(768, 768)}, (1, 128, 768)


def _attention() -> Layer:
    """The products of attention's heads with themselves: both operands are quantised at run time."""
    nodes = _scaled(helper.make_node("MatMulInteger", ["q", "t", "z", "z"], ["i"]))
    turned = helper.make_node("Transpose", ["q"], ["t"], perm=[0, 1, 3, 2])
    return [nodes[0], turned, *nodes[1:]], {}, (1, 12, 128, 64)


LAYERS: dict[str, Callable[[], Layer]] = {
    "convolution": _convolution,
    "convolution_1d": _convolution_1d,
    "depthwise": _depthwise,
    "product": _product,
    "attention": _attention,
}
"""Layers by the name of their file."""


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in LAYERS.items():
        nodes, weights, shape = build()
        named = {**weights, "wz": np.array(178, np.uint8), "ws": np.array(0.01, np.float32)}
        graph = helper.make_graph(
            nodes,
            name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(values, key) for key, values in named.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), folder / f"{name}.onnx")


if __name__ == "__main__":
    main()
