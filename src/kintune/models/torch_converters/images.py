"""Pooling and resizing of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tvm import relax, tirx

from kintune.models.converters.pooling import counted, largest, mean_over, places_of_largest, times
from kintune.models.converters.windows import Windows
from kintune.models.expressions import dtype_of, is_integer, shape_of
from kintune.models.formulas import Real
from kintune.models.interpolation import resized, sampled
from kintune.models.torch_converters.translation import Converter, Expression, Translation

__all__ = ["CONVERTERS", "scales_of"]


def _windows(a: SimpleNamespace, sizes: Sequence[int], outputs: Sequence[int]) -> Windows:
    """The windows of a pooling with arguments `a` over axes of these sizes, with PyTorch's number of outputs."""
    rank = len(sizes)
    kernel, before = _each(a.kernel_size, rank), _each(a.padding, rank)
    strides, dilations = _each(a.stride, rank) if a.stride else kernel, _each(getattr(a, "dilation", 1), rank)
    after = tuple(
        max((count - 1) * stride + (taps - 1) * dilation + 1 - size - front, 0)
        for count, stride, taps, dilation, size, front in zip(
            outputs, strides, kernel, dilations, sizes, before, strict=True
        )
    )
    return Windows(kernel, strides, dilations, before, after, before, tuple(outputs))


def _each(values: Any, rank: int) -> tuple[int, ...]:
    """A number for each of `rank` axes; a single number is repeated."""
    given = [values] if isinstance(values, int) else list(values)
    return tuple(int(value) for value in (given * rank if len(given) == 1 else given))


def _with_batch(t: Translation, value: Expression, rank: int) -> Expression:
    """The images with a batch axis, which is added to a single image."""
    shape = shape_of(value)
    return value if len(shape) == rank + 2 else t.reshape(value, [1, *shape])


def _max_pool(t: Translation, a: SimpleNamespace) -> Expression:
    stated = t.results[0]
    assert stated is not None
    rank = len(a.kernel_size)
    value, windows = _with_batch(t, a.self, rank), _windows(a, shape_of(a.self)[-rank:], stated.shape[-rank:])
    found = largest(t, value, windows)
    if 1 not in t.used:
        return (t.reshape(found, stated.shape), None)
    places = places_of_largest(t, value, found, windows.kernel, windows.element)
    return tuple(t.reshape(each, stated.shape) for each in (found, places))


def _adaptive_max_pool(t: Translation, a: SimpleNamespace) -> Expression:
    """The largest element of each of a given number of windows, which cover the image and differ in size."""
    stated = t.results[0]
    assert stated is not None
    rank = len(a.output_size)
    value = _with_batch(t, a.self, rank)
    sizes, counts = shape_of(value)[2:], stated.shape[-rank:]
    windows = [_equal_parts(*each) for each in zip(sizes, counts, strict=True)]
    found = t.wide(value)
    for axis, elements in enumerate(windows, 2):
        found = t.emit(relax.op.max(t.take(found, elements, axis), axis=[axis]))
    found = t.cast(found, stated.dtype)
    if 1 not in t.used:
        return (t.reshape(found, stated.shape), None)

    def element(axis: int, output: Any, tap: Any) -> Any:
        size, count = sizes[axis], counts[axis]
        first, end = (tirx.floordiv((output + more) * size + more * (count - 1), count) for more in (0, 1))
        return tirx.min(first + tap, end - 1)

    places = places_of_largest(t, value, found, [len(each) for each in windows], element)
    return tuple(t.reshape(each, stated.shape) for each in (found, places))


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
        windows = _windows(a, sizes, t.result.shape[-rank:])
        fixed, taps = getattr(a, "divisor_override", None), math.prod(windows.kernel)
        whole = is_integer(dtype_of(a.self))
        counts = np.full(windows.outputs, float(fixed)) if fixed else counted(windows, sizes, a.count_include_pad)
        value = t.cast(a.self, "float64") if whole else t.wide(a.self)
        means = mean_over(t, _with_batch(t, value, rank), windows)
        if whole:
            total = Real(t, means) * taps
            means = t.cast((total.round() / Real(t, t.const(counts[None, None], "float64"))).value, "int64")
        else:
            means = times(t, means, taps / counts)
        return t.finish(t.reshape(means, t.result.shape))

    return convert


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
            value = resized(t, value, i + 2, at, origin.flatten().to(torch.int64).numpy(), None)
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
        value = resized(t, value, axis, at, first, np.stack([1 - share, share], axis=1))
    return t.finish(value)


def _sampled_volume(t: Translation, a: SimpleNamespace) -> Expression:
    """A volume sampled at the points of a grid, whose last axis has their coordinates."""
    value, grid = t.wide(a.input), t.wide(a.grid)
    points = t.emit(relax.op.permute_dims(grid, [0, 4, 1, 2, 3]))
    method, padding = ("bilinear", "nearest")[a.interpolation_mode], ("zeros", "border", "reflection")[a.padding_mode]
    return t.finish(sampled(t, value, points, method, padding, align_corners=bool(a.align_corners)))


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
