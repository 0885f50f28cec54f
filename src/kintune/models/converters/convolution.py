"""Convolutions, transposed and deformable ones.

The output of a transposed convolution with stride s consists of s interleaved parts along each axis; each part is an
ordinary convolution of the input with every s-th weight.  So it becomes one ordinary convolution, with s times as many
channels for each axis, which are then interleaved.  This multiplies by no zeros, and gets its layout and its schedule
like any other convolution.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax, te, tirx

from kintune.models.converters.node import Node
from kintune.models.converters.registration import OnnxOperator
from kintune.models.converters.shaping import padded
from kintune.models.converters.windows import windows_of
from kintune.models.emitter import Emitter
from kintune.models.expressions import constant_of, dtype_of, shape_of

__all__ = ["CONVOLUTIONS", "OPERATORS", "applied", "convolution", "convolved", "transposed", "with_bias"]

_AXES = ("W", "HW", "DHW")
CONVOLUTIONS = (relax.op.nn.conv1d, relax.op.nn.conv2d, relax.op.nn.conv3d)
_TRANSPOSED = (relax.op.nn.conv1d_transpose, relax.op.nn.conv2d_transpose, relax.op.nn.conv3d_transpose)


def _spatial(data: relax.Expr, weight: relax.Expr) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The spatial sizes of data and weights.

    Raises:
        ValueError: when there are none, or more than three.
    """
    sizes, kernel = shape_of(data), shape_of(weight)
    if not 3 <= len(sizes) <= 5 or len(kernel) != len(sizes):
        raise ValueError(f"it has {len(sizes) - 2} spatial dimensions; 1, 2 and 3 can be computed")
    return sizes[2:], kernel[2:]


def with_bias(t: Emitter, result: Any, bias: Any) -> Any:
    """The result with a number for each channel added; `bias` may be None."""
    if bias is None:
        return result
    return t.emit(relax.op.add(result, t.cast(t.per_channel(bias, len(shape_of(result))), dtype_of(result))))


def applied(operators: Sequence[Any], kernel: str, data: Any, weight: Any, **settings: Any) -> Any:
    """The operator for as many spatial axes as the weights have; `kernel` is the layout of their first axes."""
    rank = len(shape_of(weight)) - 2
    return operators[rank - 1](
        data, weight, data_layout="NC" + _AXES[rank - 1], kernel_layout=kernel + _AXES[rank - 1], **settings
    )


def convolved(node: Node, data: relax.Expr, weight: relax.Expr) -> relax.Expr:
    """The convolution of these tensors, with the windows and groups of the node's attributes.

    Raises:
        ValueError: the tensors or the attributes are not of 1 to 3 spatial dimensions.
    """
    windows = windows_of(node, *_spatial(data, weight))
    settings = {"strides": windows.strides, "padding": windows.padding, "dilation": windows.dilations}
    return applied(CONVOLUTIONS, "OI", data, weight, groups=int(node.attributes.get("group", 1)), **settings)


def convolution(node: Node) -> relax.Expr:
    """Converts a Conv node."""
    result = node.emit(convolved(node, node.required(0), node.required(1)))
    return with_bias(node, result, node.operand(2))


def _transposed_convolution(node: Node) -> relax.Expr:
    sizes, kernel = _spatial(node.required(0), node.required(1))
    rank = len(sizes)
    strides, dilations = (node.integers(name, (1,) * rank) for name in ("strides", "dilations"))
    reach = [(taps - 1) * dilation + 1 for taps, dilation in zip(kernel, dilations, strict=True)]
    whole = [(size - 1) * stride + taps for size, stride, taps in zip(sizes, strides, reach, strict=True)]
    before, outputs = _extent(node, sizes, strides, whole)
    groups = int(node.attributes.get("group", 1))
    data, weight, bias = node.required(0), node.required(1), node.operand(2)
    return transposed(node, data, weight, bias, strides, dilations, groups, before, outputs)


def transposed(
    t: Emitter,
    data: Any,
    weight: Any,
    bias: Any,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    before: Sequence[int],
    outputs: Sequence[int],
    out_dtype: str | None = None,
) -> Any:
    """A transposed convolution: `outputs` elements of each axis after the first ones, `before`, of the whole result."""
    values = constant_of(weight)
    if values is not None:
        values = _dilated(values, dilations)
        return _interleaved(t, data, values, bias, groups, strides, before, outputs, out_dtype)
    reach = [(taps - 1) * dilation + 1 for taps, dilation in zip(shape_of(weight)[2:], dilations, strict=True)]
    trimmed = [min(front, taps - 1) for front, taps in zip(before, reach, strict=True)]
    settings = {"strides": strides, "padding": [*trimmed, *[0] * len(reach)], "dilation": dilations}
    result = t.emit(applied(_TRANSPOSED, "IO", data, weight, groups=groups, out_dtype=out_dtype, **settings))
    skipped = [front - done for front, done in zip(before, trimmed, strict=True)]
    return with_bias(t, _cut(t, result, skipped, outputs), bias)


