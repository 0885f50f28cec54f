"""Pools: the maximum, the mean or a norm of the elements in each window, or of a whole channel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from kintune.models.converters.node import Node
from kintune.models.converters.registration import OnnxOperator
from kintune.models.converters.windows import Windows, windows_of
from kintune.models.expressions import dtype_of, is_float, shape_of

__all__ = ["OPERATORS"]

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
    windows = _windows(node, data)
    if node.outputs == 1 and windows.is_whole(shape_of(data)[2:]):
        return _global_max_pool(node)
    pool = _LARGEST[len(windows.kernel) - 1]
    result = node.emit(pool(data, windows.kernel, windows.strides, windows.padding, windows.dilations))
    if node.outputs == 1:
        return result
    by_column = bool(node.attributes.get("storage_order", 0))
    return relax.Tuple([result, _places(node, data, result, windows, by_column)])


def _places(node: Node, data: relax.Expr, largest: relax.Expr, windows: Windows, by_column: bool) -> relax.Expr:
    """The flat index of the first element in each window that equals its maximum; of a NaN if there is one."""
    shape = shape_of(data)
    sizes, rank = shape[2:], len(windows.kernel)
    last = tirx.const(math.prod(sizes) - 1, "int64")  # of windows that hold nothing but padding

    def found(values: te.Tensor, tops: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, size), f"tap{axis}") for axis, size in enumerate(windows.kernel)]

        def at(image: Any, channel: Any, *places: Any) -> Any:
            inside: Any = tirx.const(True, "bool")
            bounded, flat = [], tirx.Cast("int64", 0)
            for axis in range(rank):
                index = places[axis] * windows.strides[axis] + taps[axis] * windows.dilations[axis]
                index = index - windows.before[axis]
                inside = tirx.all(inside, index >= 0, index < sizes[axis])
                bounded.append(tirx.max(tirx.min(index, sizes[axis] - 1), 0))
                flat = flat * sizes[axis] + tirx.Cast("int64", bounded[-1])
            source, place = (image, channel, *bounded), (image, channel, *places)
            same = values[source] == tops[place]
            if is_float(dtype_of(data)):
                same = tirx.any(same, tirx.isnan(values[source]))
            return te.min(tirx.Select(tirx.all(inside, same), flat, last), axis=taps)

        return te.compute(tops.shape, at, name="place")

    def flat(first: te.Tensor) -> te.Tensor:
        def at(image: Any, channel: Any, *places: Any) -> Any:
            place = (image, channel, *places)
            index: Any = first[place]
            if by_column:
                whole, index = index, tirx.Cast("int64", 0)
                rest = math.prod(sizes)
                scale = 1
                for size in sizes:
                    rest //= size
                    index = index + whole // rest % size * scale
                    scale *= size
            plane = tirx.Cast("int64", image) * shape[1] + tirx.Cast("int64", channel)
            return plane * math.prod(sizes) + index

        return te.compute(first.shape, at, name="flat_place")

    first = node.builder.emit_te(found, data, largest, primfunc_name_hint="max_pool_place")
    return node.builder.emit_te(flat, first, primfunc_name_hint="max_pool_flat_place")


def _sum_over(node: Node, data: relax.Expr, windows: Windows) -> relax.Expr:
    """The sum of each window divided by the number of elements of the kernel, whether these are padding or not."""
    pool = _MEANS[len(windows.kernel) - 1]
    padding, dilations = windows.padding, windows.dilations
    return node.emit(pool(data, windows.kernel, windows.strides, padding, dilations, count_include_pad=True))


def _average_pool(node: Node) -> relax.Expr:
    data = node.required(0)
    windows, sizes = _windows(node, data), shape_of(data)[2:]
    padded = bool(node.attributes.get("count_include_pad", 0))
    counts = _counts(windows, sizes, padded)
    if windows.is_whole(sizes):
        sums = node.emit(relax.op.mean(node.wide(data), _whole(data), keepdims=True))
        factor = math.prod(sizes) / counts
    else:
        sums = _sum_over(node, node.wide(data), windows)
        factor = math.prod(windows.kernel) / counts
    if (factor != 1).any():
        shaped = relax.const(factor.reshape(1, 1, *factor.shape).astype(dtype_of(sums)))
        sums = node.emit(relax.op.multiply(sums, shaped))
    return node.cast(sums, dtype_of(data))


def _counts(windows: Windows, sizes: tuple[int, ...], padded: bool) -> NDArray[np.float64]:
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


def _power(node: Node, tensor: relax.Expr, exponent: float) -> relax.Expr:
    if exponent == 1:
        return tensor
    if exponent == 2:
        return node.emit(relax.op.multiply(tensor, tensor))
    if exponent == 0.5:
        return node.emit(relax.op.sqrt(tensor))
    return node.emit(relax.op.power(tensor, relax.const(exponent, dtype_of(tensor))))


def _lp_pool(node: Node) -> relax.Expr:
    data = node.required(0)
    windows = _windows(node, data)
    exponent = float(node.attributes.get("p", 2))
    powers = _power(node, node.emit(relax.op.abs(node.wide(data))), exponent)
    means = _sum_over(node, powers, windows)
    sums = node.emit(relax.op.multiply(means, relax.const(math.prod(windows.kernel), dtype_of(means))))
    return node.cast(_power(node, sums, 1 / exponent), dtype_of(data))


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
    data = node.required(0)
    exponent = float(node.attributes.get("p", 2))
    powers = _power(node, node.emit(relax.op.abs(node.wide(data))), exponent)
    sums = node.emit(relax.op.sum(powers, _whole(data), keepdims=True))
    return node.cast(_power(node, sums, 1 / exponent), dtype_of(data))


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
    OnnxOperator("AveragePool", _average_pool),
    OnnxOperator("GlobalAveragePool", _global_average_pool),
    OnnxOperator("GlobalLpPool", _global_lp_pool),
    OnnxOperator("GlobalMaxPool", _global_max_pool),
    OnnxOperator("LpPool", _lp_pool),
    OnnxOperator("MaxPool", _max_pool),
    OnnxOperator("MaxUnpool", _max_unpool, constants={2: "output shape"}),
)
