"""Quantises constant weights of products of matrices to 4 or 8 bits, in blocks: MatMul and Gemm become `MatMulNBits`.

Data stay fp32.  Weights have a scale for each block of one column, and no zero points.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from kintune.core.stage_results import QUANTISED_DATA
from kintune.errors import ModelError, cause_line
from kintune.models.onnx_nodes import DEFAULT_DOMAINS
from kintune.models.quantisation.layer_choice import Layer

__all__ = ["BLOCK", "WeightQuantiser", "dequantised", "quantised_blocks"]

BLOCK = 32
"""The number of consecutive weights of a column that share a scale."""

_DOMAIN = "com.microsoft"
_LEAST_EXTENT = 256  # fewest rows and columns of weights that are quantised
_BYTES_A_US = 10_000.0  # assumed bytes that a kernel reads in a microsecond
_MOST_BYTES = 1_500_000_000  # of weights inside of an ONNX file; more are written to another file
_SWITCH = "kintune weights "
_WEIGHTS_APART = 4  # the version of the format since which weights need not be inputs as well


class _Product(NamedTuple):
    """A node that multiplies by constant weights: the initialiser `weights`, `transposed` or not."""

    node: NodeProto
    weights: str
    transposed: bool


class WeightQuantiser:
    """A model whose weights may be quantised; `layers` are the products whose weights are large, by names of nodes."""

    def __init__(self, path: Path, bits: int) -> None:
        """Read the ONNX model at `path`; its weights will have 4 or 8 `bits`.

        Raises:
            ModelError: when it cannot be read, or has no product with large constant weights.
        """
        self._path, self._bits = path, bits
        try:
            self._model = onnx.load(path)
        except Exception as error:  # no ONNX file, or weights that are missing
            raise ModelError(f"{path}: its weights cannot be quantised: {cause_line(error)}") from error
        _name_nodes(self._model)
        self._weights = {tensor.name: tensor for tensor in self._model.graph.initializer}
        _drop_inputs(self._model, self._weights)
        self._products = {product.node.name: product for product in _products(self._model, self._weights)}
        if not self._products:
            raise ModelError(
                f"{path}: has no products of matrices with constant fp32 weights of {_LEAST_EXTENT} x {_LEAST_EXTENT} "
                "or more; leave --weights out"
            )
        self.layers = tuple(Layer(name, self._saved_us(product)) for name, product in self._products.items())

    def _saved_us(self, product: _Product) -> float:
        count = float(np.prod(self._weights[product.weights].dims))
        return count * (4 - self._bits / 8 - 4 / BLOCK) / _BYTES_A_US

    def matrix(self, name: str) -> NDArray[np.float32]:
        """The fp32 weights `[inputs, columns]` of a layer."""
        product = self._products[name]
        found = np.asarray(numpy_helper.to_array(self._weights[product.weights]))
        return np.ascontiguousarray(found.T if product.transposed else found)

    def save(self, layers: Collection[str], written: Path) -> None:
        """Write the model with the weights of these layers quantised to the file `written`.

        Large weights go to a second file beside it.
        """
        model = _without_weights(self._model)
        replaced = {self._products[name].node.output[0]: name for name in layers}
        nodes: list[NodeProto] = []
        made: list[TensorProto] = []
        for node in model.graph.node:
            name = replaced.get(node.output[0])
            nodes += [node] if name is None else self._quantised(self._products[name], made)
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        _drop_unused(model)
        read = {name for node in model.graph.node for name in node.input} | {port.name for port in model.graph.output}
        read |= _read_inside(model)
        kept = [tensor for tensor in self._model.graph.initializer if tensor.name in read]
        model.graph.initializer.extend([*kept, *made])
        if all(entry.domain != _DOMAIN for entry in model.opset_import):
            model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
        large = sum(len(tensor.raw_data) for tensor in model.graph.initializer) > _MOST_BYTES
        location = f"{written.name}{QUANTISED_DATA}" if large else None
        onnx.save(model, written, save_as_external_data=large, location=location)

    def _quantised(self, product: _Product, made: list[TensorProto]) -> list[NodeProto]:
        """The nodes that replace a product; their weights are added to `made`."""
        node, name = product.node, f"{_SWITCH}{product.node.name}"
        weights = self.matrix(node.name)
        integers, scales = quantised_blocks(weights, self._bits)
        for array, what in ((integers, "integers"), (scales, "scales")):
            made.append(numpy_helper.from_array(array, f"{name} {what}"))
        inputs = [node.input[0], f"{name} integers", f"{name} scales"]
        attributes = {"K": weights.shape[0], "N": weights.shape[1], "bits": self._bits, "block_size": BLOCK}
        added = node.input[2] if len(node.input) > 2 else ""
        results = [node.output[0] if not added else f"{name} product"]
        found = [helper.make_node("MatMulNBits", inputs, results, node.name, domain=_DOMAIN, **attributes)]
        if added:
            found.append(helper.make_node("Add", [results[0], added], [node.output[0]], f"{node.name} bias"))
        return found

    def switched(self) -> ModelProto:
        """The fp32 model with the weights `[inputs, columns]` of each layer as an input, named `switch(layer)`."""
        model = _without_weights(self._model)
        for node in model.graph.node:
            product = self._products.get(node.name)
            if product is None:
                continue
            shape = self.matrix(node.name).shape
            model.graph.input.append(
                helper.make_tensor_value_info(self.switch(node.name), TensorProto.FLOAT, list(shape))
            )
            node.input[1] = self.switch(node.name)
            kept = [attribute for attribute in node.attribute if attribute.name != "transB"]
            del node.attribute[:]
            node.attribute.extend(kept)
        _drop_unused(model)
        read = {name for node in model.graph.node for name in node.input} | _read_inside(model)
        read |= {value.name for value in model.graph.output}
        model.graph.initializer.extend(tensor for tensor in self._model.graph.initializer if tensor.name in read)
        return model

    @staticmethod
    def switch(name: str) -> str:
        """The name of the input of the `switched` model that takes the weights of a layer."""
        return f"{_SWITCH}{name}"


def quantised_blocks(weights: NDArray[np.float32], bits: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Integers `[N, blocks, BLOCK * bits / 8]` and scales `[N, blocks]` of weights `[K, N]`, as `MatMulNBits` has them.

    The weight of the largest magnitude in a block becomes the least integer.
    """
    inputs, columns = weights.shape
    blocks = -(-inputs // BLOCK)
    turned = np.zeros((columns, blocks * BLOCK), np.float32)
    turned[:, :inputs] = weights.T
    grouped = turned.reshape(columns, blocks, BLOCK)
    least, greatest = grouped.min(2), grouped.max(2)
    middle = 1 << (bits - 1)
    scales = np.where(-least > greatest, least, greatest) / np.float32(-middle)
    with np.errstate(divide="ignore"):
        inverse = np.where(scales == 0, np.float32(0), np.float32(1) / scales)
    integers = np.clip(np.rint(grouped * inverse[:, :, None]) + middle, 0, 2 * middle - 1).astype(np.uint8)
    if bits == 4:
        integers = integers[:, :, ::2] | (integers[:, :, 1::2] << 4)
    return integers, scales.astype(np.float32)


def dequantised(
    integers: NDArray[np.uint8], scales: NDArray[np.float32], bits: int, inputs: int
) -> NDArray[np.float32]:
    """The weights `[inputs, N]` that integers and scales stand for."""
    columns, blocks = scales.shape
    if bits == 4:
        integers = np.stack([integers & 15, integers >> 4], -1)
    whole = integers.reshape(columns, blocks, BLOCK).astype(np.float32) - np.float32(1 << (bits - 1))
    return np.ascontiguousarray((whole * scales[:, :, None]).reshape(columns, -1)[:, :inputs].T)


def _products(model: ModelProto, weights: Mapping[str, TensorProto]) -> list[_Product]:
    """The products of the main graph with large constant weights."""
    turned = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "Transpose" and node.domain in DEFAULT_DOMAINS and node.input[0] in weights
        if all(list(attribute.ints) == [1, 0] for attribute in node.attribute if attribute.name == "perm")
    }
    found = []
    for node in model.graph.node:
        if node.op_type not in ("MatMul", "Gemm") or node.domain not in DEFAULT_DOMAINS:
            continue
        name = turned.get(node.input[1], node.input[1])
        tensor = weights.get(name)
        if tensor is None or tensor.data_type != TensorProto.FLOAT or len(tensor.dims) != 2:
            continue
        if min(tensor.dims) < _LEAST_EXTENT or name == node.input[0]:
            continue
        transposed = name != node.input[1]
        if node.op_type == "Gemm":
            values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            if values.get("transA") or values.get("alpha", 1.0) != 1.0 or values.get("beta", 1.0) != 1.0:
                continue
            transposed ^= bool(values.get("transB", 0))
        found.append(_Product(node, name, transposed))
    return found


