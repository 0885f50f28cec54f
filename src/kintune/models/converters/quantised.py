"""Quantised tensors: integers that stand for `(q - zero_point) * scale`."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from kintune.models.converters.node import Node, axis_of
from kintune.models.converters.registration import OnnxOperator
from kintune.models.expressions import dtype_of, shape_of
from kintune.models.formulas import Real, choose

__all__ = ["OPERATORS", "dynamically_quantised", "saturated", "single"]

_QUANTISED = ("int8", "uint8", "int16", "uint16")
_DEQUANTISED = (*_QUANTISED, "int32")


def _axis(node: Node, data: relax.Expr) -> int:
    rank = len(shape_of(data))
    if rank <= 1:
        return 0
    return axis_of(int(node.attributes.get("axis", 1)), rank)


def _spread(node: Node, values: relax.Expr, data: relax.Expr, axis: int, block: int) -> relax.Expr:
    """Values that there are one of for each block of an axis, repeated to one for each element of `data`."""
    shape = list(shape_of(values))
    count, size = shape[axis], shape_of(data)[axis]
    if not (count - 1) * block < size <= count * block or len(shape) != len(shape_of(data)):
        raise ValueError(f"{count} blocks of {block} elements do not cover axis {axis} of {size} elements")
    apart = node.reshape(values, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    each = node.expand(apart, [*shape[: axis + 1], block, *shape[axis + 1 :]])
    return node.slice(node.reshape(each, [*shape[:axis], count * block, *shape[axis + 1 :]]), axis, 0, size)


def single(values: relax.Expr) -> relax.Expr:
    """A constant of one element reshaped to a scalar; any other expression as it is."""
    if isinstance(values, tvm.ir.GenericConst) and shape_of(values) and values.value.numpy().size == 1:
        return relax.const(values.value.numpy().reshape(()), dtype_of(values))
    return values


def saturated(node: Node, rounded: relax.Expr, dtype: str) -> relax.Expr:
    """Whole numbers cast to the integer type `dtype`, clamped to its range."""
    limits = np.iinfo(dtype)
    return node.cast(Real(node, rounded).maximum(limits.min).minimum(limits.max).value, dtype)


def _quantised(node: Node, data: relax.Expr, scale: relax.Expr, zero: relax.Expr | None, dtype: str) -> relax.Expr:
    """`data / scale`, rounded half to even, plus the zero point, clamped to the range of `dtype`."""
    rounded = (Real(node, data) / Real(node, scale)).round()
    if zero is not None:
        rounded = rounded + Real(node, zero).cast(rounded.dtype)
    return saturated(node, rounded.value, dtype)


def _quantize(node: Node) -> relax.Expr:
    data, scale, zero = node.required(0), node.required(1), node.operand(2)
    dtype = node.element_type("output_dtype") or ("uint8" if zero is None else dtype_of(zero))
    if dtype not in _QUANTISED:
        raise ValueError(f"quantisation to {dtype} is not supported")
    axis, block = _axis(node, data), int(node.attributes.get("block_size", 0))
    data = node.cast(data, "float32")  # of half precision, or integers
    if block:
        scale = _spread(node, node.cast(scale, "float32"), data, axis, block)
        point = None if zero is None else _spread(node, zero, data, axis, block)
        return _quantised(node, data, scale, point, dtype)
    scale = node.cast(single(scale), "float32")
    return relax.op.quantize(data, scale, single(_like_zero(zero, dtype)), axis=axis, out_dtype=dtype)


def _like_zero(zero: relax.Expr | None, dtype: str) -> relax.Expr:
    return relax.const(0, dtype) if zero is None else zero


def _dequantize(node: Node) -> relax.Expr:
    data, scale, zero = node.required(0), node.required(1), node.operand(2)
    dtype = node.element_type("output_dtype") or dtype_of(scale)
    axis, block = _axis(node, data), int(node.attributes.get("block_size", 0))
    if not block:
        zero = single(_like_zero(zero, dtype_of(data)))
        return relax.op.dequantize(data, single(scale), zero, axis=axis, out_dtype=dtype)
    whole = Real(node, data).cast("int32")
    if zero is not None:
        whole = whole - Real(node, _spread(node, node.cast(zero, "int32"), data, axis, block))
    scale = _spread(node, node.cast(scale, "float32"), data, axis, block)
    return node.cast((whole.cast("float32") * Real(node, scale)).value, dtype)


def dynamically_quantised(node: Node, data: relax.Expr) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Quantises to uint8 by the range of the elements, extended to contain 0; if all are zero, the scale is 1.

    Returns the integers, the scale and the zero point.
    """
    x = Real(node, data)
    greatest, least = x.max().maximum(0), x.min().minimum(0)
    extent = (greatest - least) / 255
    scale = choose(extent.equal(0), 1, extent)
    point = node.builder.emit(saturated(node, (-least / scale).round().value, "uint8"))
    step = node.builder.emit(scale.value)
    return _quantised(node, data, step, point, "uint8"), step, point


def _dynamic_quantize(node: Node) -> relax.Expr:
    return relax.Tuple(dynamically_quantised(node, node.required(0)))


OPERATORS = (
    OnnxOperator("DequantizeLinear", _dequantize, types={0: _DEQUANTISED}),
    OnnxOperator("DynamicQuantizeLinear", _dynamic_quantize),
    OnnxOperator("QuantizeLinear", _quantize),
)
