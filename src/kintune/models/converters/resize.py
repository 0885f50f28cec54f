"""Resize and Upsample, axis by axis: each output element is a weighted sum of a few input elements.

Their indices and weights follow from the file alone, and are computed here, in float32 as in onnxruntime.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from kintune.models.converters.node import Node, empty
from kintune.models.converters.registration import OnnxOperator
from kintune.models.expressions import along_axis, dtype_of, shape_of
from kintune.models.formulas import Real, choose
from kintune.models.interpolation import resized

__all__ = ["OPERATORS"]

_F = np.float32


class _Axis(NamedTuple):
    """One resized axis: sizes before and after, the scale of its coordinates, and the region of interest."""

    axis: int
    size: int
    output: int
    scale: float
    start: float
    end: float


def _upsample(node: Node) -> relax.Expr:
    scales = node.attributes.get("scales") if 1 not in node.constants else node.constant(1)
    data = node.required(0)
    if scales is None:
        raise ValueError("the scales are missing")
    mode = str(node.attributes.get("mode", "nearest"))
    return _resized(node, data, _by_scales(shape_of(data), None, scales, None), mode, "asymmetric", "simple")


def _by_scales(shape: tuple[int, ...], axes: list[int] | None, scales: Any, roi: Any) -> list[_Axis]:
    axes = list(range(len(shape))) if axes is None else axes
    found = []
    for place, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        start, end = (float(roi[place]), float(roi[place + len(axes)])) if roi is not None else (0.0, 1.0)
        found.append(_Axis(axis, shape[axis], math.floor(_F(scale) * _F(shape[axis])), float(scale), start, end))
    return found


def _resize(node: Node) -> relax.Expr:
    data = node.required(0)
    shape = shape_of(data)
    given = node.attributes
    mode = str(given.get("mode", "nearest"))
    roi, scales, sizes = (node.constant(index) for index in (1, 2, 3))
    roi = None if roi is None or not roi.size else roi
    axes = [axis % len(shape) for axis in node.integers("axes", tuple(range(len(shape))))]
    if scales is not None and scales.size:
        resized = _by_scales(shape, axes, scales, roi)
    elif sizes is not None and sizes.size:
        ratios = [_F(size) / _F(shape[axis]) for axis, size in zip(axes, sizes, strict=True)]
        policy = str(given.get("keep_aspect_ratio_policy", "stretch"))
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * len(ratios)
            sizes = np.array([math.floor(ratio * _F(shape[axis]) + _F(0.5)) for axis in axes])
        resized = [
            entry._replace(output=int(size))
            for entry, size in zip(_by_scales(shape, axes, ratios, roi), sizes, strict=True)
        ]
    else:
        raise ValueError("neither scales nor sizes are given")
    transformation = str(given.get("coordinate_transformation_mode", "half_pixel"))
    rounding = str(given.get("nearest_mode", "round_prefer_floor"))
    return _resized(node, data, resized, mode, transformation, rounding)


def _coordinates(axis: _Axis, mode: str) -> Any:
    """The coordinate of each output element on the input's axis."""
    x, scale = np.arange(axis.output, dtype=_F), _F(axis.scale)
    size, output = _F(axis.size), _F(axis.output)
    half = _F(0.5)
    if mode == "asymmetric":
        return x / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and axis.output > 1):
        return (x + half) / scale - half
    if mode == "pytorch_half_pixel" or (mode == "align_corners" and axis.output == 1):
        return np.zeros_like(x)
    if mode == "align_corners":
        return x * (size - 1) / (output - 1)
    if mode == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if mode == "half_pixel_symmetric":
        adjustment = output / (scale * size)
        return size / 2 * (1 - adjustment) + (x + half) / scale - half
    if mode == "tf_crop_and_resize":
        start, end = _F(axis.start), _F(axis.end)
        if axis.output == 1:
            return np.array([half * (start + end) * (size - 1)], _F)
        return start * (size - 1) + x * (end - start) * (size - 1) / (output - 1)
    raise ValueError(f"coordinate_transformation_mode {mode!r} is not known")


