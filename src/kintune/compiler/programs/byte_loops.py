"""The loops around the innermost ones of a sum of products of bytes (`byte_kernel`): the whole program.

Weights are packed once, in panels of the filters that are computed at once.  Data with borders, or whose channels are
no whole steps, is copied first.  A task of the parallel loop takes a block of rows and a part of the panels.  Rows
beyond the last are computed as the last one is, and not stored; so are filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.programs.byte_kernel import LANES, STEP, Kernel, kernel_text
from kintune.compiler.programs.byte_workload import ByteWorkload
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.loops import INDEX, as_root, buffer, index, loop, sequence
from kintune.compiler.space.packing import PACKS
from kintune.compiler.space.weights import LAYOUT_FREE, weight_positions

__all__ = ["Blocking", "write_bytes"]

_IMPORT = "pragma_import_llvm"


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
    function = module["main"]
    root = as_root(tirx.SeqStmt(statements), buffers)
    changed = function.with_body(root)
    read = [] if epilogue is None else epilogue.operands
    free = [
        position
        for position in sorted(weight_positions(function) - {w.position})
        if not any(function.params[position].same_as(operand) for operand in read)
    ]
    changed = changed.with_attr(LAYOUT_FREE, free) if free else changed.without_attr(LAYOUT_FREE)
    return tvm.IRModule({"main": changed}, attrs=module.attrs)


def _block(
    name: str,
    loops: Sequence[tuple[str, int]],
    body: Callable[..., Any],
    reads: Sequence[Any],
    writes: Sequence[Any],
    *,
    parallel: bool = True,
    buffers: Sequence[Any] = (),
    annotations: dict[str, Any] | None = None,
) -> Any:
    """A block in loops, given as (name, extent), which reads and writes all of some buffers; the first is parallel."""
    outer = [tirx.Var(f"{each}_{name}", INDEX) for each, _ in loops]
    inner = [tirx.Var(f"v{each}", INDEX) for each, _ in loops]
    variables = [
        tirx.IterVar(tvm.ir.Range(index(0), index(extent)), variable, tirx.IterVar.DataPar)
        for variable, (_, extent) in zip(inner, loops, strict=True)
    ]
    block = SBlock(
        variables,
        [_whole(each) for each in reads],
        [_whole(each) for each in writes],
        name,
        body(*inner),
        alloc_buffers=list(buffers),
        annotations=annotations,
    )
    statement: Any = SBlockRealize(outer, True, block)
    for depth in reversed(range(len(loops))):
        kind = tirx.ForKind.PARALLEL if parallel and not depth else tirx.ForKind.SERIAL
        statement = tirx.For(outer[depth], index(0), index(loops[depth][1]), kind, statement)
    return statement


def _whole(each: Any) -> Any:
    return tirx.BufferRegion(each, [tvm.ir.Range.from_min_extent(index(0), index(int(e))) for e in each.shape])


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
    return _block("packed_bytes", loops, body, [w.weights], [packed], parallel=False, annotations={PACKS: True})


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
            lead = _unravelled(row, [int(extent) for extent in w.data.shape[:-1]])
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

    return _block("bordered_bytes", [("row", images * height)], body, [w.data], [target])


def _unravelled(row: Any, extents: Sequence[int]) -> list[Any]:
    """The indices of a row, by the extents of its axes."""
    found, rest = [], row
    for place in reversed(range(len(extents))):
        extent = extents[place]
        outermost = all(each == 1 for each in extents[:place])
        found.append(index(0) if extent == 1 else rest if outermost else tirx.floormod(rest, index(extent)))
        rest = rest if extent == 1 else tirx.floordiv(rest, index(extent))
    return found[::-1]


def _offset(w: ByteWorkload, row: Any) -> Any:
    """The bytes from the start of the data to those of a row of the result."""
    _, height, width = w.image
    down, right = w.product.strides
    if not w.product.convolves or ((down, right) == (1, 1) and w.lead[1:] == (height, width)):
        return row * index(w.depth)
    image, y, x = _unravelled(row, w.lead)
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
            lead = _unravelled(row + r, w.lead)
            body = loop("v", b.vectors, lambda v: _vector(w, epilogue, sums, r, o, v, b, lead))
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
        return tirx.AttrStmt(index(0), _IMPORT, tvm.ir.StringImm(text), inner)

    target = w.result if epilogue is None else epilogue.target
    operands = [] if epilogue is None else epilogue.operands
    return _tasks(w.name, b, body, [data, packed, *operands], [target], [sums])


def _tasks(
    name: str, b: Blocking, body: Callable[..., Any], reads: list[Any], writes: list[Any], own: list[Any]
) -> Any:
    """A block for each block of rows and part of the panels, in one parallel loop."""
    block, part, task = (tirx.Var(each, INDEX) for each in ("vblock", "vpart", "task"))
    variables = [
        tirx.IterVar(tvm.ir.Range(index(0), index(extent)), variable, tirx.IterVar.DataPar)
        for variable, extent in ((block, b.blocks), (part, b.parts))
    ]
    made = SBlock(
        variables,
        [_whole(each) for each in reads],
        [_whole(each) for each in writes],
        name,
        body(block, part),
        alloc_buffers=own,
    )
    parts = index(b.parts)
    inside = SBlockRealize([tirx.floordiv(task, parts), tirx.floormod(task, parts)], True, made)
    return tirx.For(task, index(0), index(b.blocks * b.parts), tirx.ForKind.PARALLEL, inside)


def _vector(
    w: ByteWorkload, epilogue: Epilogue | None, sums: Any, r: Any, o: Any, v: Any, b: Blocking, lead: Sequence[Any]
) -> Any:
    """What follows 16 sums of a row: stored where there are so many filters."""
    panel = b.vectors * LANES
    first = o * index(panel) + v * index(LANES)
    wide = epilogue is None or epilogue.is_vectorised

    def lanes(count: int) -> Any:
        def store(lane: Any) -> Any:
            element, at = sums[r * index(panel) + v * index(LANES) + lane], [*lead, first + lane]
            return tirx.BufferStore(w.result, element, at) if epilogue is None else epilogue.store(element, at)

        kind = tirx.ForKind.VECTORIZED if wide and count == LANES else tirx.ForKind.SERIAL
        return loop("lane", count, store, kind)

    whole, rest = divmod(w.filters, LANES)
    if not rest and w.panels(b.vectors) * b.vectors == whole:
        return lanes(LANES)
    partly = tirx.IfThenElse(first < index(w.filters), lanes(rest), None) if rest else None
    return tirx.IfThenElse(first < index(whole * LANES), lanes(LANES), partly) if whole else partly
