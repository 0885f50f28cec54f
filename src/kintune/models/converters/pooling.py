"""Pools: the maximum, the mean or a norm of the elements in each window, or of a whole channel."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from kintune.models.converters.node import Node
from kintune.models.converters.registration import OnnxOperator
from kintune.models.converters.windows import Windows, windows_of
from kintune.models.emitter import Emitter
from kintune.models.expressions import dtype_of, is_float, shape_of
from kintune.models.formulas import Real, choose, power

__all__ = ["OPERATORS", "average_pool", "counted", "largest", "mean_over", "places_of_largest", "times"]

_LARGEST = (relax.op.nn.max_pool1d, relax.op.nn.max_pool2d, relax.op.nn.max_pool3d)
_MEANS = (relax.op.nn.avg_pool1d, relax.op.nn.avg_pool2d, relax.op.nn.avg_pool3d)


def _windows(node: Node, data: relax.Expr) -> Windows:
    sizes = shape_of(data)[2:]
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"it has {len(sizes)} spatial dimensions; 1, 2 and 3 can be computed")
    ceil = bool(node.attributes.get("ceil_mode", 0))
    return windows_of(node, sizes, node.integers("kernel_shape", ()), ceil=ceil, pools=True)


def _max_pool(node: Node) -> relax.Expr:
    data = node.required(0)
    windows, sizes = _windows(node, data), shape_of(data)[2:]
    if node.outputs == 1:
        return _global_max_pool(node) if windows.is_whole(sizes) else largest(node, data, windows)
    found = largest(node, data, windows)
    by_column = bool(node.attributes.get("storage_order", 0))
    places = places_of_largest(node, data, found, windows.kernel, windows.element, by_column=by_column)
    planes = np.arange(math.prod(shape_of(data)[:2])) * math.prod(sizes)
    planes = node.const(planes.reshape(*shape_of(data)[:2], *[1] * len(sizes)), "int64")
    return relax.Tuple([found, node.emit(relax.op.add(places, planes))])


def largest(t: Emitter, data: Any, windows: Windows) -> Any:
    """The largest element of each window."""
    pool = _LARGEST[len(windows.kernel) - 1]
    return t.emit(pool(data, windows.kernel, windows.strides, windows.padding, windows.dilations))


def places_of_largest(
    t: Emitter,
    data: Any,
    found: Any,
    taps: Sequence[int],
    element: Callable[[int, Any, Any], Any],
    *,
    by_column: bool = False,
) -> Any:
    """Where the largest elements of windows, which are `found`, are: their numbers among those of an image and channel.

    A window has so many `taps` along each axis.  The tap of an output is `element(axis, output, tap)`, which may be out
    of range.  The first of equal elements counts, and the last NaN.  Elements are numbered by rows, or by columns.
    """
    sizes = shape_of(data)[2:]
    count = math.prod(sizes)

    def keys(values: te.Tensor, tops: te.Tensor) -> te.Tensor:
        within = [te.reduce_axis((0, each), f"tap{axis}") for axis, each in enumerate(taps)]

        def key(image: Any, channel: Any, *outputs: Any) -> Any:
            inside, bounded, flat = tirx.const(True, "bool"), [], tirx.Cast("int64", 0)
            for axis, size in enumerate(sizes):
                at = element(axis, outputs[axis], within[axis])
                inside = tirx.all(inside, at >= 0, at < size)
                bounded.append(tirx.max(tirx.min(at, size - 1), 0))
                flat = flat * size + tirx.Cast("int64", bounded[-1])
            source, target, none = (image, channel, *bounded), (image, channel, *outputs), tirx.const(0, "int64")
            value = values[source]
            chosen = tirx.Select(value == tops[target], count - 1 - flat, none)
            if is_float(dtype_of(data)):
                chosen = tirx.Select(tirx.isnan(value), count + flat, chosen)
            return te.max(tirx.if_then_else(inside, chosen, none), axis=within)

        return te.compute(tops.shape, key, name="key")

    key = Real(t, t.emit(t.builder.call_te(keys, data, found, primfunc_name_hint="place_of_largest")))
    number = choose(key >= count, key - count, count - 1 - key)
    if not by_column:
        return number.value
    rest, scale, parts = count, 1, []
    for size in sizes:
        rest //= size
        parts.append(number.floor_divide(rest).mod(size) * scale)
        scale *= size
    return functools.reduce(operator.add, parts).value


def mean_over(t: Emitter, data: Any, windows: Windows) -> Any:
    """The sum of each window divided by the number of elements of the kernel, whether these are padding or not."""
    pool = _MEANS[len(windows.kernel) - 1]
    padding, dilations = windows.padding, windows.dilations
    return t.emit(pool(data, windows.kernel, windows.strides, padding, dilations, count_include_pad=True))


def average_pool(node: Node) -> relax.Expr:
    """Converts an AveragePool node."""
    data = node.required(0)
    windows, sizes = _windows(node, data), shape_of(data)[2:]
    counts = counted(windows, sizes, bool(node.attributes.get("count_include_pad", 0)))
    if windows.is_whole(sizes):
        means = node.emit(relax.op.mean(node.wide(data), _whole(data), keepdims=True))
        return node.cast(times(node, means, math.prod(sizes) / counts), dtype_of(data))
    means = mean_over(node, node.wide(data), windows)
    return node.cast(times(node, means, math.prod(windows.kernel) / counts), dtype_of(data))


def times(t: Emitter, means: Any, factors: NDArray[np.float64]) -> Any:
    """Means of windows, each multiplied by a factor."""
    if (factors == 1).all():
        return means
    return t.emit(relax.op.multiply(means, t.const(factors[None, None], dtype_of(means))))


def counted(windows: Windows, sizes: tuple[int, ...], padded: bool) -> NDArray[np.float64]:
    """The number of elements in each window, at least 1; with `padded`, declared padding counts as well."""
    counts = np.ones(1)
    for axis, size in enumerate(sizes):
        starts = np.arange(windows.outputs[axis]) * windows.strides[axis] - windows.before[axis]
        low, high = (-windows.before[axis], size + windows.declared_after[axis]) if padded else (0, size)
        # how many elements of each window lie before the two ends: a window may have as many elements as the tensor
        before_low, before_high = (
            np.clip(-((starts - end) // windows.dilations[axis]), 0, windows.kernel[axis]) for end in (low, high)
        )
        counts = np.multiply.outer(counts, before_high - before_low)
    return np.maximum(counts.reshape(windows.outputs), 1)


def _lp_pool(node: Node) -> relax.Expr:
    data = node.required(0)
    windows, exponent = _windows(node, data), float(node.attributes.get("p", 2))
    powers = power(abs(Real(node, node.wide(data))), exponent).value
    sums = Real(node, mean_over(node, powers, windows)) * math.prod(windows.kernel)
    return node.cast(power(sums, 1 / exponent).value, dtype_of(data))


def _whole(data: relax.Expr) -> list[int]:
    return list(range(2, len(shape_of(data))))


def _global_average_pool(node: Node) -> relax.Expr:
    data = node.required(0)
    mean = node.emit(relax.op.mean(node.wide(data), _whole(data), keepdims=True))
    return node.cast(mean, dtype_of(data))


def _global_max_pool(node: Node) -> relax.Expr:
    data = node.required(0)
    return node.emit(relax.op.max(data, _whole(data), keepdims=True))


def _global_lp_pool(node: Node) -> relax.Expr:
    data, exponent = node.required(0), float(node.attributes.get("p", 2))
    sums = power(abs(Real(node, node.wide(data))), exponent).sum(axis=_whole(data), keepdims=True)
    return node.cast(power(sums, 1 / exponent).value, dtype_of(data))


def _max_unpool(node: Node) -> relax.Expr:
    data, places = node.required(0), node.required(1)
    batch, channels, *sizes = shape_of(data)
    rank = len(sizes)
    kernel = node.integers("kernel_shape", ())
    strides, pads = node.integers("strides", (1,) * rank), node.integers("pads", (0,) * (2 * rank))
    given = node.constant(2)
    if given is not None:
        shape = [int(size) for size in given]
    else:
        shape = [batch, channels]
        for axis, size in enumerate(sizes):
            shape.append((size - 1) * strides[axis] - pads[axis] - pads[rank + axis] + kernel[axis])
    flat = [node.emit(relax.op.reshape(tensor, [-1])) for tensor in (places, data)]
    empty = node.emit(relax.op.zeros([math.prod(shape)], dtype_of(data)))
    filled = node.emit(relax.op.scatter_elements(empty, flat[0], flat[1], axis=0))
    return node.emit(relax.op.reshape(filled, shape))


OPERATORS = (
    OnnxOperator("AveragePool", average_pool),
    OnnxOperator("GlobalAveragePool", _global_average_pool),
    OnnxOperator("GlobalLpPool", _global_lp_pool),
    OnnxOperator("GlobalMaxPool", _global_max_pool),
    OnnxOperator("LpPool", _lp_pool),
    OnnxOperator("MaxPool", _max_pool),
    OnnxOperator("MaxUnpool", _max_unpool, constants={2: "output shape"}),
)
