"""Small networks in place of those that the documentation speaks of: by inputs and outputs they are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["write_image_model", "write_product_model", "write_resize_model", "write_samples", "write_text_model"]

_OPSET = 17


def _save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    output: onnx.ValueInfoProto,
    weights: Mapping[str, NDArray[np.generic]],
) -> Path:
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(list(nodes), "small", list(inputs), [output], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def _drawn(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32) / 4


def write_image_model(
    path: Path, *, name: str = "input", output: str = "y", shape: Sequence[int | str] = (1, 3, 224, 224)
) -> Path:
    """Write a network of a convolution and a product: ten numbers of an image, whose extents may be open."""
    nodes = [
        helper.make_node("Conv", [name, "kernel"], ["a"], strides=[4, 4]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "dense"], [output]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
    made = helper.make_tensor_value_info(output, TensorProto.FLOAT, [shape[0], 10])
    return _save(path, nodes, inputs, made, {"kernel": _drawn(16, 3, 4, 4), "dense": _drawn(16, 10)})


def write_product_model(path: Path, *, name: str, shape: Sequence[int]) -> Path:
    """Write a network of one product, whose weights are large enough to be quantised."""
    size = int(np.prod(shape[1:]))
    nodes = [
        helper.make_node("Flatten", [name], ["row"]),
        helper.make_node("MatMul", ["row", "dense"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], 256])
    return _save(path, nodes, inputs, made, {"dense": _drawn(size, 256)})


def write_resize_model(path: Path) -> Path:
    """Write a network that resizes `input` to `sizes`."""
    nodes = [
        helper.make_node("Resize", ["input", "", "", "sizes"], ["a"], mode="nearest"),
        helper.make_node("Conv", ["a", "kernel"], ["y"], pads=[1, 1, 1, 1]),
    ]
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224]),
        helper.make_tensor_value_info("sizes", TensorProto.INT64, [4]),
    ]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, "height", "width"])
    return _save(path, nodes, inputs, made, {"kernel": _drawn(8, 3, 3, 3)})


def write_text_model(path: Path) -> Path:
    """Write a network that looks words up and averages them: `ids` and `mask`, of a length that is open."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"]),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["kept", "last"], ["column"]),
        helper.make_node("Mul", ["words", "column"], ["masked"]),
        helper.make_node("MatMul", ["masked", "dense"], ["hidden"]),
        helper.make_node("ReduceMean", ["hidden"], ["y"], axes=[1], keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info(each, TensorProto.INT64, [1, "length"]) for each in ("ids", "mask")]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32])
    weights = {"table": _drawn(64, 32), "dense": _drawn(32, 32), "last": np.array([-1])}
    return _save(path, nodes, inputs, made, weights)


def write_samples(folder: Path, arrays: Sequence[Mapping[str, NDArray[np.generic]]]) -> None:
    """Write one `.npz` file for each set of inputs."""
    folder.mkdir(exist_ok=True)
    for number, each in enumerate(arrays):
        np.savez(folder / f"{number}.npz", **dict(each))
