"""Properties of Relax expressions, and element-wise kernels, which both importers use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx, topi

__all__ = [
    "HALVES",
    "REPLACE_NAN",
    "along_axis",
    "constant_of",
    "dtype_of",
    "elementwise",
    "is_float",
    "is_integer",
    "rounded_to_bfloat16",
    "shape_of",
    "static_shape",
]

HALVES = frozenset({"float16", "bfloat16"})
"""Element types for which sums and transcendental functions are computed in float32."""

REPLACE_NAN = "replace_nan"
"""The name of element-wise functions that replace NaN by a number that depends on its index."""


def static_shape(kind: relax.Type) -> tuple[int, ...] | None:
    """The shape of a tensor's type; None when it is no tensor, or a size is not a constant."""
    if not isinstance(kind, relax.TensorType) or not isinstance(kind.shape, relax.ShapeExpr):
        return None
    sizes = kind.shape.values
    return tuple(map(int, sizes)) if all(isinstance(size, tvm.tirx.IntImm) for size in sizes) else None


def shape_of(expression: relax.Expr) -> tuple[int, ...]:
    """The tensor's shape.

    Raises:
        ValueError: when a size is not a constant.
    """
    shape = static_shape(expression.ty)
    if shape is None:
        raise ValueError("the shape of an input depends on data")
    return shape


def along_axis(values: NDArray[Any], axis: int, rank: int) -> NDArray[Any]:
    """A vector as an array of `rank` dimensions, all but `axis` of size 1."""
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])


def dtype_of(expression: relax.Expr) -> str:
    """The tensor's element type."""
    return str(expression.ty.dtype)


def constant_of(expression: Any) -> NDArray[Any] | None:
    """The value of a constant; None for any other expression."""
    return np.asarray(expression.value.numpy()) if isinstance(expression, tvm.ir.GenericConst) else None


def is_float(dtype: str) -> bool:
    """Whether an element type is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def is_integer(dtype: str) -> bool:
    """Whether an element type is an integer, signed or unsigned; False for bool."""
    return dtype.startswith(("int", "uint"))


def elementwise(
    builder: relax.BlockBuilder, function: Callable[..., Any], name: str, *operands: relax.Expr
) -> relax.Expr:
    """A call, not bound yet, of an element-wise function for which Relax has no operator; it can be fused like one.

    `function` takes scalar expressions, one for each operand; operands broadcast.
    """

    def kernel(*tensors: te.Tensor) -> te.Tensor:
        shape = np.broadcast_shapes(*(tuple(map(int, tensor.shape)) for tensor in tensors))

        def compute(*indices: Any) -> Any:
            return function(*(_at(tensor, indices) for tensor in tensors))

        return te.compute(shape, compute, name=f"T_{name}", tag=topi.tag.BROADCAST)

    return builder.call_te(kernel, *operands, primfunc_name_hint=name)


def _at(tensor: te.Tensor, indices: tuple[Any, ...]) -> Any:
    own = indices[len(indices) - len(tensor.shape) :]
    return tensor(*(0 if int(size) == 1 else index for size, index in zip(tensor.shape, own, strict=True)))


def rounded_to_bfloat16(builder: relax.BlockBuilder, tensor: relax.Expr) -> relax.Expr:
    """A call, not bound yet, that rounds float32 to the nearest bfloat16, to even, and leaves it in float32.

    The compiler computes bfloat16 in float32 inside of a kernel, where a cast to it and back rounds nothing.
    """

    def rounded(x: Any) -> Any:
        bits = tirx.reinterpret("uint32", x)
        last = (bits >> tirx.const(16, "uint32")) & tirx.const(1, "uint32")
        kept = (bits + tirx.const(0x7FFF, "uint32") + last) & tirx.const(0xFFFF0000, "uint32")
        return tirx.Select(tirx.isnan(x), x, tirx.reinterpret("float32", kept))

    return elementwise(builder, rounded, "rounded", tensor)
