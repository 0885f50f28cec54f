"""Products with blockwise quantised weights (`com.microsoft::MatMulNBits`): the weights stay packed."""

from __future__ import annotations

import math

from tvm import relax

from kintune.models.blockwise import BITS, PACKED, REAL, Blockwise
from kintune.models.blockwise_kernel import call_blockwise
from kintune.models.converters.node import Node
from kintune.models.converters.registration import MICROSOFT, OnnxOperator
from kintune.models.expressions import dtype_of, shape_of

__all__ = ["OPERATORS"]

_LEAST_BLOCK = 16
_DATA, _INTEGERS, _SCALES, _ZEROS, _ORDER, _BIAS = range(6)


def _product(node: Node) -> relax.Expr:
    """The product of data `[..., K]` with K x N weights.

    Raises:
        ValueError: when the bits, block size or types are not supported, or an operand has another size.
    """
    inputs, columns = (int(node.attributes[name]) for name in ("K", "N"))
    bits, block = int(node.attributes.get("bits", 4)), int(node.attributes["block_size"])
    if bits not in BITS:
        *most, last = BITS
        raise ValueError(f"weights of {bits} bits are not supported; {', '.join(map(str, most))} and {last} are")
    if block < _LEAST_BLOCK or block & (block - 1):
        raise ValueError(f"blocks of {block} weights are not supported; powers of two from {_LEAST_BLOCK} are")
    data = node.required(_DATA)
    if shape_of(data)[-1:] != (inputs,):
        raise ValueError(f"data of shape {shape_of(data)} do not end with {inputs} elements (K)")
    product = Blockwise(bits, block, inputs, _kind_of_zeros(node))
    operands = [data, _turned(node, _INTEGERS, columns, product.depth * bits // 8, "uint8")]
    operands.append(_turned(node, _SCALES, columns, product.blocks, "float32"))
    if product.zeros:
        rows = -(-product.blocks * bits // 8) if product.zeros == PACKED else product.blocks
        operands.append(_turned(node, _ZEROS, columns, rows, "uint8" if product.zeros == PACKED else "float32"))
    result = node.emit(call_blockwise(node.builder, product, operands))
    bias = node.operand(_BIAS)
    return result if bias is None else relax.op.add(result, bias)


_ZERO_POINTS: dict[str, str] = {"uint8": PACKED, "float32": REAL}


def _kind_of_zeros(node: Node) -> str:
    zeros = node.operand(_ZEROS)
    if zeros is None:
        return ""
    return _ZERO_POINTS[dtype_of(zeros)]


def _turned(node: Node, at: int, columns: int, rows: int, dtype: str) -> relax.Expr:
    """The operand `[columns, rows]`, in any shape, transposed to `[rows, columns]`.

    Raises:
        ValueError: when it has another type or number of elements.
    """
    tensor = node.required(at)
    if dtype_of(tensor) != dtype or math.prod(shape_of(tensor)) != rows * columns:
        raise ValueError(
            f"input {at} is {dtype_of(tensor)} {list(shape_of(tensor))}; {columns} columns of {rows} {dtype} are needed"
        )
    flat = node.builder.emit(relax.op.reshape(tensor, [columns, rows]))
    return node.builder.emit(relax.op.permute_dims(flat, [1, 0]))


OPERATORS = (
    OnnxOperator(
        "MatMulNBits",
        _product,
        domain=MICROSOFT,
        types={_DATA: ("float32",), _SCALES: ("float32",), _ZEROS: tuple(_ZERO_POINTS)},
        refused={
            _ORDER: "weights whose blocks are mixed (g_idx) are not supported",
            "weight_prepacked": "weights that are packed for one kind of GPU (weight_prepacked) are not supported",
        },
    ),
)
