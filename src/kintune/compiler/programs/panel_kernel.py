"""Writes a sum of products in bf16 in panels: what its rows, its weights and the parts of its sums are to the nest.

The sum of a row has *runs*: values that lie one after another in the data.  A convolution has a run for each row of its
kernel.  Each run is filled up with zeros to whole parts of 32 values; where rows are copied together anyway, and less
is filled up then, the runs of a row are joined to a single one.

Data that lies in memory in bf16 is copied and not rounded.  Rows of a matrix are then read where they are, without any
copy, if they are whole parts of 32 values.  What is to be stored in bf16 replaces the sums, and is rounded from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from kintune.compiler.kernels.calls import BF16_BITS, Address, address, call_copy, odd_lines
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.copies import CHUNK, copying_text
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.images import Writer, line_copier
from kintune.compiler.kernels.instructions import LINE_BYTES
from kintune.compiler.kernels.loops import INDEX, buffer, index, loop, sequence
from kintune.compiler.kernels.microkernel import WHOLE, Kernel
from kintune.compiler.kernels.nest import Nest, Panels, Share, Target, tasks
from kintune.compiler.kernels.packing import packing_block, weight_by_value
from kintune.compiler.kernels.rows import Lines, Rows, TaskLines, TaskRows, Units
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.programs.panel_form import SIZE, Form, Inner, Kept, Tiling, Way, form_of
from kintune.compiler.programs.prologue import read_by, row_writer

__all__ = ["kernels", "row_values", "write_sum"]

_STORED = "bfloat16"


def write_sum(
    found: Contraction, inner: Inner, tiling: Tiling, epilogue: Epilogue | None, kept: Kept, *, is_open: bool = False
) -> Stages:
    """The statements that compute the result, or the epilogue of it, and the buffer of the packed weights.

    If it `is_open` how many rows of a matrix there are, the statements are the same for each number.

    What is `kept` in bf16 is addressed so, although its buffers are still of the type of the workload.
    """
    form = form_of(found, inner)
    shape = inner.panel_shape(form)
    packed = buffer("panels", shape, _STORED, "global")
    runs, each, real = form.runs, form.chunks * CHUNK, form.values
    if form.pieces > 1:
        runs, each, real = form.pieces, form.values // form.pieces, form.values // form.pieces
    total = form.values if form.pieces > 1 else 0
    weight = weight_by_value(found, runs, each, real, dtype=_STORED, total=total)
    packing = packing_block("panels", packed, found.weights, weight, found.filters, form.panels)

    def addresses(o: Any, offset: Any) -> list[Any]:
        return [address(packed, o * index(math.prod(shape[1:])) + offset)]

    texts = (copying_text(converts=inner.instruction.converts),)
    number: Any = tirx.Var("number", INDEX) if is_open else form.rows
    rows = _rows(found, form, inner, tiling, kept, number)
    target = Target(found.result, found.filters, epilogue, kept.result)
    if form.way is Way.DIRECT:
        asked = [("kt_own", target.stored)] if kept.result else []
        asked += [("kt_fetch", operand) for operand in kept.operands]
        size = found.positions * found.filters
        target = target._replace(fetched=tuple(each for each in asked if math.prod(map(int, each[1].shape)) == size))
    of_weights = CHUNK * inner.columns * (form.chunks if form.way is Way.IMAGE else 1)
    of_data = form.image.line * form.image.dilations[0] if form.way is Way.IMAGE else CHUNK
    shares = tuple(
        Share.of(kernel, start * of_data, start * of_weights)
        for start, kernel in kernels(form, inner, tiling, rows.lines.pitch)
    )
    nest = Nest(
        found.name,
        rows,
        Panels(form.panels, [packed], addresses, texts=texts),
        target,
        shares,
        tiling.parts,
        held=True,
        asked=-(-shares[0].kernel.step_bytes // LINE_BYTES),
    )
    bound = [tirx.Bind(number, index(form.rows))] if is_open else []
    return Stages([packing, *bound, tasks(nest)], [packed])


def kernels(form: Form, inner: Inner, tiling: Tiling, pitch: int = 1) -> list[tuple[int, Kernel]]:
    """The inner kernels of the parts of a sum, and where they begin: at a run in the image, else at a step.

    Rows are `pitch` values apart.
    """
    total = form.runs if form.way is Way.IMAGE else form.steps
    size = -(-total // tiling.depth)
    found = []
    for start in range(0, total, size):
        number = min(size, total - start)
        steps, segments = number, WHOLE
        if form.way is Way.IMAGE:
            steps, segments = form.chunks, form.image.segments(SIZE)._replace(number=number)
        kernel = inner.kernel(min(2, tiling.units), steps, SIZE * pitch, segments, adds=start > 0)
        found.append((start, kernel._replace(joined=False)))
    return found


def row_values(form: Form) -> int:
    """The values from one row that a task copies to the next."""
    return odd_lines(form.steps * CHUNK, LINE_BYTES // SIZE)


def _rows(found: Contraction, form: Form, inner: Inner, tiling: Tiling, kept: Kept, number: Any) -> Rows:
    image, units = form.image, tiling.units
    first = "kt_copy" if kept.data else "kt_round"

    def of(lines: Lines) -> Units:
        return Units(lines, found.extents, inner.rows, units)

    def of_data(offset: Any) -> Address:
        return address(found.data, offset, BF16_BITS if kept.data else "")

    def writer(target: Any) -> Writer:
        """Copies or rounds pixels; whole parts of 32 values are written."""
        height, each = index(image.height), found.columns.size * image.depth

        def copy(row: Any, start: Any, count: int) -> Any:
            y = tirx.floormod(row, height) - index(image.before[0])
            line = tirx.floordiv(row, height) * index(found.rows.size) + y
            source = of_data(line * index(each))
            return call_copy(first, source, address(target, start), count * image.depth, SIZE * CHUNK)

        return Writer(
            copy, lambda start, count: call_copy("kt_zero", address(target, start), SIZE * count * image.depth)
        )

    if form.way is Way.IMAGE:
        lines = Lines.of_images(image)
        return TaskLines(of(lines), found.data, writer, BF16_BITS, slack=2 * CHUNK)
    source = Lines.of(image)
    whole = form.values % CHUNK == 0 and form.rows >= inner.rows
    if form.way is Way.DIRECT and kept.data and image.is_plain and whole:
        return Rows(of(source), found.data, stored=BF16_BITS)
    lines = Lines(image, form.images, number, row_values(form))
    if form.way is Way.GATHERED:
        return _gathered(found, form, of(lines), writer)
    rows = buffer("rows", (units * inner.rows * lines.pitch + CHUNK,), BF16_BITS, "global")
    if found.prologue is not None:
        computed = buffer("computed", (found.channels,), "float32", "global")
        written = row_writer(found, computed)

        def rounded(_: Any, row: Any, start: Any, __: Any) -> Any:
            given = address(computed, index(0)), address(rows, start)
            return sequence([written(row, index(0)), call_copy("kt_round", *given, found.channels, SIZE * CHUNK)])

        made = TaskRows(of(lines), found.data, rows, rounded)
        made.reads, made.buffers = read_by(found), [rows, computed]
        return made

    def direct(_: Any, row: Any, start: Any, __: Any) -> Any:
        line, place = index(0), row
        if source.number > 1:
            line, place = tirx.floordiv(row, index(source.length)), tirx.floormod(row, index(source.length))
        given = of_data(source.offset(line, place)), address(rows, start)
        return call_copy(first, *given, image.depth, SIZE * CHUNK)

    return TaskRows(of(lines), found.data, rows, direct)


def _gathered(found: Contraction, form: Form, of: Units, writer: Callable[[Any], Writer]) -> Rows:
    """Rows whose runs are copied together from lines of pixels, which are copied first.

    Pixels lie behind the rows in one buffer: the compiler would use a buffer of their own for sums of another type.
    """
    image = form.image
    (high, across), (down, right) = image.results, image.strides
    number = of.number * of.height
    behind = number * of.lines.pitch + CHUNK
    results = number // across if number % across == 0 else (number + across - 2) // across + 1
    count = (min(results, high) - 1) * down + (image.taps[0] - 1) * image.dilations[0] + 1
    rows = buffer("rows", (behind + count * image.line + 2 * CHUNK,), BF16_BITS, "global")
    copied, runs = line_copier(image, writer(rows)), max(form.runs, form.pieces)
    each, values = form.chunks * CHUNK, form.values
    if form.pieces > 1:
        each = values = form.values // form.pieces

    def before(batch: Any, start: Any) -> tuple[list[Any], Any]:
        top = tirx.floordiv(start, index(across)) * index(down)
        there, first = tirx.min(index(count), index(image.height) - top), batch * index(image.height) + top
        return [loop("line", there, lambda line: copied(first + line, line * index(image.line) + index(behind)))], top

    def gather(_: Any, row: Any, target: Any, top: Any) -> Any:
        y, x = tirx.floordiv(row, index(across)) * index(down) - top, tirx.floormod(row, index(across)) * index(right)
        start = y * index(image.line) + x * index(image.depth) + index(behind)

        def run(at: Any) -> Any:
            i, j = at, index(0)
            if runs != image.taps[0]:
                i, j = tirx.floordiv(at, index(image.taps[1])), tirx.floormod(at, index(image.taps[1]))
            offset = i * index(image.dilations[0] * image.line) + j * index(image.dilations[1] * image.depth)
            given = address(rows, start + offset), address(rows, target + at * index(each))
            return call_copy("kt_copy", *given, values, SIZE * CHUNK)

        copies = loop("run", runs, run)
        written = (runs - 1) * each + -(-values // CHUNK) * CHUNK  # up to here, the last copy has left zeros
        rest = form.steps * CHUNK - written
        if form.pieces == 1 or rest <= 0:
            return copies
        return sequence([copies, call_copy("kt_zero", address(rows, target + index(written)), SIZE * rest)])

    return TaskRows(of, found.data, rows, gather, before)