def _extent(
    node: Node, sizes: tuple[int, ...], strides: tuple[int, ...], whole: list[int]
) -> tuple[list[int], list[int]]:
    """For each axis, how many elements of the result without padding are removed in front, and the output's extent.

    Where an output of a given shape reaches beyond the result without padding, it is 0 (before the bias).  SAME adds
    nothing where strides exceed the kernel, as in onnxruntime.
    """
    rank = len(sizes)
    pads = node.integers("pads", (0,) * (2 * rank))
    extra = node.integers("output_padding", (0,) * rank)
    automatic = str(node.attributes.get("auto_pad", "NOTSET"))
    wanted = node.integers("output_shape", ())[-rank:]
    before, outputs = [], []
    for axis, (size, stride, length) in enumerate(zip(sizes, strides, whole, strict=True)):
        if wanted or automatic.startswith("SAME"):
            output = wanted[axis] if wanted else min(size * stride, length + extra[axis])
            total = max(length + extra[axis] - output, 0)
            front = total // 2 if automatic == "SAME_UPPER" else total - total // 2
        elif automatic == "VALID":
            front, output = 0, length + extra[axis]
        else:
            front = pads[axis]
            output = length + extra[axis] - front - pads[rank + axis]
        before.append(front)
        outputs.append(output)
    return before, outputs


def _cut(t: Emitter, tensor: Any, skipped: Sequence[int], outputs: Sequence[int]) -> Any:
    """`outputs` elements of each spatial axis after the first `skipped` ones, padded with zeros at the end."""
    sizes = shape_of(tensor)[2:]
    ends = [skip + wanted - size for skip, wanted, size in zip(skipped, outputs, sizes, strict=True)]
    return padded(t, tensor, [(0, 0), (0, 0), *((-skip, end) for skip, end in zip(skipped, ends, strict=True))])


def _dilated(weight: NDArray[Any], dilations: Sequence[int]) -> NDArray[Any]:
    """The weights with zeros inserted between them, so that their dilation is 1."""
    if all(dilation == 1 for dilation in dilations):
        return weight
    sizes = [(taps - 1) * dilation + 1 for taps, dilation in zip(weight.shape[2:], dilations, strict=True)]
    spread = np.zeros((*weight.shape[:2], *sizes), weight.dtype)
    places = (slice(None), slice(None), *(slice(None, None, dilation) for dilation in dilations))
    spread[places] = weight
    return spread


