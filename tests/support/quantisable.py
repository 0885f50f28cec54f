"""A small convolutional network in fp32, with inputs to quantise it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["INPUT", "sets_of_inputs", "write_inputs", "write_network"]

INPUT = (1, 3, 16, 16)


def write_network(path: Path, *, opset: int = 17, batch: int | str = 1) -> Path:
    """Write the network: three convolutions, one of them with a residual, and a product of matrices."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    weights = [
        weight("w1", 32, 3, 3, 3),
        weight("b1", 32),
        weight("w2", 32, 32, 3, 3),
        weight("w3", 32, 32, 1, 1),
        weight("w4", 32, 10),
    ]
    padded = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "first", **padded),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "second", **padded),
        helper.make_node("Add", ["c2", "r1"], ["a2"]),
        helper.make_node("Relu", ["a2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3"], ["c3"]),  # without a name
        helper.make_node("GlobalAveragePool", ["c3"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w4"], ["y"], "head"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, *INPUT[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def sets_of_inputs(count: int) -> list[dict[str, NDArray[Any]]]:
    """Sets of inputs of the network."""
    return [{"x": np.random.default_rng(seed).standard_normal(INPUT, np.float32)} for seed in range(count)]


def write_inputs(directory: Path, count: int) -> tuple[str, ...]:
    """Write sets of inputs, a file each."""
    directory.mkdir(exist_ok=True)
    paths = []
    for number, arrays in enumerate(sets_of_inputs(count)):
        paths.append(str(directory / f"{number}.npz"))
        np.savez(paths[-1], **arrays)
    return tuple(paths)
