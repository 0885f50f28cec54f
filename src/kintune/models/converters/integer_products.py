"""Products and convolutions of quantised tensors: sums of integers less their zero points, then quantised again.

For CPUs with products of bytes, `compiler.graph.integers` makes products of bytes of them.
"""

from __future__ import annotations

from tvm import relax

from kintune.models.converters.convolution import convolved
from kintune.models.converters.node import Convert, Node
from kintune.models.converters.quantised import saturated, single
from kintune.models.expressions import dtype_of, is_integer, shape_of

__all__ = ["CONVERTERS"]


def _centred(node: Node, at: int, zero: int, axis: int) -> relax.Expr:
    """The integers of operand `at` less their zero point, which may be one for each element of an axis.

    Raises:
        ValueError: they are no integers.
    """
    data, point = node.required(at), node.operand(zero)
    if not is_integer(dtype_of(data)):
        raise ValueError("it multiplies tensors that are no integers")
    whole = node.cast(data, "int32")
    if point is None:
        return whole
    point = node.cast(single(point), "int32")
    if shape_of(point):
        point = node.emit(relax.op.reshape(point, _along(axis, len(shape_of(data)))))
    return node.emit(relax.op.subtract(whole, point))


def _along(axis: int, rank: int) -> list[int]:
    return [-1 if place == axis else 1 for place in range(rank)]


def _rank(node: Node, at: int) -> int:
    return len(shape_of(node.required(at)))


def _sum_of_products(node: Node, left: tuple[int, int], right: tuple[int, int]) -> relax.Expr:
    """The product of two matrices, each given by the places of its integers and of its zero point."""
    a = _centred(node, *left, _rank(node, left[0]) - 2)
    return relax.op.matmul(a, _centred(node, *right, _rank(node, right[0]) - 1), out_dtype="int32")


def _product(node: Node) -> relax.Expr:
    return _sum_of_products(node, (0, 2), (1, 3))


def _convolution(node: Node) -> relax.Expr:
    return convolved(node, _centred(node, 0, 2, 1), _centred(node, 1, 3, 0))


def _quantised(node: Node, sums: relax.Expr, left: list[int], right: list[int]) -> relax.Expr:
    """Sums of products, quantised; the scales of the operands are shaped `left` and `right`, where they are several.

    Raises:
        ValueError: the result would be no integer.
    """
    zero = node.required(7)
    if not is_integer(dtype_of(zero)):
        raise ValueError("its result is no integer")
    factor = node.cast(single(node.required(6)), "float32")
    scales = []
    for at, shape in ((1, left), (4, right)):
        scale = node.cast(single(node.required(at)), "float32")
        scales.append(node.emit(relax.op.reshape(scale, shape)) if shape_of(scale) else scale)
    factor = node.emit(relax.op.divide(node.emit(relax.op.multiply(*scales)), factor))
    steps = node.emit(relax.op.round(node.emit(relax.op.multiply(node.cast(sums, "float32"), factor))))
    moved = node.emit(relax.op.add(steps, node.cast(single(zero), "float32")))
    return saturated(node, moved, dtype_of(zero))


def _quantised_product(node: Node) -> relax.Expr:
    sums = node.emit(_sum_of_products(node, (0, 2), (3, 5)))
    rank = len(shape_of(sums))
    return _quantised(node, sums, _along(rank - 2, rank), _along(rank - 1, rank))


def _quantised_convolution(node: Node) -> relax.Expr:
    """The bias, if any, counts steps of the product of both scales."""
    sums = node.emit(convolved(node, _centred(node, 0, 2, 1), _centred(node, 3, 5, 0)))
    rank = len(shape_of(sums))
    if (bias := node.operand(8)) is not None:
        sums = node.emit(relax.op.add(sums, node.per_channel(node.cast(bias, "int32"), rank)))
    return _quantised(node, sums, [], _along(1, rank))


CONVERTERS: dict[str, Convert] = {
    "ConvInteger": _convolution,
    "MatMulInteger": _product,
    "QLinearConv": _quantised_convolution,
    "QLinearMatMul": _quantised_product,
}
"""Operator -> what converts it."""
