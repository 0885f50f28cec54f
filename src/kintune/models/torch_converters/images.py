"""Pooling and resizing of images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tvm import relax

from kintune.models.expressions import along_axis, dtype_of, is_float, is_integer, shape_of
from kintune.models.interpolation import resized, sampled
from kintune.models.torch_converters.translation import Converter, Expression, Translation, torch_type

__all__ = ["CONVERTERS", "resized_axis", "scales_of"]


class _Windows(NamedTuple):
    """Windows over the spatial axes.

    `before` is the padding in front; `after` is how many elements the windows reach beyond the last one, at least 0.
    """

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, a: SimpleNamespace, sizes: Sequence[int], outputs: Sequence[int]) -> _Windows:
        """The windows of a pooling with arguments `a` over axes of these sizes, with PyTorch's number of outputs."""
        rank = len(sizes)
        kernel, before = _each(a.kernel_size, rank), _each(a.padding, rank)
        strides = _each(a.stride, rank) if a.stride else kernel
        dilations = _each(getattr(a, "dilation", 1), rank)
        after = [
            max((count - 1) * stride + (taps - 1) * dilation + 1 - size - front, 0)
            for count, stride, taps, dilation, size, front in zip(
                outputs, strides, kernel, dilations, sizes, before, strict=True
            )
        ]
        return cls(kernel, strides, dilations, before, after, tuple(outputs))

    def elements(self) -> list[NDArray[np.int64]]:
        """The elements of the windows along each axis, (taps, outputs); in the padding they are out of range."""
        axes = zip(self.kernel, self.strides, self.dilations, self.before, self.outputs, strict=True)
        return [
            np.arange(count) * stride + np.arange(taps)[:, None] * dilation - front
            for taps, stride, dilation, front, count in axes
        ]


def _each(values: Any, rank: int) -> list[int]:
    """A number for each of `rank` axes; a single number is repeated."""
    given = [values] if isinstance(values, int) else list(values)
    return [int(value) for value in (given * rank if len(given) == 1 else given)]


def _with_batch(t: Translation, value: Expression, rank: int) -> Expression:
    """The images with a batch axis, which is added to a single image."""
    shape = shape_of(value)
    return value if len(shape) == rank + 2 else t.reshape(value, [1, *shape])


def _max_pool(t: Translation, a: SimpleNamespace) -> Expression:
    stated = t.results[0]
    assert stated is not None
    rank = len(a.kernel_size)
    windows = _Windows.of(a, shape_of(a.self)[-rank:], stated.shape[-rank:])
    if 1 in t.used:
        largest, places = _largest_and_places(t, _with_batch(t, a.self, rank), windows.elements())
        return (t.reshape(largest, stated.shape), t.reshape(places, stated.shape))
    pooled = t.emit(
        getattr(relax.op.nn, f"max_pool{rank}d")(
            _with_batch(t, a.self, rank),
            windows.kernel,
            strides=windows.strides,
            padding=[*windows.before, *windows.after],
            dilation=windows.dilations,
        )
    )
    return (t.reshape(pooled, stated.shape), None)


def _largest_and_places(
    t: Translation, value: Expression, windows: Sequence[NDArray[np.int64]]
) -> tuple[Expression, Expression]:
    """The largest element of each window, and where it is: its number among those of its image and channel.

    `windows` has the elements of the windows along each axis, (taps, outputs).

    Tap by tap: an element takes the place of the largest before it where it is larger, or not a number.
    """
    sizes = shape_of(value)[2:]
    shape = (*shape_of(value)[:2], *(each.shape[1] for each in windows))
    dtype = dtype_of(value)
    least = t.const(-math.inf if is_float(dtype) else torch.iinfo(torch_type(dtype)).min, dtype)
    largest = places = None
    for taps in itertools.product(*(range(len(each)) for each in windows)):
        part = value
        inside, number = np.array(True), np.array(0)
        for axis, size in enumerate(sizes):
            at = windows[axis][taps[axis]]
            nearest = np.clip(at, 0, size - 1)
            part = t.take(part, nearest, axis + 2)
            inside = inside[..., None] & (at == nearest)
            number = number[..., None] * size + nearest
        if not inside.all():
            part = t.emit(relax.op.where(t.const(inside, "bool"), part, least))
        place = t.expand(t.const(number, "int64"), shape)
        if largest is None:
            largest, places = part, place
            continue
        larger = t.emit(relax.op.greater(part, largest))
        if is_float(dtype):
            larger = t.emit(relax.op.logical_or(larger, t.emit(relax.op.isnan(t.wide(part)))))
        largest, places = (t.emit(relax.op.where(larger, *pair)) for pair in ((part, largest), (place, places)))
    return largest, places


