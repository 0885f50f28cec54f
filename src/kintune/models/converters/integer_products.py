"""Products and convolutions of quantised tensors: integers minus their zero points are multiplied and summed in int32.

Some operators then quantise the sums.  On CPUs with instructions for products of bytes, `compiler.graph.integers`
rewrites these products to products of bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tvm import relax

from kintune.models.converters.convolution import convolved, with_bias
from kintune.models.converters.node import Node
from kintune.models.converters.quantised import dynamically_quantised, saturated, single
from kintune.models.converters.registration import MICROSOFT, OnnxOperator
from kintune.models.expressions import dtype_of, is_integer, shape_of
from kintune.models.formulas import Real

__all__ = ["OPERATORS", "Triple", "real_product"]


class Triple(NamedTuple):
    """A quantised tensor; a zero point of None stands for 0."""

    integers: Any
    scale: Any
    zero: Any = None


def _centred(node: Node, data: relax.Expr, point: relax.Expr | None, axis: int) -> relax.Expr:
    """Integers minus their zero point, as int32; there may be a zero point for each element of `axis`.

    Raises:
        ValueError: when `data` does not hold integers.
    """
    if not is_integer(dtype_of(data)):
        raise ValueError("it multiplies tensors that are no integers")
    whole = node.cast(data, "int32")
    if point is None:
        return whole
    point = node.cast(single(point), "int32")
    if shape := shape_of(point):
        rank = len(shape_of(data))
        target = (
            [] if all(extent == 1 for extent in shape) else _along(axis, rank) if len(shape) < rank else list(shape)
        )
        point = node.emit(relax.op.reshape(point, target))
    return node.emit(relax.op.subtract(whole, point))


def _along(axis: int, rank: int) -> list[int]:
    return [-1 if place == axis else 1 for place in range(rank)]


def _sum_of_products(
    node: Node, left: relax.Expr, left_zero: relax.Expr | None, right: relax.Expr, right_zero: relax.Expr | None
) -> relax.Expr:
    """The int32 product of two matrices, each given by its integers and its zero point."""
    a = _centred(node, left, left_zero, len(shape_of(left)) - 2)
    b = _centred(node, right, right_zero, len(shape_of(right)) - 1)
    return relax.op.matmul(a, b, out_dtype="int32")


def real_product(node: Node, left: Triple, right: Triple, bias: relax.Expr | None) -> relax.Expr:
    """The float32 product of two quantised matrices plus an optional bias of the columns.

    The second matrix may have a scale for each column.
    """
    sums = node.emit(_sum_of_products(node, left.integers, left.zero, right.integers, right.zero))
    step = Real(node, single(left.scale)) * Real(node, single(right.scale))
    product = Real(node, sums).cast("float32") * step
    found = (product if bias is None else product + Real(node, bias)).value
    # of two vectors, it has no axis for a scale or bias of one element
    return found if shape_of(found) == shape_of(sums) else relax.op.reshape(found, shape_of(sums))


def _product(node: Node) -> relax.Expr:
    return _sum_of_products(node, node.required(0), node.operand(2), node.required(1), node.operand(3))


def _real_product(node: Node) -> relax.Expr:
    left = Triple(node.required(0), node.required(2), node.operand(4))
    return real_product(node, left, Triple(node.required(1), node.required(3), node.operand(5)), node.operand(6))


def _dynamic_product(node: Node) -> relax.Expr:
    """A product whose first matrix is fp32, and is quantised by its own range at run time."""
    left = Triple(*dynamically_quantised(node, node.required(0)))
    return real_product(node, left, Triple(node.required(1), node.required(2), node.operand(3)), node.operand(4))


def _convolution(node: Node) -> relax.Expr:
    data = _centred(node, node.required(0), node.operand(2), 1)
    return convolved(node, data, _centred(node, node.required(1), node.operand(3), 0))


def _quantised(node: Node, sums: relax.Expr, left: list[int], right: list[int]) -> relax.Expr:
    """Quantises int32 sums; scales of the operands that are not scalars are reshaped to `left` and `right`.

    Raises:
        ValueError: when the type of the result's zero point is no integer type.
    """
    zero = node.required(7)
    if not is_integer(dtype_of(zero)):
        raise ValueError("its result is no integer")
    scales = []
    for at, shape in ((1, left), (4, right)):
        scale = node.cast(single(node.required(at)), "float32")
        scales.append(Real(node, node.emit(relax.op.reshape(scale, shape)) if shape_of(scale) else scale))
    factor = scales[0] * scales[1] / Real(node, single(node.required(6))).cast("float32")
    steps = (Real(node, sums).cast("float32") * factor).round()
    return saturated(node, (steps + Real(node, single(zero)).cast("float32")).value, dtype_of(zero))


def _quantised_product(node: Node) -> relax.Expr:
    operands = (node.required(0), node.operand(2), node.required(3), node.operand(5))
    sums = node.emit(_sum_of_products(node, *operands))
    rank = len(shape_of(sums))
    return _quantised(node, sums, _along(rank - 2, rank), _along(rank - 1, rank))


def _quantised_convolution(node: Node) -> relax.Expr:
    """A quantised convolution; the int32 bias is in units of the product of both scales."""
    data = _centred(node, node.required(0), node.operand(2), 1)
    sums = node.emit(convolved(node, data, _centred(node, node.required(3), node.operand(5), 0)))
    return _quantised(node, with_bias(node, sums, node.operand(8)), [], _along(1, len(shape_of(sums))))


def _wide_product(node: Node) -> relax.Expr:
    """The product of integers of 16 bits, in 32 bits; unsigned if both sides are."""
    sides = [node.required(index) for index in range(2)]
    wide = "uint32" if all(dtype_of(side) == "uint16" for side in sides) else "int32"
    return relax.op.matmul(*(node.cast(side, wide) for side in sides))


OPERATORS = (
    OnnxOperator("ConvInteger", _convolution),
    OnnxOperator("DynamicQuantizeMatMul", _dynamic_product, domain=MICROSOFT),
    OnnxOperator("MatMulInteger", _product),
    OnnxOperator(
        "MatMulInteger16", _wide_product, domain=MICROSOFT, types=dict.fromkeys(range(2), ("int16", "uint16"))
    ),
    OnnxOperator("MatMulIntegerToFloat", _real_product, domain=MICROSOFT),
    OnnxOperator("QLinearConv", _quantised_convolution),
    OnnxOperator("QLinearMatMul", _quantised_product),
)
