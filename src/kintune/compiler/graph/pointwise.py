"""Pointwise (1x1) convolutions: each element of the result is a sum over the channels of one pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.rewriting import layouts_of, operator_of, static_shape

__all__ = ["CHANNELS", "ROWS", "is_pointwise", "pixels", "pointwise"]

CHANNELS, ROWS = 1, 2
"""The axes of channels and rows; columns follow."""

_TYPE = "float32"


def is_pointwise(value: Any) -> bool:
    """Whether this is a pointwise convolution in NCHW and fp32: constant filters, one group, stride 1, no padding."""
    if operator_of(value) != "relax.nn.conv2d":
        return False
    a, (data, weight) = value.attrs, value.args
    shape = static_shape(weight)
    is_constant = isinstance(weight, tvm.ir.GenericConst)
    if not is_constant or shape is None or None in (static_shape(data), static_shape(value)):
        return False
    if {str(each.ty.dtype) for each in (data, weight, value)} != {_TYPE}:
        return False
    ones, layouts = (a.groups, *a.strides, *shape[ROWS:]), layouts_of(value)
    return layouts == ("NCHW", "OIHW", "NCHW") and all(int(each) == 1 for each in ones) and not any(map(int, a.padding))


def pointwise(data: relax.Expr, filters: NDArray[Any]) -> relax.Call:
    """A pointwise convolution of `data` (batch, channels, rows, columns) by `filters` (filters, channels, 1, 1)."""
    return relax.op.nn.conv2d(data, relax.const(np.ascontiguousarray(filters), _TYPE))


def pixels(expression: relax.Expr) -> int:
    """The number of pixels, rows times columns, of a tensor (batch, channels, rows, columns)."""
    rows, columns = (static_shape(expression) or (0,) * 4)[ROWS:]
    return rows * columns
