"""Small networks of one product with blockwise quantised weights (`MatMulNBits`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Product", "reference", "write_product"]


class Product(msgspec.Struct, frozen=True):
    """Data `[*lead, inputs]` times weights; `zeros` is "", "packed" or "real", `after` is "", "relu" or "residual"."""

    bits: int = 4
    block: int = 32
    inputs: int = 64
    columns: int = 48
    lead: tuple[int, ...] = (1,)
    zeros: str = ""
    bias: bool = False
    after: str = ""
    seed: int = 0

    @property
    def blocks(self) -> int:
        """Blocks of a column."""
        return -(-self.inputs // self.block)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Data, integers, scales, and what else there is, as the operator takes them."""
        draw = np.random.default_rng(self.seed)
        found: dict[str, NDArray[Any]] = {
            "x": draw.standard_normal((*self.lead, self.inputs)).astype(np.float32),
            "b": draw.integers(0, 256, (self.columns, self.blocks, self.block * self.bits // 8)).astype(np.uint8),
            "scales": (0.01 + 0.02 * draw.random((self.columns, self.blocks))).astype(np.float32),
        }
        if self.zeros == "packed":
            shape = (self.columns, -(-self.blocks * self.bits // 8))
            found["zeros"] = draw.integers(0, 256, shape).astype(np.uint8)
        elif self.zeros == "real":
            found["zeros"] = (draw.random((self.columns, self.blocks)) * (1 << self.bits)).astype(np.float32)
        if self.bias:
            found["bias"] = draw.standard_normal(self.columns).astype(np.float32)
        if self.after == "residual":
            found["r"] = draw.standard_normal((*self.lead, self.columns)).astype(np.float32)
        return found


def reference(product: Product) -> NDArray[Any]:
    """What the network computes, in float64."""
    arrays = product.arrays()
    x, integers = arrays["x"].astype(np.float64), _unpacked(arrays["b"].reshape(product.columns, -1), product.bits)
    blocks = integers.reshape(product.columns, product.blocks, product.block).astype(np.float64)
    zeros: NDArray[Any] | float = float(1 << (product.bits - 1))
    if product.zeros:
        given = arrays["zeros"]
        if product.zeros == "packed":
            given = _unpacked(given, product.bits)
        zeros = given[:, : product.blocks, None].astype(np.float64)
    weights = (blocks - zeros) * arrays["scales"].astype(np.float64)[:, :, None]
    found = x @ weights.reshape(product.columns, -1)[:, : product.inputs].T
    if product.bias:
        found = found + arrays["bias"]
    if product.after == "relu":
        found = np.maximum(found, 0)
    return np.asarray(found + arrays["r"] if product.after == "residual" else found)


def _unpacked(packed: NDArray[Any], bits: int) -> NDArray[Any]:
    """The integers of `[columns, bytes]`, the first of a byte in its lowest bits."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray((packed[..., None] >> shifts & ((1 << bits) - 1)).reshape(len(packed), -1))


def write_product(product: Product, path: Path, **changed: Any) -> dict[str, NDArray[Any]]:
    """Write the network to a file; returns what it is fed.  `changed` replaces attributes or arrays."""
    arrays = {name: changed.pop(name, value) for name, value in product.arrays().items()}
    given = ["x", "b", "scales", "zeros" if product.zeros else "", "", "bias" if product.bias else ""]
    if "g_idx" in changed:
        arrays["g_idx"] = changed.pop("g_idx")
        given[4] = "g_idx"
    while not given[-1]:
        given.pop()
    attributes = {"K": product.inputs, "N": product.columns, "bits": product.bits, "block_size": product.block}
    nodes = [helper.make_node("MatMulNBits", given, ["p"], "product", domain="com.microsoft", **attributes | changed)]
    last = "p"
    if product.after:
        operands = ["p"] if product.after == "relu" else ["p", "r"]
        nodes.append(helper.make_node("Relu" if product.after == "relu" else "Add", operands, ["q"], "after"))
        last = "q"
    feeds = {name: arrays.pop(name) for name in ("x", "r") if name in arrays}
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, each.shape) for name, each in feeds.items()],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [*product.lead, product.columns])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return feeds
