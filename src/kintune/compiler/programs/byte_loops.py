"""The loops around the innermost ones of a sum of products of bytes (`byte_kernel`): the whole program.

Weights are packed once, in panels of the filters that are computed at once.  Data with borders, or whose channels are
no whole steps, is copied first.  A task of the parallel loop takes a block of rows and a part of the panels.  Rows
beyond the last are computed as the last one is, and not stored; so are filters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tvm
from tvm import tirx

from kintune.compiler.programs.byte_kernel import LANES, STEP, Kernel, kernel_text
from kintune.compiler.programs.byte_workload import ByteWorkload
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.loops import buffer, index, loop, sequence
from kintune.compiler.programs.task_blocks import IMPORT, block_over, stored_vector, tasks_over, unravelled, with_body
from kintune.compiler.space.packing import PACKS

__all__ = ["Blocking", "write_bytes"]


class Blocking(NamedTuple):
    """`rows` by `vectors` of filters in registers, `unroll` steps written out, `blocks` of rows by `parts` of panels.

    With `panels_first` a panel is used for all rows of a block before the next one is.
    """

    rows: int
    vectors: int
    unroll: int
    blocks: int
    parts: int
    panels_first: bool


def write_bytes(
    module: tvm.IRModule, workload: ByteWorkload, epilogue: Epilogue | None, blocking: Blocking
) -> tvm.IRModule:
    """The program; `epilogue` is what follows the sums, if anything does."""
    w, b = workload, blocking
    panel = b.vectors * LANES
    packed = buffer("packed", (w.panels(b.vectors), w.steps, panel, STEP), "int8", "global")
    statements, buffers = [_packing(w, packed, panel)], [packed]
    data = w.data
    if w.is_copied:
        n, height, width = w.image
        data = buffer("bordered", (n * height * width * w.depth,), "uint8", "global")
        statements.append(_copying(w, data))
        buffers.append(data)
    statements.append(_computing(w, b, epilogue, data, packed))
    return with_body(module, statements, buffers, {w.position}, epilogue)


def _packing(w: ByteWorkload, packed: Any, panel: int) -> Any:
    """Four weights of each filter of a panel lie side by side; what is beyond the last filter or channel is any."""
    quads, columns = w.depth // STEP, w.taps[1]

    def body(o: Any, q: Any, f: Any, e: Any) -> Any:
        channel = tirx.floormod(q, index(quads)) * index(STEP) + e
        tap = tirx.floordiv(q, index(quads))
        if w.depth != w.channels:
            channel = tirx.min(channel, index(w.channels - 1))
        column = o * index(panel) + f
        if w.filters % panel:
            column = tirx.min(column, index(w.filters - 1))
        at = [channel, column]
        if w.product.convolves:
            at = [tirx.floordiv(tap, index(columns)), tirx.floormod(tap, index(columns)), *at]
        return tirx.BufferStore(packed, w.weights[tuple(at)], [o, q, f, e])

    loops = [(name, int(extent)) for name, extent in zip("oqfe", packed.shape, strict=True)]
    return block_over("packed_bytes", loops, body, [w.weights], [packed], parallel=False, annotations={PACKS: True})


def _copying(w: ByteWorkload, target: Any) -> Any:
    """The data with its borders, and with zeros in channels beyond the last."""
    images, height, width = w.image
    top, left, bottom, right = w.product.pads
    rows = height - top - bottom
    line, length = (width - left - right) * w.channels, width * w.depth
    point = tirx.const(w.product.point, "uint8")

    def put(name: str, start: Any, extent: int, value: Callable[[Any], Any]) -> list[Any]:
        return [loop(name, extent, lambda at: tirx.BufferStore(target, value(at), [start + at]))] if extent else []

    def element(row: Any, at: Any) -> Any:
        """A byte of a line of the data, all of whose channels lie one after another."""
        if not w.product.convolves:
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

    def body(row: Any) -> Any:
        start = row * index(length)
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

    return block_over("bordered_bytes", [("row", images * height)], body, [w.data], [target])


def _offset(w: ByteWorkload, row: Any) -> Any:
    """The bytes from the start of the data to those of a row of the result."""
    _, height, width = w.image
    down, right = w.product.strides
    if not w.product.convolves or ((down, right) == (1, 1) and w.lead[1:] == (height, width)):
        return row * index(w.depth)
    image, y, x = unravelled(row, w.lead)
    line = image * index(height) + y * index(down)
    return (line * index(width) + x * index(right)) * index(w.depth)


def _kernel(w: ByteWorkload, b: Blocking) -> Kernel:
    rows, columns = w.taps
    tall, wide = w.product.dilations
    pitch = w.image[2] * w.depth * tall
    if columns == 1 or wide == 1:
        return Kernel(b.rows, b.vectors, b.unroll, rows, columns * w.depth // STEP, 1, 0, pitch)
    return Kernel(b.rows, b.vectors, b.unroll, rows * columns, w.depth // STEP, columns, wide * w.depth, pitch)


def _computing(w: ByteWorkload, b: Blocking, epilogue: Epilogue | None, data: Any, packed: Any) -> Any:
    panel, panels = b.vectors * LANES, w.panels(b.vectors)
    own = panels // b.parts
    groups = -(-w.rows // (b.blocks * b.rows))
    name, text = kernel_text(_kernel(w, b))
    sums = buffer("sums", (b.rows * panel,), "int32", "global")
    first_byte = tirx.address_of(data[tuple(index(0) for _ in data.shape)])
    exact = w.rows == b.blocks * groups * b.rows

    def tile(row: Any, o: Any) -> Any:
        """The sums of some rows from `row` on with one panel, and what follows."""
        last = index(w.rows - 1)
        rows = [row + index(r) if exact else tirx.min(row + index(r), last) for r in range(b.rows)]
        call = tirx.call_extern(
            "int32",
            name,
            first_byte,
            *(tirx.Cast("int32", _offset(w, each)) for each in rows),
            tirx.address_of(packed[o, index(0), index(0), index(0)]),
            tirx.address_of(sums[index(0)]),
            tirx.address_of(sums[index(b.rows * panel - 1)]),
        )

        def stored(r: Any) -> Any:
            lead = unravelled(row + r, w.lead)

            def element(v: Any, lane: Any) -> Any:
                return sums[r * index(panel) + v * index(LANES) + lane]

            vector = stored_vector(LANES, w.filters, panel, epilogue, w.result, element, lead)
            body = loop("v", b.vectors, lambda v: vector(o, v))
            return body if exact else tirx.IfThenElse(row + r < index(w.rows), body, None)

        return sequence([tirx.Evaluate(call), loop("r", b.rows, stored)])

    def body(block: Any, part: Any) -> Any:
        first = block * index(groups * b.rows)

        def at(q: Any, o: Any) -> Any:
            return tile(first + q * index(b.rows), part * index(own) + o)

        if b.panels_first:
            inner = loop("o", own, lambda o: loop("q", groups, lambda q: at(q, o)))
        else:
            inner = loop("q", groups, lambda q: loop("o", own, lambda o: at(q, o)))
        return tirx.AttrStmt(index(0), IMPORT, tvm.ir.StringImm(text), inner)

    target = w.result if epilogue is None else epilogue.target
    operands = [] if epilogue is None else epilogue.operands
    return tasks_over(w.name, b.blocks, b.parts, body, [data, packed, *operands], [target], [sums])
