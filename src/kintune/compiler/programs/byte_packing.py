"""Weights of a sum of products of bytes in panels, and its data with borders and whole steps of channels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.instructions import WORD_BYTES
from kintune.compiler.programs.loops import buffer, index, loop, sequence
from kintune.compiler.programs.task_blocks import block_over, unravelled
from kintune.compiler.space.packing import PACKS

__all__ = ["brought_in", "line_copier", "packed_weights"]


def packed_weights(w: Contraction, panel: int) -> tuple[Any, Any]:
    """The buffer of the weights in panels of so many columns, and the statement that packs them.

    Those of the batches follow one another.  Weights that are not computed are packed once.
    """
    packed = buffer("packed", (math.prod(w.batches) * w.panels(panel), w.steps, panel, WORD_BYTES), "int8", "global")
    return packed, _packing(w, packed, panel)


def brought_in(w: Contraction) -> tuple[Any, Any | None]:
    """The buffer that the kernel reads as data, and the statement that copies the data there; None if it need not."""
    if not w.is_copied:
        return w.data, None
    n, height, width = w.image
    data = buffer("bordered", (n * height * width * w.depth,), "uint8", "global")
    return data, _copying(w, data)


def _packing(w: Contraction, packed: Any, panel: int) -> Any:
    """Four weights of each filter of a panel lie side by side; filters and channels beyond the last repeat the last.

    The data is zero in such channels, and the sums of such filters are not stored.
    """
    quads, columns = w.depth // WORD_BYTES, w.taps[1]
    panels = index(w.panels(panel))

    def body(o: Any, q: Any, f: Any, e: Any) -> Any:
        channel = tirx.floormod(q, index(quads)) * index(WORD_BYTES) + e
        tap = tirx.floordiv(q, index(quads))
        if w.depth != w.channels:
            channel = tirx.min(channel, index(w.channels - 1))
        batch = unravelled(tirx.floordiv(o, panels), w.batches)
        column = (tirx.floormod(o, panels) if w.batches else o) * index(panel) + f
        if w.filters % panel:
            column = tirx.min(column, index(w.filters - 1))
        at = [*batch, channel, column]
        if w.convolves:
            at = [tirx.floordiv(tap, index(columns)), tirx.floormod(tap, index(columns)), *at]
        return tirx.BufferStore(packed, w.weights[tuple(at)], [o, q, f, e])

    loops = [(name, int(extent)) for name, extent in zip("oqfe", packed.shape, strict=True)]
    annotations = {PACKS: True} if w.position is not None else None
    parallel = w.position is None
    return block_over("packed_bytes", loops, body, [w.weights], [packed], parallel=parallel, annotations=annotations)


def _copying(w: Contraction, target: Any) -> Any:
    """The data with its borders, and with zeros in channels beyond the last."""
    images, height, width = w.image
    copied = line_copier(w, target)
    length = index(width * w.depth)
    rows = [("row", images * height)]
    return block_over("bordered_bytes", rows, lambda row: copied(row, row * length), w.brought, [target])


def line_copier(w: Contraction, target: Any) -> Callable[[Any, Any], Any]:
    """A function of `row` and `start` that gives the statement which copies a line of the data with its borders.

    `row` is the number of the line among those of all images, borders included; `start` is where it goes in the
    target, which has one axis.  Channels beyond the last are zero.
    """
    _, height, width = w.image
    top, bottom, left, right = w.rows.before, w.rows.after, w.columns.before, w.columns.after
    rows = height - top - bottom
    line, length = (width - left - right) * w.channels, width * w.depth
    point = w.border

    def put(name: str, start: Any, extent: int, value: Callable[[Any], Any]) -> list[Any]:
        return [loop(name, extent, lambda at: tirx.BufferStore(target, value(at), [start + at]))] if extent else []

    def element(row: Any, at: Any) -> Any:
        """A byte of a line of the data, all of whose channels lie one after another."""
        if not w.convolves:
            lead = unravelled(row, [int(extent) for extent in w.data.shape[:-1]])
            place = (*lead, at)
            return w.data[place]
        image, y = tirx.floordiv(row, index(height)), tirx.floormod(row, index(height)) - index(top)
        column, channel = tirx.floordiv(at, index(w.channels)), tirx.floormod(at, index(w.channels))
        return w.data[image, y, column, channel]

    def spread(row: Any, start: Any) -> list[Any]:
        """A line whose channels are fewer than those that are stored."""
        zero, pixels = tirx.const(0, "uint8"), width - left - right

        def pixel(x: Any) -> Any:
            whole = start + (x + index(left)) * index(w.depth)
            return sequence(
                [
                    *put("c", whole, w.channels, lambda c: element(row, x * index(w.channels) + c)),
                    *put("z", whole + index(w.channels), w.depth - w.channels, lambda c: zero),
                ]
            )

        def border(first: int) -> Callable[[Any], Any]:
            def fill(x: Any) -> Any:
                whole = start + (x + index(first)) * index(w.depth)
                return sequence(
                    [
                        *put("c", whole, w.channels, lambda c: point),
                        *put("z", whole + index(w.channels), w.depth - w.channels, lambda c: zero),
                    ]
                )

            return fill

        return [
            *([loop("x", left, border(0))] if left else []),
            loop("x", pixels, pixel),
            *([loop("x", right, border(left + pixels))] if right else []),
        ]

    def outside(start: Any) -> Any:
        if w.depth == w.channels:
            return sequence(put("c", start, length, lambda at: point))
        return loop(
            "x",
            width,
            lambda x: loop(
                "c",
                w.depth,
                lambda c: tirx.BufferStore(
                    target,
                    tirx.Select(c < index(w.channels), point, tirx.const(0, "uint8")),
                    [start + x * index(w.depth) + c],
                ),
            ),
        )

    def copied(row: Any, start: Any) -> Any:
        if w.depth == w.channels:
            here = [
                *put("l", start, left * w.depth, lambda at: point),
                *put("c", start + index(left * w.depth), line, lambda at: element(row, at)),
                *put("r", start + index((width - right) * w.depth), right * w.depth, lambda at: point),
            ]
        else:
            here = spread(row, start)
        inside = sequence(here)
        if not top and not bottom:
            return inside
        y = tirx.floormod(row, index(height))
        return tirx.IfThenElse(tirx.all(y >= index(top), y < index(top + rows)), inside, outside(start))

    return copied