def _adaptive_max_pool(t: Translation, a: SimpleNamespace) -> Expression:
    """The largest element of each of a given number of windows, which cover the image and differ in size."""
    stated = t.results[0]
    assert stated is not None
    rank = len(a.output_size)
    value = _with_batch(t, a.self, rank)
    windows = [_equal_parts(*sizes) for sizes in zip(shape_of(value)[2:], stated.shape[-rank:], strict=True)]
    if 1 in t.used:
        largest, places = _largest_and_places(t, value, windows)
        return (t.reshape(largest, stated.shape), t.reshape(places, stated.shape))
    largest = t.wide(value)
    for axis, elements in enumerate(windows, 2):
        taken = t.take(largest, elements, axis)
        largest = t.emit(relax.op.max(taken, axis=[axis]))
    return (t.cast(t.reshape(largest, stated.shape), stated.dtype), None)


def _equal_parts(size: int, count: int) -> NDArray[np.int64]:
    """The elements of as many windows along an axis, (taps, windows); shorter windows have their last element again."""
    number = np.arange(count)
    first, end = number * size // count, -(-(number + 1) * size // count)
    return np.minimum(first + np.arange((end - first).max())[:, None], end - 1)


def _average_pool(rank: int) -> Converter:
    """A converter to the mean of each window: Relax's mean over all taps, scaled to as many as PyTorch counts.

    Of integers, it is the quotient of the sum towards zero.
    """

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        sizes = shape_of(a.self)[-rank:]
        windows = _Windows.of(a, sizes, t.result.shape[-rank:])
        whole = is_integer(dtype_of(a.self))
        value = _with_batch(t, a.self, rank)
        pooled = t.emit(
            getattr(relax.op.nn, f"avg_pool{rank}d")(
                t.cast(value, "float64") if whole else t.wide(value),
                windows.kernel,
                strides=windows.strides,
                padding=[*windows.before, *windows.after],
                count_include_pad=True,
            )
        )
        if whole:
            total = t.emit(
                relax.op.round(t.emit(relax.op.multiply(pooled, t.const(math.prod(windows.kernel), "float64"))))
            )
            counts = t.const(_counts(windows, sizes, a)[None, None], "float64")
            return t.finish(t.reshape(t.cast(t.emit(relax.op.divide(total, counts)), "int64"), t.result.shape))
        factors = math.prod(windows.kernel) / _counts(windows, sizes, a)
        if (factors != 1).any():
            pooled = t.emit(relax.op.multiply(pooled, t.const(factors[None, None], dtype_of(pooled))))
        return t.finish(t.reshape(pooled, t.result.shape))

    return convert


def _counts(windows: _Windows, sizes: Sequence[int], a: SimpleNamespace) -> NDArray[np.float64]:
    """The divisor of each window: its number of elements, with or without padding, or `divisor_override`."""
    fixed = getattr(a, "divisor_override", None)
    if fixed is not None:
        return np.full(windows.outputs, fixed, np.float64)
    counts = np.ones(1)
    for size, taps, stride, front, count in zip(
        sizes, windows.kernel, windows.strides, windows.before, windows.outputs, strict=True
    ):
        starts = np.arange(count) * stride - front
        low, high = (-front, size + front) if a.count_include_pad else (0, size)
        each = np.minimum(starts + taps, high) - np.maximum(starts, low)
        counts = np.multiply.outer(counts, np.maximum(each, 1))
    return counts.reshape(windows.outputs)


def scales_of(a: SimpleNamespace, rank: int) -> list[float | None]:
    """The scale factor of each axis; None where a size is given instead."""
    factors = getattr(a, "scale_factors", None)
    if factors:
        return list(factors)
    names = {1: ["scales"], 2: ["scales_h", "scales_w"]}[rank]
    return [getattr(a, name, None) for name in names]


