"""Small networks of a norm and the product that reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Normed", "write_normed"]


class Normed(msgspec.Struct, frozen=True):
    """Data `[*lead, inputs]`, its norm over the last axis, and products of that with weights of `bits` bits (32 are
    floats) and `columns` columns.

    `norm` is "rms" or "layer", or "axes" for a layer norm over the last two axes.  `after` is "", "relu" or "twice",
    where another product reads the norm.
    """

    norm: str = "rms"
    lead: tuple[int, ...] = (3,)
    inputs: int = 64
    columns: int = 64
    bits: int = 4
    after: str = ""

    def data(self) -> NDArray[np.float32]:
        """Drawn data."""
        return np.random.default_rng(1).standard_normal((*self.lead, self.inputs)).astype(np.float32)


def write_normed(normed: Normed, path: Path) -> None:
    """Write the network to a file, in opset 17."""
    draw, nodes, constants = np.random.default_rng(0), list[Any](), list[Any]()

    def constant(name: str, values: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(operator: str, *given: str, domain: str = "", **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, given, [f"n{len(nodes)}"], domain=domain, **attributes))
        return str(nodes[-1].output[0])

    axes = 2 if normed.norm == "axes" else 1
    size = (*normed.lead, normed.inputs)[-axes:]
    gain = constant("gain", (1 + 0.3 * draw.standard_normal(size)).astype(np.float32))
    if normed.norm != "rms":
        offset = constant("offset", (0.3 * draw.standard_normal(size)).astype(np.float32))
        found = node("LayerNormalization", "x", gain, offset, axis=-axes, epsilon=1e-6)
    else:
        mean = node("ReduceMean", node("Mul", "x", "x"), axes=[-1])
        root = node("Sqrt", node("Add", mean, constant("epsilon", np.float32(1e-6))))
        found = node("Mul", node("Div", "x", root), gain)

    def product(number: int) -> str:
        if normed.bits > 8:
            shape = (normed.inputs, normed.columns)
            weights = (draw.standard_normal(shape) / np.sqrt(normed.inputs)).astype(np.float32)
            return node("MatMul", found, constant(f"weights{number}", weights))
        blocks = -(-normed.inputs // 32)
        integers = draw.integers(0, 256, (normed.columns, blocks, 4 * normed.bits)).astype(np.uint8)
        scales = (0.01 + 0.02 * draw.random((normed.columns, blocks))).astype(np.float32)
        attributes = {"K": normed.inputs, "N": normed.columns, "bits": normed.bits, "block_size": 32}
        given = constant(f"integers{number}", integers), constant(f"scales{number}", scales)
        return node("MatMulNBits", found, *given, domain="com.microsoft", **attributes)

    result = product(0)
    if normed.after == "relu":
        result = node("Relu", result)
    elif normed.after == "twice":
        result = node("Add", node("Relu", result), product(1))
    graph = helper.make_graph(
        nodes,
        "normed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*normed.lead, normed.inputs])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, [*normed.lead, normed.columns])],
        constants,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
