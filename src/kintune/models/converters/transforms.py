"""Discrete Fourier transforms, of whole axes and of windows, as products with constant matrices.

A product takes more operations than a fast Fourier transform, but it is tuned and fused like any other product, and
transforms in networks are short: windows of some hundred samples.  Longer ones are refused.
"""

from __future__ import annotations

import math

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, te

from kintune.core.dtypes import numpy_dtype
from kintune.models.converters.node import Node, axis_of
from kintune.models.converters.registration import OnnxOperator
from kintune.models.expressions import dtype_of, shape_of
from kintune.models.fourier import fourier_matrix

__all__ = ["OPERATORS"]


def _fourier(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    rank = len(shape)
    given = node.given_integers("axis", 2)
    axis = axis_of(given[0] if given else 1 if node.opset < 20 else -2, rank)
    if axis == rank - 1:
        raise ValueError("its axis is that of real and imaginary parts")
    is_half, is_inverse = (bool(node.attributes.get(name, 0)) for name in ("onesided", "inverse"))
    length = _scalar(node, 1)
    if length is None:
        length = 2 * (shape[axis] - 1) if is_half and is_inverse else shape[axis]
    matrix = fourier_matrix(length, shape[-1], is_half=is_half, is_inverse=is_inverse)
    order = [other for other in range(rank) if other not in (axis, rank - 1)]
    moved = node.emit(relax.op.permute_dims(data, [*order, axis, rank - 1]))
    result = _transformed(node, _of_length(node, moved, len(matrix)), matrix)
    back = [*order, axis, rank - 1]
    return relax.op.permute_dims(result, [back.index(place) for place in range(rank)])


def _windowed(node: Node) -> relax.Expr:
    """The transforms of the windows of a signal, [batch, windows, frequencies, 2]."""
    signal = node.required(0)
    if len(shape_of(signal)) == 2:
        signal = node.emit(relax.op.expand_dims(signal, -1))
    batch, size, parts = shape_of(signal)
    step, length, window = _scalar(node, 1), _scalar(node, 3), node.operand(2)
    if step is None or step < 1:
        raise ValueError(f"a step of {step} samples leads from no window to the next")
    if window is not None:
        length = shape_of(window)[0] if length is None else length
        if shape_of(window) != (length,):
            raise ValueError(f"a window of shape {list(shape_of(window))} is none for {length} samples")
    if length is None:
        raise ValueError("it has neither a window nor a frame_length")
    count = (size - length) // step + 1
    if length < 1 or count < 1:
        raise ValueError(f"a signal of {size} samples has no window of {length}")
    matrix = fourier_matrix(length, parts, is_half=bool(node.attributes.get("onesided", 1)), is_inverse=False)

    def cut(values: te.Tensor) -> te.Tensor:
        return te.compute(
            (batch, count, length, parts), lambda b, t, k, part: values[b, t * step + k, part], name="frame"
        )

    frames = node.builder.emit_te(cut, signal, primfunc_name_hint="frames")
    if isinstance(window, tvm.ir.GenericConst):
        matrix = matrix * np.asarray(window.value.numpy(), np.float64).reshape(-1, 1, 1, 1)
    elif window is not None:
        frames = node.emit(relax.op.multiply(frames, node.emit(relax.op.expand_dims(window, -1))))
    return _transformed(node, frames, matrix)


def _transformed(node: Node, data: relax.Expr, matrix: NDArray[np.float64]) -> relax.Expr:
    """The data with its last two axes, [values read, parts], multiplied by the matrix."""
    own, shape = dtype_of(data), shape_of(data)
    wide = node.wide(data)
    read, parts, written, results = matrix.shape
    factors = matrix.reshape(read * parts, written * results).astype(numpy_dtype(dtype_of(wide)))
    rows = node.emit(relax.op.reshape(wide, [math.prod(shape[:-2]), read * parts]))
    product = node.emit(relax.op.matmul(rows, relax.const(factors, dtype_of(wide))))
    return node.cast(node.emit(relax.op.reshape(product, [*shape[:-2], written, results])), own)


def _of_length(node: Node, data: relax.Expr, length: int) -> relax.Expr:
    """The data with `length` values along its last axis but one: truncated, or padded with zeros."""
    axis = len(shape_of(data)) - 2
    size = shape_of(data)[axis]
    if size > length:
        return node.emit(relax.op.strided_slice(data, [axis], [0], [length]))
    widths = [0] * (2 * axis) + [0, length - size, 0, 0]
    return data if size == length else node.emit(relax.op.nn.pad(data, widths))


def _scalar(node: Node, index: int) -> int | None:
    """An operand of one integer; None where it is left out."""
    value = node.constant(index)
    return None if value is None else int(value.reshape(-1)[0])


_COMPUTED = "its inputs depend on those of the network; fix them in the file, or by --constant"

OPERATORS = (
    OnnxOperator("DFT", _fourier, constants={1: "dft_length", 2: "axis"}),
    OnnxOperator("MelWeightMatrix", _COMPUTED, constants=dict.fromkeys(range(5), "inputs")),
    OnnxOperator("STFT", _windowed, constants={1: "frame_step", 3: "frame_length"}),
)