def _drop_inputs(model: ModelProto, weights: Collection[str]) -> None:
    """Remove from the inputs those that are also weights, as in old files: a replaced weight must not stay an input."""
    kept = [port for port in model.graph.input if port.name not in weights]
    if len(kept) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, _WEIGHTS_APART)


def _name_nodes(model: ModelProto) -> None:
    """Give each node of the main graph a name of its own."""
    taken: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type} {number}"
        while node.name in taken:
            node.name += "."
        taken.add(node.name)


def _without_weights(model: ModelProto) -> ModelProto:
    """A copy of the model without its initialisers."""
    copied = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            if field.is_repeated:
                getattr(copied, field.name).extend(value)
            else:
                setattr(copied, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name == "initializer":
            continue
        if field.is_repeated:
            getattr(copied.graph, field.name).extend(value)
        else:
            setattr(copied.graph, field.name, value)
    return copied


def _drop_unused(model: ModelProto) -> None:
    """Remove the transposes whose results nothing reads any more."""
    while True:
        read = {name for node in model.graph.node for name in node.input} | {port.name for port in model.graph.output}
        read |= _read_inside(model)
        kept = [node for node in model.graph.node if node.op_type != "Transpose" or read.intersection(node.output)]
        if len(kept) == len(model.graph.node):
            return
        del model.graph.node[:]
        model.graph.node.extend(kept)


def _read_inside(model: ModelProto) -> set[str]:
    """The names that graphs within nodes read."""
    found: set[str] = set()
    pending = [
        attribute.g for node in model.graph.node for attribute in node.attribute if attribute.type == attribute.GRAPH
    ]
    while pending:
        graph = pending.pop()
        found |= {name for node in graph.node for name in node.input} | {port.name for port in graph.output}
        pending += [
            attribute.g for node in graph.node for attribute in node.attribute if attribute.type == attribute.GRAPH
        ]
    return found