def _nearest(t: Translation, a: SimpleNamespace) -> Expression:
    value = getattr(a, "input", None) if hasattr(a, "input") else a.self
    rank = len(t.result.shape) - 2
    for i, scale in enumerate(scales_of(a, rank)):
        size, wanted = shape_of(value)[i + 2], t.result.shape[i + 2]
        if size != wanted:
            places = torch.arange(size, dtype=torch.float32).reshape(1, 1, size)
            origin = torch.ops.aten.upsample_nearest1d.default(places, [wanted], scale)
            at = np.arange(wanted) * (1 / scale if scale else size / wanted)
            value = resized_axis(t, value, i + 2, at, origin.flatten().to(torch.int64).numpy(), None)
    return value


def _bilinear(t: Translation, a: SimpleNamespace) -> Expression:
    """Interpolates linearly between two neighbours, along one axis after the other."""
    value: Any = getattr(a, "input", None) if hasattr(a, "input") else a.self
    value = t.wide(value)
    for i, scale in enumerate(scales_of(a, 2)):
        axis = i + 2
        size, wanted = shape_of(value)[axis], t.result.shape[axis]
        if a.align_corners:
            at = np.arange(wanted) * ((size - 1) / (wanted - 1) if wanted > 1 else 0)
        else:
            at = (np.arange(wanted) + 0.5) * (1 / scale if scale else size / wanted) - 0.5
        first = np.floor(at + 1e-9).astype(np.int64)
        share = np.clip(at - first, 0, 1)
        value = resized_axis(t, value, axis, at, first, np.stack([1 - share, share], axis=1))
    return t.finish(value)


def resized_axis(
    t: Translation, value: Expression, axis: int, at: NDArray[Any], first: NDArray[Any], weights: NDArray[Any] | None
) -> Expression:
    """`value` resized along an axis; see `kintune.models.interpolation.resized` for the arguments."""
    try:
        return t.emit(resized(t.builder, value, axis, at, first, weights))
    except ValueError:  # the first taps are no linear function of the output: elements are gathered by constant indices
        pass
    last = shape_of(value)[axis] - 1
    if weights is None:
        return t.take(value, first, axis)
    total = None
    for tap, column in enumerate(weights.T):
        gathered = t.take(value, np.clip(first + tap, 0, last), axis)
        weight = t.const(along_axis(column, axis, len(shape_of(value))), dtype_of(value))
        product = t.emit(relax.op.multiply(gathered, weight))
        total = product if total is None else t.emit(relax.op.add(total, product))
    return total


def _sampled_volume(t: Translation, a: SimpleNamespace) -> Expression:
    """A volume sampled at the points of a grid, whose last axis has their coordinates."""
    value, grid = t.wide(a.input), t.wide(a.grid)
    points = t.emit(relax.op.permute_dims(grid, [0, 4, 1, 2, 3]))
    method, padding = ("bilinear", "nearest")[a.interpolation_mode], ("zeros", "border", "reflection")[a.padding_mode]
    return t.finish(sampled(t.emit, value, points, method, padding, align_corners=bool(a.align_corners)))


def _adaptive_average_pool(rank: int) -> Converter:
    """A converter of means over as many windows as are wanted, which may overlap; images may come without a batch."""
    operator = getattr(relax.op.nn, f"adaptive_avg_pool{rank}d")

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        *outer, channels = shape_of(a.self)[:-rank]
        sizes = shape_of(a.self)[-rank:]
        value = t.reshape(t.wide(a.self), [math.prod(outer), channels, *sizes])
        return t.finish(t.reshape(t.emit(operator(value, list(a.output_size))), t.result.shape))

    return convert


CONVERTERS: dict[str, Converter] = {
    "adaptive_avg_pool1d.default": _adaptive_average_pool(1),
    **{f"_adaptive_avg_pool{n}d.default": _adaptive_average_pool(n) for n in (2, 3)},
    "grid_sampler_3d.default": _sampled_volume,
    **{f"avg_pool{n}d.default": _average_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices.default": _max_pool for n in (2, 3)},
    **{f"adaptive_max_pool{n}d.default": _adaptive_max_pool for n in (2, 3)},
    **{f"upsample_nearest{n}d.{kind}": _nearest for n in (1, 2) for kind in ("vec", "default")},
    **{f"upsample_bilinear2d.{kind}": _bilinear for kind in ("vec", "default")},
}
"""Operator of aten -> its converter."""
