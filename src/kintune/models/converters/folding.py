"""Images assembled from blocks, whose values are added where blocks overlap, as in PyTorch's `fold`."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx

from kintune.models.converters.node import Node
from kintune.models.converters.registration import OnnxOperator
from kintune.models.converters.windows import Windows, windows_of
from kintune.models.expressions import dtype_of, shape_of

__all__ = ["OPERATORS"]


def _fold(node: Node) -> relax.Expr:
    """The image [batch, channels, *image] that is the sum of the blocks [batch, channels * block elements, blocks]."""
    data = node.required(0)
    image, block = (_sizes(node, index, name) for index, name in ((1, "image_shape"), (2, "block_shape")))
    windows = windows_of(node, image, block)
    batch, columns, blocks = shape_of(data)
    places = math.prod(block)
    if blocks != math.prod(windows.outputs) or columns % places:
        raise ValueError(
            f"{blocks} blocks of {columns} values are not {math.prod(windows.outputs)} blocks of {places} places each"
        )
    channels = columns // places
    split = node.emit(relax.op.reshape(data, [batch, channels, *block, *windows.outputs]))
    if _are_tiles(windows, image):
        rank = len(block)
        order = [0, 1, *(axis for d in range(rank) for axis in (2 + rank + d, 2 + d))]
        return relax.op.reshape(node.emit(relax.op.permute_dims(split, order)), [batch, channels, *image])

    def summed(values: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, size), f"tap{d}") for d, size in enumerate(block)]

        def at(n: Any, channel: Any, *place: Any) -> Any:
            inside: Any = tirx.const(True, "bool")
            chosen = []
            for d, (stride, count) in enumerate(zip(windows.strides, windows.outputs, strict=True)):
                start = place[d] + windows.before[d] - taps[d] * windows.dilations[d]
                number = tirx.floordiv(start, stride)
                inside = tirx.all(inside, tirx.floormod(start, stride) == 0, number >= 0, number < count)
                chosen.append(tirx.max(tirx.min(number, count - 1), 0))
            source = (n, channel, *taps, *chosen)
            return te.sum(tirx.if_then_else(inside, values[source], tirx.const(0, dtype_of(data))), axis=taps)

        return te.compute((batch, channels, *image), at, name="folded")

    return node.builder.emit_te(summed, split, primfunc_name_hint="fold")


def _sizes(node: Node, index: int, name: str) -> tuple[int, ...]:
    given = node.given_integers(name, index)
    if given is None:
        raise ValueError(f"it has no {name}")
    return given


def _are_tiles(windows: Windows, image: tuple[int, ...]) -> bool:
    """Whether the blocks cover the image without overlap."""
    covered = [count * size for count, size in zip(windows.outputs, windows.kernel, strict=True)]
    is_dense = set(windows.dilations) <= {1} and not any(windows.before)
    return is_dense and windows.strides == windows.kernel and tuple(covered) == image


OPERATORS = (OnnxOperator("Col2Im", _fold, constants={1: "image_shape", 2: "block_shape"}),)