def _interleaved(
    t: Emitter,
    data: Any,
    weight: NDArray[Any],
    bias: Any,
    groups: int,
    strides: Sequence[int],
    before: Sequence[int],
    outputs: Sequence[int],
    out_dtype: str | None,
) -> Any:
    """The transposed convolution as an ordinary one whose channels are interleaved."""
    sizes = shape_of(data)[2:]
    rank = len(sizes)
    phases = math.prod(strides)
    taps = [-(-length // stride) for length, stride in zip(weight.shape[2:], strides, strict=True)]
    ends = [
        max((front + length - 1) // stride - (size - 1), 0)
        for front, length, stride, size in zip(before, outputs, strides, sizes, strict=True)
    ]
    starts = [max(count - 1 - front // stride, 0) for count, front, stride in zip(taps, before, strides, strict=True)]
    kernel = t.const(_phase_weights(weight, groups, strides, taps), dtype_of(data))
    settings = {"padding": [*starts, *ends], "groups": groups, "out_dtype": out_dtype}
    result = t.emit(applied(CONVOLUTIONS, "OI", data, kernel, **settings))
    if bias is not None and phases > 1:
        bias = t.emit(relax.op.repeat(bias, phases, 0))
    result = with_bias(t, result, bias)
    batch, _, *lengths = shape_of(result)
    channels = weight.shape[1] * groups
    if phases > 1:
        result = t.reshape(result, [batch, channels, *strides, *lengths])
        result = t.permute(result, [0, 1, *itertools.chain(*((2 + rank + axis, 2 + axis) for axis in range(rank)))])
        whole = [length * stride for length, stride in zip(lengths, strides, strict=True)]
        result = t.reshape(result, [batch, channels, *whole])
    skipped = [
        front - (count - 1 - start) * stride
        for front, count, start, stride in zip(before, taps, starts, strides, strict=True)
    ]
    return _cut(t, result, skipped, outputs)


def _phase_weights(weight: NDArray[Any], groups: int, strides: Sequence[int], taps: list[int]) -> NDArray[Any]:
    """Converts weights `[C, O / groups, ...]` of a transposed convolution to `[O * phases, C / groups, ...]`."""
    rank = len(strides)
    inputs, outputs = weight.shape[:2]
    whole = [count * stride for count, stride in zip(taps, strides, strict=True)]
    widths = [(0, 0), (0, 0)] + [(0, size - old) for size, old in zip(whole, weight.shape[2:], strict=True)]
    padded = np.pad(weight, widths)
    split = padded.reshape(
        groups, inputs // groups, outputs, *itertools.chain.from_iterable(zip(taps, strides, strict=True))
    )
    flipped = np.flip(split, tuple(3 + 2 * axis for axis in range(rank)))
    order = [0, 2, *(4 + 2 * axis for axis in range(rank)), 1, *(3 + 2 * axis for axis in range(rank))]
    return np.ascontiguousarray(flipped.transpose(order).reshape(-1, inputs // groups, *taps))


def _deformable_convolution(node: Node) -> relax.Expr:
    """A deformable convolution: samples the input, then multiplies by the weights; half precision is in float32."""
    data, weight, offset = (node.wide(node.required(index)) for index in range(3))
    bias, mask = (None if given is None else node.wide(given) for given in (node.operand(3), node.operand(4)))
    sizes, kernel = _spatial(node.required(0), node.required(1))
    if len(sizes) != 2:
        raise ValueError(f"it has {len(sizes)} spatial dimensions; 2 can be computed")
    windows = windows_of(node, sizes, kernel)
    groups = int(node.attributes.get("group", 1))
    offset_groups = int(node.attributes.get("offset_group", 1))
    batch, channels = shape_of(data)[:2]
    taps, places = math.prod(kernel), math.prod(windows.outputs)
    per_offset = channels // offset_groups

    def sampled(values: te.Tensor, shifts: te.Tensor, *masks: te.Tensor) -> te.Tensor:
        def at(image: Any, channel: Any, tap: Any, row: Any, column: Any) -> Any:
            group = channel // per_offset
            place = []
            for axis, (index, step) in enumerate(((row, tap // kernel[1]), (column, tap % kernel[1]))):
                fixed = index * windows.strides[axis] - windows.before[axis] + step * windows.dilations[axis]
                shift = shifts[image, (group * taps + tap) * 2 + axis, row, column]
                place.append(tirx.Cast(str(values.dtype), fixed) + shift)
            value = _bilinear(values, (image, channel), place)
            return value * masks[0][image, group * taps + tap, row, column] if masks else value

        return te.compute((batch, channels, taps, *windows.outputs), at, name="deformed")

    operands = [data, offset] if mask is None else [data, offset, mask]
    columns = node.builder.emit_te(sampled, *operands, primfunc_name_hint="deform_conv")
    columns = node.emit(relax.op.reshape(columns, [batch, groups, channels // groups * taps, places]))
    outputs = shape_of(weight)[0]
    rows = node.emit(relax.op.reshape(weight, [1, groups, outputs // groups, channels // groups * taps]))
    product = node.emit(relax.op.matmul(rows, columns))
    result = node.emit(relax.op.reshape(product, [batch, outputs, *windows.outputs]))
    return node.cast(with_bias(node, result, bias), dtype_of(node.required(0)))


def _bilinear(values: te.Tensor, prefix: tuple[Any, ...], place: list[Any]) -> Any:
    """The bilinear interpolation of four elements at `place` [row, column]; elements outside of the tensor are 0."""
    kind = str(values.dtype)
    floors = [tirx.floor(coordinate) for coordinate in place]
    total: Any = tirx.const(0, kind)
    for corner in itertools.product((0, 1), repeat=2):
        factor: Any = tirx.const(1, kind)
        inside: Any = tirx.const(True, "bool")
        indices = []
        for step, low, coordinate, size in zip(corner, floors, place, values.shape[2:], strict=True):
            part = coordinate - low
            factor = factor * (part if step else 1 - part)
            edge = low + tirx.const(step, kind)
            inside = tirx.all(inside, edge >= tirx.const(0, kind), edge <= tirx.const(int(size) - 1, kind))
            bounded = tirx.max(tirx.min(edge, tirx.const(int(size) - 1, kind)), tirx.const(0, kind))
            indices.append(tirx.Cast("int32", bounded))
        at = (*prefix, *indices)
        total = total + tirx.Select(inside, values[at] * factor, tirx.const(0, kind))
    return total


OPERATORS = (
    OnnxOperator("Conv", convolution),
    OnnxOperator("ConvTranspose", _transposed_convolution),
    OnnxOperator("DeformConv", _deformable_convolution),
)
