"""Interpolation along one axis: each output element is a weighted sum of a few input elements, the taps.

Each tap has a vector of weights.  Indices are computed by integer arithmetic, never read from a tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from kintune.models.emitter import Emitter
from kintune.models.expressions import along_axis, dtype_of, shape_of

__all__ = ["INTERPOLATION", "RESIZE", "Interpolation", "interpolated", "line", "resized", "sampled"]

INTERPOLATION = "kintune.interpolation"
"""The attribute of a PrimFunc that interpolates: the fields of its `Interpolation`."""

RESIZE = "resize"
"""Prefix of the names of such PrimFuncs."""


class Interpolation(NamedTuple):
    """The indices of the elements that are summed.

    Along `axis`, output element o is the sum over k in `range(taps)` of the input element at
    `(slope * o + start) // divisor + k`, clamped to the tensor, times weight o of tap k.  Without weights there is one
    tap.
    """

    axis: int
    slope: int
    start: int
    divisor: int
    taps: int

    @classmethod
    def of(cls, function: tirx.PrimFunc) -> Interpolation | None:
        """What a PrimFunc computes by its attribute; None where it has none."""
        attributes = function.attrs
        if attributes is None or INTERPOLATION not in attributes:
            return None
        return cls(*map(int, attributes[INTERPOLATION]))


def resized(
    t: Emitter, data: Any, axis: int, places: NDArray[Any], first: NDArray[Any], weights: NDArray[Any] | None
) -> Any:
    """`data` resized along `axis`.

    `places` (outputs) has the coordinate of each output element on the input's axis, `first` (outputs) the input
    element of its first tap, and `weights` (outputs, taps) the weights of its taps.  Without weights, an output element
    is a copy of its first tap.  Elements are gathered where `first` is no linear function of the output element.  Taps
    whose weights are all zero are left out: an infinity there would be NaN.
    """
    size, dtype = shape_of(data)[axis], dtype_of(data)
    if weights is not None and (used := np.flatnonzero(weights.any(0))).size:
        first, weights = first + used[0], weights[:, used[0] : used[-1] + 1]
        if weights.shape[1] == 1 and (weights == 1).all():
            weights = None
    times, rest = divmod(len(first), size)
    if weights is None and not rest and np.array_equal(first, np.arange(len(first)) // times):
        return data if times == 1 else t.emit(relax.op.repeat(data, times, axis))
    columns = () if weights is None else weights.T
    try:
        found = Interpolation(axis, *line(places, first), len(columns) or 1)
    except ValueError:
        total = t.take(data, np.clip(first, 0, size - 1), axis)
        for tap, column in enumerate(columns):
            part = total if not tap else t.take(data, np.clip(first + tap, 0, size - 1), axis)
            part = t.emit(relax.op.multiply(part, t.const(along_axis(column, axis, len(shape_of(data))), dtype)))
            total = t.emit(relax.op.add(total, part)) if tap else part
        return total
    constants = [t.const(column, dtype) for column in columns]
    return t.emit(interpolated(t.builder, data, found, len(first), constants))


def interpolated(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    interpolation: Interpolation,
    outputs: int,
    weights: Sequence[relax.Expr],
) -> relax.Expr:
    """A call, not bound yet, of a new PrimFunc that interpolates `data`.

    `outputs` is the extent of the result along the axis.  `weights` has one vector (outputs) for each tap, or is empty.
    """
    axis, slope, start, divisor, taps = interpolation
    shape = list(shape_of(data))
    size, shape[axis] = shape[axis], outputs

    def summed(values: te.Tensor, *factors: te.Tensor) -> te.Tensor:
        def at(*position: Any) -> Any:
            total: Any = None
            for tap in range(taps):
                index = tirx.floordiv(position[axis] * slope + start, divisor) + tap
                index = tirx.max(tirx.min(index, size - 1), 0)
                place = (*position[:axis], index, *position[axis + 1 :])
                value = values[place]
                if factors:
                    value = value * factors[tap][position[axis]]
                total = value if total is None else total + value
            return total

        return te.compute(shape, at, name="resized")

    attributes = {INTERPOLATION: list(interpolation)}
    return builder.call_te(summed, data, *weights, primfunc_name_hint=RESIZE, primfunc_attrs=attributes)


def line(places: NDArray[Any], first: NDArray[Any]) -> tuple[int, int, int]:
    """Finds `slope`, `start` and `divisor` such that `first[o] == (slope * o + start) // divisor` for all o.

    `places` (outputs) are coordinates from which the slope is estimated.

    Raises:
        ValueError: when no such integers below 2^31 are found.
    """
    outputs = np.arange(len(places), dtype=np.int64)
    gradient = float(places[-1] - places[0]) / max(len(places) - 1, 1)
    for limit in (1, 2, 16, 256, 4096, 65536):
        ratio = Fraction(gradient).limit_denominator(limit)
        for factor in (1, 2, 64):
            slope, divisor = ratio.numerator * factor, ratio.denominator * factor
            low, high = (divisor * first - slope * outputs).max(), (divisor * (first + 1) - 1 - slope * outputs).min()
            if low <= high and max(abs(slope) * len(places) + abs(int(low)), divisor) < 1 << 31:
                return slope, int(low), divisor
    raise ValueError("its coordinates follow no line; resize by a simpler scale")


def sampled(t: Emitter, image: Any, points: Any, method: str, padding_mode: str, *, align_corners: bool) -> Any:
    """An image or volume, [batch, channels, *spatial], sampled at `points`, [batch, coordinates, *points].

    An axis of one pixel is twice as wide where coordinates are reflected at its corners: TVM divides by their distance.

    Raises:
        ValueError: the image has no pixels.
    """
    if 0 in shape_of(image):
        raise ValueError("an image without pixels is not supported")
    layout = {4: "NCHW", 5: "NCDHW"}[len(shape_of(image))]
    if padding_mode == "reflection" and align_corners:
        for axis, extent in enumerate(shape_of(image)[2:], 2):
            image = t.concat([image, image], axis) if extent == 1 else image
    return t.emit(
        relax.op.image.grid_sample(
            image, points, method=method, layout=layout, padding_mode=padding_mode, align_corners=align_corners
        )
    )
