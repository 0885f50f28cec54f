"""Resizing with antialiasing, along one axis after the other: each output element is the mean of a window.

Where an image gets smaller, windows are larger than those of plain interpolation.  Their weights follow from the sizes
alone, and PyTorch itself computes them, so that they are rounded as its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kintune.models.expressions import dtype_of, shape_of
from kintune.models.formulas import Real
from kintune.models.interpolation import resized
from kintune.models.torch_converters.images import scales_of
from kintune.models.torch_converters.translation import Converter, Expression, Translation

__all__ = ["CONVERTERS"]

_REACH = {"bilinear": 1, "bicubic": 2, "lanczos": 3}
"""How far the weights reach on both sides of a window's middle, in elements of the smaller one of input and output."""

_MOST_BITS = 22
"""Binary digits of the weights of bytes, at most."""

_WEIGHTS_END = 1 << 15
"""The weights of bytes are below this number."""


class _Windows(NamedTuple):
    """The windows along one axis: middles (outputs), first elements (outputs), and weights (outputs, taps).

    A window may begin before the first element and end after the last one; the weights are 0 there.
    """

    middles: NDArray[Any]
    first: NDArray[np.int64]
    weights: NDArray[Any]


def _resize(mode: str) -> Converter:
    operator = f"_upsample_{mode}2d_aa"

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        image = a.input if hasattr(a, "input") else a.self
        is_whole = dtype_of(image) == "uint8"
        value = t.cast(image, "int32") if is_whole else t.wide(image)
        axes = list(enumerate(scales_of(a, 2), 2))
        for axis, scale in reversed(axes) if is_whole else axes:
            matrix = _matrix(
                operator,
                shape_of(value)[axis],
                t.result.shape[axis],
                scale,
                corners=bool(a.align_corners),
                dtype=torch.float32 if dtype_of(value) == "float32" else torch.float64,
            )
            if matrix.shape[0] == matrix.shape[1] and np.array_equal(matrix, np.eye(len(matrix))):
                continue
            windows = _windows(matrix, _step(matrix, scale, corners=bool(a.align_corners)), _REACH[mode])
            value = _resized_bytes(t, value, axis, windows) if is_whole else resized(t, value, axis, *windows)
        return t.finish(value)

    return convert


def _matrix(
    operator: str, size: int, wanted: int, scale: float | None, *, corners: bool, dtype: torch.dtype
) -> NDArray[Any]:
    """The weight of each input element in each output element, (outputs, inputs): what becomes of unit vectors.

    They are columns of one image, since PyTorch resizes an image of a single column wrongly.
    """
    function: Callable[..., torch.Tensor] = getattr(torch.ops.aten, operator).default
    units = torch.eye(size, dtype=dtype).reshape(1, 1, size, size)
    matrix: NDArray[Any] = function(units, [wanted, size], corners, scale, None).reshape(wanted, size).numpy()
    return matrix


def _step(matrix: NDArray[Any], scale: float | None, *, corners: bool) -> float:
    """The distance of the middles of neighbouring windows, in input elements."""
    wanted, size = matrix.shape
    if corners:
        return (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    return 1 / scale if scale else size / wanted


def _windows(matrix: NDArray[Any], step: float, reach: int) -> _Windows:
    wanted, size = matrix.shape
    half = reach * max(step, 1.0)
    middles = (np.arange(wanted) + 0.5) * step
    first = np.floor(middles - half + 0.5).astype(np.int64)
    taps = int((np.floor(middles + half + 0.5) - first).max())
    elements = first[:, None] + np.arange(taps)
    inside = (elements >= 0) & (elements < size)
    weights = np.take_along_axis(matrix, np.clip(elements, 0, size - 1), axis=1)
    return _Windows(middles - 0.5, first, np.where(inside, weights, 0))


def _resized_bytes(t: Translation, value: Expression, axis: int, windows: _Windows) -> Expression:
    """Bytes, as int32, with weights that are whole numbers, as PyTorch resizes them; rounded after each axis."""
    largest = float(windows.weights.max(initial=0))
    bits = next((b for b in range(_MOST_BITS) if math.floor(0.5 + largest * 2 ** (b + 1)) >= _WEIGHTS_END), _MOST_BITS)
    scaled = windows.weights * 2**bits
    whole = np.trunc(scaled + np.copysign(0.5, scaled))
    total = resized(t, value, axis, windows.middles, windows.first, whole)
    return (Real(t, total) + (1 << (bits - 1))).right_shift(bits).maximum(0).minimum(255).value


CONVERTERS: dict[str, Converter] = {
    f"_upsample_{mode}2d_aa.{kind}": _resize(mode) for mode in _REACH for kind in ("vec", "default")
}
"""Operator of aten -> its converter."""
