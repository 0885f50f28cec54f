"""Pooling and resizing of images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tvm import relax

from kintune.models.expressions import along_axis, dtype_of, shape_of
from kintune.models.interpolation import resized
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def _max_pool(t: Translation, a: SimpleNamespace) -> Expression:
    if 1 in t.used:
        raise NotConvertible("the indices of a pooling as a result")
    rank = len(a.kernel_size)
    whole = shape_of(a.self)
    batched = len(whole) == rank + 2
    value = a.self if batched else t.reshape(a.self, [1, *whole])
    operator = getattr(relax.op.nn, f"max_pool{rank}d")
    pooled = t.emit(
        operator(
            value,
            list(a.kernel_size),
            strides=list(a.stride) or list(a.kernel_size),
            padding=list(a.padding) * (1 if len(a.padding) == rank else rank),
            dilation=list(a.dilation) * (1 if len(a.dilation) == rank else rank),
            ceil_mode=a.ceil_mode,
        )
    )
    stated = t.results[0]
    expected = stated.shape if stated is not None else ()
    if shape_of(pooled)[0 if batched else 1 :] != expected:
        raise NotConvertible(f"windows that end outside, of which PyTorch keeps {expected}")
    return (t.reshape(pooled, expected), None)


def _scales(a: SimpleNamespace, rank: int) -> list[float | None]:
    """How much larger each axis shall be, where that was said instead of a size."""
    factors = getattr(a, "scale_factors", None)
    if factors:
        return list(factors)
    names = {1: ["scales"], 2: ["scales_h", "scales_w"]}[rank]
    return [getattr(a, name, None) for name in names]


def _nearest(t: Translation, a: SimpleNamespace) -> Expression:
    value = getattr(a, "input", None) if hasattr(a, "input") else a.self
    rank = len(t.result.shape) - 2
    for i, scale in enumerate(_scales(a, rank)):
        size, wanted = shape_of(value)[i + 2], t.result.shape[i + 2]
        if size != wanted:
            places = torch.arange(size, dtype=torch.float32).reshape(1, 1, size)
            origin = torch.ops.aten.upsample_nearest1d.default(places, [wanted], scale)
            at = np.arange(wanted) * (1 / scale if scale else size / wanted)
            value = _resized(t, value, i + 2, at, origin.flatten().to(torch.int64).numpy(), None)
    return value


def _bilinear(t: Translation, a: SimpleNamespace) -> Expression:
    """Between two neighbours along one axis after another."""
    value: Any = getattr(a, "input", None) if hasattr(a, "input") else a.self
    value = t.wide(value)
    for i, scale in enumerate(_scales(a, 2)):
        axis = i + 2
        size, wanted = shape_of(value)[axis], t.result.shape[axis]
        if a.align_corners:
            at = np.arange(wanted) * ((size - 1) / (wanted - 1) if wanted > 1 else 0)
        else:
            at = (np.arange(wanted) + 0.5) * (1 / scale if scale else size / wanted) - 0.5
        first = np.floor(at + 1e-9).astype(np.int64)
        share = np.clip(at - first, 0, 1)
        value = _resized(t, value, axis, at, first, np.stack([1 - share, share], axis=1))
    return t.finish(value)


def _resized(
    t: Translation, value: Expression, axis: int, at: NDArray[Any], first: NDArray[Any], weights: NDArray[Any] | None
) -> Expression:
    try:
        return t.emit(resized(t.builder, value, axis, at, first, weights))
    except ValueError:  # no line of integers: the elements are gathered
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


CONVERTERS: dict[str, Converter] = {
    **{f"max_pool{n}d_with_indices.default": _max_pool for n in (2, 3)},
    **{f"upsample_nearest2d.{kind}": _nearest for kind in ("vec", "default")},
    **{f"upsample_bilinear2d.{kind}": _bilinear for kind in ("vec", "default")},
}
"""Operator of aten -> its converter."""