def _nearest(x: NDArray[Any], rounding: str, shrinks: bool) -> Any:
    if rounding == "simple":
        return np.ceil(x) if shrinks else np.trunc(x)
    if rounding == "round_prefer_floor":
        return np.ceil(x - _F(0.5))
    if rounding == "round_prefer_ceil":
        return np.floor(x + _F(0.5))
    return np.floor(x) if rounding == "floor" else np.ceil(x)


def _filter(x: NDArray[Any], mode: str, a: float) -> Any:
    x = np.abs(x)
    if mode == "linear":
        return np.maximum(1 - x, 0)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _taps(node: Node, axis: _Axis, x: NDArray[Any], mode: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The input element of each output's first tap, which may be out of range, and weights `[outputs, taps]`."""
    a = float(node.attributes.get("cubic_coeff_a", -0.75))
    outside = bool(node.attributes.get("exclude_outside", 0))
    stretch = 1.0
    if node.attributes.get("antialias", 0) and axis.scale < 1:
        stretch = 1 / axis.scale
    reach = (1 if mode == "linear" else 2) * stretch
    first = np.floor(x - reach).astype(np.int64) + (1 if stretch == 1 else 0)
    count = math.ceil(2 * reach) + (0 if stretch == 1 else 2)
    indices = first[:, None] + np.arange(count)
    weights = _filter(((indices - x[:, None]) / _F(stretch)).astype(_F), mode, a)
    if outside:
        weights = np.where((indices >= 0) & (indices < axis.size), weights, 0)
    if outside or stretch != 1:
        weights = weights / weights.sum(1, keepdims=True)
    return first, weights


def _resized(
    node: Node, data: relax.Expr, axes: list[_Axis], mode: str, transformation: str, rounding: str
) -> relax.Expr:
    dtype, shape = dtype_of(data), shape_of(data)
    outputs = {axis.axis: axis.output for axis in axes}
    if 0 in outputs.values():
        return empty([outputs.get(axis, extent) for axis, extent in enumerate(shape)], dtype)
    mode = "linear" if mode == "bilinear" else mode
    result = data
    inside: NDArray[Any] = np.ones((1,) * len(shape), bool)
    rounds = bool(node.attributes.get("antialias", 0)) and "int" in dtype
    for axis in sorted(axes, reverse=True) if rounds else axes:
        cropped = transformation == "tf_crop_and_resize"
        if axis.size == axis.output and axis.scale == 1:  # onnxruntime crops no such axis, either
            continue
        x = _coordinates(axis, transformation)
        if cropped:
            within = (x >= 0) & (x <= axis.size - 1)
            inside = inside & along_axis(within, axis.axis, len(shape))
        if mode == "nearest":
            chosen = _nearest(x, rounding, axis.scale < 1).astype(np.int64)
            result = resized(node, result, axis.axis, x, chosen, None)
        else:
            result = node.cast(result, "float64" if dtype_of(result) == "float64" else "float32")
            taps = _taps(node, axis, x, mode)
            result = resized(node, result, axis.axis, x, *taps)
            result = _whole(node, result, dtype) if rounds else result
    if not inside.all():
        found = choose(
            Real(node, node.const(inside, "bool")),
            Real(node, result),
            float(node.attributes.get("extrapolation_value", 0.0)),
        )
        result = found.value
    if dtype_of(result) != dtype and "int" in dtype:
        result = node.emit(relax.op.trunc(result))
    return node.cast(result, dtype)


def _whole(node: Node, values: relax.Expr, dtype: str) -> relax.Expr:
    """Values rounded, and clamped to the range of `dtype`: with `antialias`, onnxruntime rounds after each axis."""
    limits = np.iinfo(dtype)
    return (Real(node, values) + 0.5).floor().maximum(limits.min).minimum(limits.max).value


OPERATORS = (
    OnnxOperator("Resize", _upsample, constants={1: "scales"}),
    OnnxOperator("Resize", _resize, since=11, constants={1: "roi", 2: "scales", 3: "sizes"}),
    OnnxOperator("Upsample", _upsample),
    OnnxOperator("Upsample", _upsample, since=9, constants={1: "scales"}),
)
