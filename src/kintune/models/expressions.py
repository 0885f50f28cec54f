"""Properties of Relax expressions, and compositions of Relax operators, which both importers use.

Functions that compose operators take `emit`, which binds or normalises an expression, and return an expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te, tirx, topi

__all__ = [
    "HALVES",
    "REPLACE_NAN",
    "Standardised",
    "along_axis",
    "constant_of",
    "dtype_of",
    "elementwise",
    "gelu_curve",
    "is_float",
    "is_integer",
    "log1p",
    "rounded_to_bfloat16",
    "scatter_elements",
    "scatter_nd",
    "shape_of",
    "standardised",
    "static_shape",
]

Emit: TypeAlias = "Callable[[relax.Expr], relax.Expr]"

HALVES = frozenset({"float16", "bfloat16"})
"""Element types for which sums and transcendental functions are computed in float32."""

REPLACE_NAN = "replace_nan"
"""The name of element-wise functions that replace NaN by a number that depends on its index."""


class Standardised(NamedTuple):
    """A tensor minus its mean, divided by its standard deviation; both statistics keep their dimensions."""

    result: relax.Expr
    mean: relax.Expr
    inverse_deviation: relax.Expr


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


def standardised(emit: Emit, tensor: relax.Expr, axes: Sequence[int], epsilon: relax.Expr) -> Standardised:
    """The tensor minus its mean over `axes`, divided by its standard deviation; `epsilon` is added to the variance.

    The variance is the mean square of the differences to the mean, so that a mean far from zero costs no accuracy.
    """
    mean = emit(relax.op.mean(tensor, list(axes), keepdims=True))
    centred = emit(relax.op.subtract(tensor, mean))
    variance = emit(relax.op.mean(emit(relax.op.multiply(centred, centred)), list(axes), keepdims=True))
    inverse = emit(relax.op.rsqrt(emit(relax.op.add(variance, epsilon))))
    return Standardised(emit(relax.op.multiply(centred, inverse)), mean, inverse)


def log1p(emit: Emit, scalar: Callable[[float], relax.Expr], value: relax.Expr) -> relax.Expr:
    """log(1 + x), corrected for the rounding of 1 + x; `scalar` makes a constant of the value's type."""
    one = scalar(1)
    sum_ = emit(relax.op.add(value, one))
    logarithm = emit(relax.op.log(sum_))
    ratio = emit(relax.op.divide(value, emit(relax.op.subtract(sum_, one))))
    corrected = emit(relax.op.multiply(logarithm, ratio))
    tiny, large = emit(relax.op.equal(sum_, one)), emit(relax.op.greater(value, scalar(1e7)))
    return emit(relax.op.where(tiny, value, emit(relax.op.where(large, logarithm, corrected))))


def gelu_curve(emit: Emit, scalar: Callable[[float], relax.Expr], data: relax.Expr, approximation: str) -> relax.Expr:
    """The factor `2 * gelu(x) / x - 1`: the error function of `x / sqrt(2)`, or its "tanh" approximation.

    `scalar` makes a constant of the element type of `data`.
    """
    if approximation == "tanh":
        cube = emit(relax.op.multiply(emit(relax.op.multiply(data, data)), data))
        inner = emit(relax.op.add(data, emit(relax.op.multiply(cube, scalar(0.044715)))))
        return emit(relax.op.tanh(emit(relax.op.multiply(inner, scalar(math.sqrt(2 / math.pi))))))
    return emit(relax.op.erf(emit(relax.op.multiply(data, scalar(math.sqrt(0.5))))))


def scatter_elements(
    emit: Emit,
    data: relax.Expr,
    index: relax.Expr,
    updates: relax.Expr,
    axis: int,
    reduction: str,
) -> relax.Expr:
    """A copy of `data` with `updates` written at `index` along `axis` (not negative), combined by `reduction`.

    This is ONNX's `ScatterElements` and PyTorch's `scatter`; `reduction` is that of `relax.op.scatter_elements`.  Of
    truth values, a sum is whether one is true, and a product whether all are.

    `index` and `updates` have one shape; along other axes than `axis` it may be smaller than that of `data`.  TVM's
    kernel writes to wrong positions when two axes lie on one side of `axis` and the inner one is smaller.  So it gets
    only the part of `data` that can be written, and the rest is concatenated.
    """
    sizes = [int(size) for size in data.ty.shape]
    wanted = [int(size) for size in index.ty.shape]
    smaller = [at for at, size in enumerate(sizes) if at != axis and wanted[at] < size]
    part = data
    for at in smaller:
        part = emit(relax.op.strided_slice(part, [at], [0], [wanted[at]]))
    written = _reduced(
        emit, part, updates, reduction, lambda to, new, how: relax.op.scatter_elements(to, index, new, axis, how)
    )
    for place in reversed(range(len(smaller))):
        at = smaller[place]
        rest = emit(relax.op.strided_slice(data, [at], [wanted[at]], [sizes[at]]))
        for before in smaller[:place]:
            rest = emit(relax.op.strided_slice(rest, [before], [0], [wanted[before]]))
        written = emit(relax.op.concat([written, rest], at))
    return written


def scatter_nd(emit: Emit, data: relax.Expr, places: relax.Expr, updates: relax.Expr, reduction: str) -> relax.Expr:
    """A copy of `data` with `updates` written at `places`, combined by `reduction`, as by `relax.op.scatter_nd`.

    Truth values are combined as by `scatter_elements`.
    """
    return _reduced(emit, data, updates, reduction, lambda to, new, how: relax.op.scatter_nd(to, places, new, how))


_OF_TRUTH_VALUES = {"add": "max", "max": "max", "mul": "min", "min": "min"}
"""Reductions of truth values -> those of 0 and 1."""


def _reduced(
    emit: Emit,
    data: relax.Expr,
    updates: relax.Expr,
    reduction: str,
    scatter: Callable[[relax.Expr, relax.Expr, str], relax.Expr],
) -> relax.Expr:
    """What `scatter` writes; truth values are reduced as bytes, since the compiler's kernels are for numbers."""
    if dtype_of(data) != "bool" or reduction == "update":
        return emit(scatter(data, updates, reduction))
    data, updates = (emit(relax.op.astype(each, "uint8")) for each in (data, updates))
    return emit(relax.op.astype(emit(scatter(data, updates, _OF_TRUTH_VALUES[reduction])), "bool"))
