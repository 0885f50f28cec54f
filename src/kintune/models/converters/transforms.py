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
from kintune.models.converters.node import Convert, Node, axis_of
from kintune.models.expressions import dtype_of, shape_of

__all__ = ["CONVERTERS"]

_MOST_ENTRIES = 2**23
"""The most entries of a matrix: a transform of 2048 real values to half of the spectrum has half as many."""


def _fourier(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    rank = len(shape)
    given = node.given_integers("axis", 2)
    axis = axis_of(given[0] if given else 1 if node.opset < 20 else -2, rank)
    if axis == rank - 1:
        raise ValueError("its axis is that of real and imaginary parts")
    is_half, is_inverse = (bool(node.attributes.get(name, 0)) for name in ("onesided", "inverse"))
    length = _scalar(node, 1, "dft_length")
    if length is None:
        length = 2 * (shape[axis] - 1) if is_half and is_inverse else shape[axis]
    matrix = _matrix(length, shape[-1], is_half=is_half, is_inverse=is_inverse)
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
    step, length, window = _scalar(node, 1, "frame_step"), _scalar(node, 3, "frame_length"), node.operand(2)
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
    matrix = _matrix(length, parts, is_half=bool(node.attributes.get("onesided", 1)), is_inverse=False)

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


def _matrix(length: int, parts: int, *, is_half: bool, is_inverse: bool) -> NDArray[np.float64]:
    """The matrix of a transform of `length` values: [values read, their parts, values written, their parts].

    The parts of a value are the real and the imaginary one, or the real one alone.  Half of a spectrum is its first
    `length // 2 + 1` values, which are enough for a real signal.  The inverse transform of half a spectrum is real.

    Raises:
        ValueError: when the matrix has too many entries, or the length or the number of parts is not possible.
    """
    if length < 1 or parts not in (1, 2):
        raise ValueError(f"a transform of {length} values of {parts} parts is none")
    half = length // 2 + 1
    is_real = is_half and is_inverse
    read, written = half if is_real else length, half if is_half and not is_inverse else length
    results = 1 if is_real else 2
    if read * parts * written * results > _MOST_ENTRIES:
        raise ValueError(f"a transform of {length} values is too long to be a product of matrices")
    turns = np.outer(np.arange(read), np.arange(written)) % length
    angles = turns * (2 * math.pi / length * (1 if is_inverse else -1))
    real, imaginary = np.cos(angles), np.sin(angles)
    matrix = np.empty((read, parts, written, results))
    matrix[:, 0, :, 0] = real
    if parts == 2:
        matrix[:, 1, :, 0] = -imaginary
    if results == 2:
        matrix[:, 0, :, 1] = imaginary
        if parts == 2:
            matrix[:, 1, :, 1] = real
    if is_real:  # the other half of the spectrum is the conjugate of this one
        matrix[1 : length - half + 1] *= 2
    return matrix / length if is_inverse else matrix


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


def _scalar(node: Node, index: int, name: str) -> int | None:
    """An operand of one integer; None where it is left out."""
    value = node.constant(index, name)
    return None if value is None else int(value.reshape(-1)[0])


CONVERTERS: dict[str, Convert] = {"DFT": _fourier, "STFT": _windowed}
"""Operator -> what converts it."""
