"""Writes a sum of products with inner kernels in LLVM's text: panels of weights, blocks of rows, one loop of tasks.

One task takes a block of rows and a part of the panels of columns.  It copies or rounds its rows for the inner kernel,
multiplies them with one panel after the other, and computes what follows from the sums of a panel while these are in
the first cache.  A row is a place at which all filters are computed: a row of a matrix, or a pixel.

The sum of a row has *runs*: values that lie one after another in the data.  A convolution has a run for each row of its
kernel.  For bf16, each run is filled up with zeros to whole parts of 32 values; where rows are copied together anyway,
and less is filled up then, the runs of a row are joined to a single one.

Data that lies in memory in bf16 is copied and not rounded.  Rows of a matrix are then read where they are, without any
copy, if they are whole parts of 32 values.  What is to be stored in bf16 replaces the sums, and is rounded from there.

While a panel is multiplied in bf16, the next one is prefetched.  Weights mostly come from memory, and the hardware does
not prefetch them while it reads the same panel for one group of rows after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.kernels.calls import BF16_BITS, IMPORT, address, call_copy, call_kernel, odd_lines
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.copies import CHUNK, copying_text
from kintune.compiler.kernels.instructions import LINE_BYTES
from kintune.compiler.kernels.microkernel import Segments, Text, text_of, together
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.kernel_writer import pieces
from kintune.compiler.programs.panel_form import AMX, Inner, Kept, Tiling, Way, form_of
from kintune.compiler.programs.panel_packing import packing_block
from kintune.compiler.programs.stages import Stages

__all__ = ["write_sum"]

_SLACK = 2 * CHUNK  # values behind an image that a copy may reach
_LANES = 16


def write_sum(found: Contraction, inner: Inner, tiling: Tiling, epilogue: Epilogue | None, kept: Kept) -> Stages:
    """The statements that compute the result, or the epilogue of it, and the buffer of the packed weights.

    What is `kept` in bf16 is addressed so, although its buffers are still of the type of the workload.
    """
    weights = tirx.decl_buffer(
        [tirx.IntImm(found.index_type, extent) for extent in inner.panel_shape(form_of(found, inner))],
        inner.stored,
        "panels",
    )
    kernel = _Kernel(found, inner, tiling, epilogue, weights, kept)
    return Stages([packing_block(found, inner, weights), kernel.tasks()], [weights])


class _Rows(NamedTuple):
    """The rows of a task, from number `first` of an image on.

    Its first `before` rows belong to another task.  The `valid` rows after these are its own.
    """

    image: Any
    first: Any
    before: Any
    valid: Any


class _Kernel:
    """Writes the loop of tasks."""

    def __init__(
        self,
        found: Contraction,
        inner: Inner,
        tiling: Tiling,
        epilogue: Epilogue | None,
        weights: Any,
        kept: Kept,
    ) -> None:
        self.found, self.inner, self.epilogue, self.weights, self.kept = found, inner, epilogue, weights, kept
        self.form = form = form_of(found, inner)
        self.texts: list[Text] = [copying_text(converts=inner.is_narrow)]
        self.units = tiling.units
        self.rows = tiling.units * inner.rows
        self.blocks = -(-form.rows // self.rows)
        self.own = -(-form.panels // tiling.parts)
        self.parts = -(-form.panels // self.own)
        self.depth = _shares(form.steps if form.way is not Way.IMAGE else form.runs, tiling.depth)
        self.target = found.result if epilogue is None else epilogue.target
        self.wide = form.pitch * found.channels
        self.ahead = self._lines_ahead()
        """Cache lines of the next panel that the first groups of rows prefetch in each step of the inner kernel."""
        self.in_place = (
            kept.data
            and form.way is Way.DIRECT
            and found.rows.is_plain
            and found.columns.is_plain
            and form.values % inner.step == 0
            and self.rows <= form.rows
        )
        self.line = odd_lines(form.steps * inner.step + (0 if inner.is_narrow else CHUNK - 1), 64 // inner.size)
        if self.in_place:
            self.line = found.channels
        size = 0 if form.way is Way.IMAGE else self.rows * self.line + CHUNK
        self.image = size  # where the image begins: the compiler would reuse a buffer of its own for sums of fp32
        if form.way is not Way.DIRECT:
            size += self.high * self.wide + self.rows_behind * found.channels + _SLACK
        self.packed = self._buffer("rows", "uint16" if inner.is_narrow else "float32", size)
        self.sums = self._buffer("sums", "float32", self.rows * inner.columns)

    @property
    def high(self) -> int:
        """The lines of the image that a task reads."""
        y, across = self.found.rows, self.form.pitch if self.form.way is Way.IMAGE else self.found.columns.results
        lines = self.rows // across if self.rows % across == 0 else (self.rows + across - 2) // across + 1
        return (min(lines, y.results) - 1) * y.stride + (y.kernel - 1) * y.dilation + 1

    @property
    def rows_behind(self) -> int:
        """The places behind these lines that rows of no use reach."""
        return self.rows + self.form.pitch if self.form.way is Way.IMAGE else 0

    def at(self, value: int) -> Any:
        return tirx.IntImm(self.found.index_type, value)

    @property
    def group(self) -> int:
        """Units of rows that the inner kernel computes at once."""
        return 2 if self.inner.kind == AMX else 1

    def _lines_ahead(self) -> int:
        """The lines to prefetch in each step so that all groups together prefetch the next panel; 0 without a next."""
        if not self.inner.is_narrow or self.own == 1:
            return 0
        return -(-self.inner.loop_bytes // (LINE_BYTES * -(-self.units // self.group)))

    def _buffer(self, name: str, dtype: str, size: int) -> Any:
        return tirx.decl_buffer([self.at(size)], dtype, name)

    def tasks(self) -> Any:
        """The parallel loop."""
        blocks = self.form.images * self.blocks
        task = tirx.Var("task", self.found.index_type)
        block_of, part_of = (tirx.Var(name, self.found.index_type) for name in ("vblock", "vpart"))
        operands = [] if self.epilogue is None else self.epilogue.operands
        computed = self._task(block_of, part_of)
        body = tirx.AttrStmt("inner", IMPORT, together(self.texts), computed)
        block = SBlock(
            [
                tirx.IterVar(tvm.ir.Range(self.at(0), self.at(extent)), variable, tirx.IterVar.DataPar)
                for variable, extent in ((block_of, blocks), (part_of, self.parts))
            ],
            [_whole(self.found.data), _whole(self.weights), *map(_whole, operands)],
            [_whole(self.target)],
            self.found.name,
            body,
            alloc_buffers=[self.sums] if self.in_place else [self.packed, self.sums],
        )
        values = [tirx.floordiv(task, self.at(self.parts)), tirx.floormod(task, self.at(self.parts))]
        inside = SBlockRealize(values, True, block)
        return tirx.For(task, self.at(0), self.at(blocks * self.parts), tirx.ForKind.PARALLEL, inside)

    def _task(self, block: Any, part: Any) -> Any:
        image = tirx.floordiv(block, self.at(self.blocks)) if self.form.images > 1 else self.at(0)
        number = tirx.floormod(block, self.at(self.blocks)) if self.form.images > 1 else block
        first = number * self.at(self.rows)
        valid: Any = self.at(self.rows)
        before: Any = self.at(0)
        if self.form.rows % self.rows:
            valid = tirx.min(valid, self.at(self.form.rows) - first)
            if self.in_place:
                before, first = self.at(self.rows) - valid, first + valid - self.at(self.rows)
        pack = [] if self.in_place else [self._pack(image, first, valid)]
        rows = _Rows(image, first, before, valid)
        start = part * self.at(self.own)
        panels: Any = self.at(self.own)
        if self.form.panels % self.own:
            panels = tirx.min(panels, self.at(self.form.panels) - start)
        products = self._loop("panel", panels, lambda o: self._panel(start + o, rows))
        if self.inner.kind != AMX:
            return _sequence([*pack, products])
        frame = self.texts[-1].name
        return tirx.SeqStmt([call_copy(f"{frame}_begin"), *pack, products, call_copy(f"{frame}_end")])

    def _loop(self, name: str, extent: Any, body: Callable[[Any], Any], kind: int = tirx.ForKind.SERIAL) -> Any:
        extent = self.at(extent) if isinstance(extent, int) else extent
        if isinstance(extent, tirx.IntImm) and int(extent) == 1:
            return body(self.at(0))
        variable = tirx.Var(name, self.found.index_type)
        return tirx.For(variable, self.at(0), extent, kind, body(variable))

    def _pack(self, image: Any, first: Any, valid: Any) -> Any:
        if self.form.way is Way.DIRECT:
            return self._pack_direct(first, valid)
        return self._pack_image(image, first, valid)

    def _pack_direct(self, first: Any, valid: Any) -> Any:
        """Copy or round rows on the way into the form that the inner kernel reads."""
        y, x, channels = self.found.rows, self.found.columns, self.found.channels

        def body(row: Any) -> Any:
            place = first + row
            if not (y.is_plain and x.is_plain):
                across, down = self.at(x.results), self.at(y.results)
                image = tirx.floordiv(place, self.at(x.results * y.results))
                top = tirx.floormod(tirx.floordiv(place, across), down)
                place = (image * self.at(y.size) + top * self.at(y.stride)) * self.at(x.size) + (
                    tirx.floormod(place, across) * self.at(x.stride)
                )
            source, target = self._of_data(place * self.at(channels)), row * self.at(self.line)
            return call_copy(self._first, source, address(self.packed, target), channels, self.inner.size * CHUNK)

        return self._loop("row", valid, body)

    @property
    def _first(self) -> str:
        """The name of the function that copies or rounds data."""
        if self.kept.data:
            return "kt_copy"
        return "kt_round" if self.inner.is_narrow else "kt_move"

    def _of_data(self, offset: Any) -> Any:
        """The address of a value of the data."""
        return address(self.found.data, offset, BF16_BITS if self.kept.data else "")

    def _pack_image(self, image: Any, first: Any, valid: Any) -> Any:
        """Copy or round the part of the image that is read; then copy the runs of each row, if they are gathered."""
        is_gathered = self.form.way is Way.GATHERED
        across = self.at(self.found.columns.results if is_gathered else self.form.pitch)
        top = tirx.floordiv(first, across)
        lines = self._loop("line", self.high, lambda number: self._line(image, top, number))
        if not is_gathered:
            return lines

        def row(number: Any) -> Any:
            place = first + number
            down, right = tirx.floordiv(place, across) - top, tirx.floormod(place, across)
            return self._runs(down, right, number * self.at(self.line))

        return tirx.SeqStmt([lines, self._loop("row", valid, row)])

    def _of_image(self, offset: Any) -> Any:
        """The address of a value of the part of the image."""
        return address(self.packed, self.at(self.image) + offset)

    def _line(self, image: Any, top: Any, number: Any) -> Any:
        """One row of the image, or zeros."""
        y, x, channels, size = self.found.rows, self.found.columns, self.found.channels, self.inner.size
        left = min(x.before * channels, self.wide)  # all that is read may lie before the data
        copied = min(x.size * channels, self.wide - left)
        right = self.wide - left - copied
        real = top * self.at(y.stride) + number - self.at(y.before)
        place = number * self.at(self.wide)
        source = self._of_data((image * self.at(y.size) + real) * self.at(x.size * channels))
        target = self._of_image(place + self.at(left))
        inside = [call_copy(self._first, source, target, copied, size * CHUNK)] if copied else []
        if left:
            inside.insert(0, call_copy("kt_zero", self._of_image(place), size * left))
        if right:  # after the data, since whole parts of 32 values are written
            inside.append(call_copy("kt_zero", self._of_image(place + self.at(left + copied)), size * right))
        outside = call_copy("kt_zero", self._of_image(place), size * self.wide)
        condition = tirx.And(real >= self.at(0), real < self.at(y.size))
        return tirx.IfThenElse(condition, _sequence(inside), outside)

    def _runs(self, down: Any, right: Any, target: Any) -> Any:
        """The runs of the row at a place below and to the right of the part of the image that the task has."""
        y, x, channels, form, inner = self.found.rows, self.found.columns, self.found.channels, self.form, self.inner
        start = down * self.at(y.stride * self.wide) + right * self.at(x.stride * channels)
        each, values = form.chunks * inner.step, form.values
        number = max(form.runs, form.pieces)
        if form.pieces > 1:
            each = values = form.values // form.pieces

        def run(index: Any) -> Any:
            if number == y.kernel:
                offset = index * self.at(y.dilation * self.wide)
            else:
                kernel = self.at(x.kernel)
                offset = tirx.floordiv(index, kernel) * self.at(y.dilation * self.wide)
                offset += tirx.floormod(index, kernel) * self.at(x.dilation * channels)
            return call_copy(
                "kt_copy" if inner.is_narrow else "kt_move",
                self._of_image(start + offset),
                address(self.packed, target + index * self.at(each)),
                values,
                inner.size * CHUNK,
            )

        copies = self._loop("run", number, run)
        written = (number - 1) * each + -(-values // CHUNK) * CHUNK  # up to here, the last copy has left zeros
        behind = form.steps * inner.step - written
        if form.pieces == 1 or behind <= 0:
            return copies
        rest = address(self.packed, target + self.at(written))
        return tirx.SeqStmt([copies, call_copy("kt_zero", rest, inner.size * behind)])

    def _panel(self, panel: Any, rows: _Rows) -> Any:
        """The sums of all rows of the task and one panel, and what follows from them."""
        step = self.inner.step * self.inner.columns
        each = step * (self.form.chunks if self.form.way is Way.IMAGE else 1)
        statements = []
        for start, number in self.depth:
            place = panel * self.at(self.form.steps * step) + self.at(start * each)
            statements.append(self._products(place, panel, rows.first, start, number))
        statements.append(self._results(panel, rows))
        return tirx.SeqStmt(statements)

    def _products(self, place: Any, panel: Any, first: Any, start: int, number: int) -> Any:
        """Calls of the inner kernel for all rows of the task and one part of the sum.

        The part begins at `start` and has `number` runs where rows are read from the image, else `number` steps.  The
        first part overwrites the sums, the others add to them.  `place` is the offset of the part's weights; those of
        the next panel lie one panel further.
        """
        inner, form = self.inner, self.form
        if form.way is Way.IMAGE:
            pitch, jump = self.found.channels, self.found.rows.dilation * self.wide
            begin = tirx.floormod(first, self.at(form.pitch)) * self.at(pitch) + self.at(start * jump)
            steps, segments = form.chunks, Segments(number, far=inner.size * jump)
        else:
            pitch, begin = self.line, self.at(start * inner.step)
            steps, segments = number, Segments()

        def rows(unit: Any, at_once: int, lines: int) -> Any:
            offset = begin + unit * self.at(inner.rows * pitch)
            source = self._of_data(first * self.at(pitch) + offset) if self.in_place else address(self.packed, offset)
            target = address(self.sums, unit * self.at(inner.rows * inner.columns))
            kernel = inner.kernel(at_once, steps, inner.size * pitch, segments, adds=start > 0, lines=lines)
            text = text_of(kernel)
            self.texts.append(text)
            further = self._next(place, unit, number) if lines else None
            products = call_kernel(text.name, kernel, [source], [address(self.weights, place)], target, further)
            ahead = [] if start else self._ahead(panel, first + unit * self.at(inner.rows), at_once)
            return _sequence([*ahead, products])

        groups, single = divmod(self.units, self.group)
        at_once = self.group if inner.kind == AMX else inner.rows
        asking = -(-inner.loop_bytes // (LINE_BYTES * self.ahead)) if self.ahead else 0
        found = []
        for first_group, before, lines in ((0, min(asking, groups), self.ahead), (min(asking, groups), groups, 0)):
            if before > first_group:

                def group(index: Any, start: int = first_group, lines: int = lines) -> Any:
                    return rows((index + self.at(start)) * self.at(self.group), at_once, lines)

                found.append(self._loop("group", before - first_group, group))
        if single:
            found.append(rows(self.at(groups * self.group), 1, self.ahead if groups < asking else 0))
        return _sequence(found)

    def _next(self, place: Any, unit: Any, number: int) -> Any:
        """The address of the part of the next panel that the group of rows from a unit on prefetches.

        Behind the last panel it may lie outside of the weights, where a prefetch does nothing.
        """
        form, inner = self.form, self.inner
        steps = number * (form.chunks if form.way is Way.IMAGE else 1)
        panel, read = form.steps * inner.step * inner.columns, steps * inner.step * inner.columns
        each = read * self.ahead * LINE_BYTES // inner.loop_bytes
        return address(self.weights, place + self.at(panel) + tirx.floordiv(unit, self.at(self.group)) * self.at(each))

    def _ahead(self, panel: Any, place: Any, at_once: int) -> list[Any]:
        """Prefetch what is stored and read with the sums in bf16, while the inner kernel computes.

        A row is one cache line there, and the next row is far away, so that the hardware does not prefetch it.
        """
        inner, filters = self.inner, self.found.filters
        if self.form.way is not Way.DIRECT:
            return []
        rows = at_once * inner.rows if inner.kind == AMX else inner.rows
        offset = place * self.at(filters) + panel * self.at(inner.columns)
        asked = [("kt_own", self.target)] if self.kept.result else []
        asked += [("kt_fetch", operand) for operand in self.kept.operands]
        of_rows = [(name, each) for name, each in asked if _size(each) == self.found.positions * filters]
        return [call_copy(name, address(each, offset, BF16_BITS), rows, inner.size * filters) for name, each in of_rows]

    def _results(self, panel: Any, rows: _Rows) -> Any:
        """Store what follows from the sums of a panel."""
        columns, filters = self.inner.columns, self.found.filters
        rest = filters % columns

        def stores(number: int) -> Any:
            def row(index: Any) -> Any:
                place = index if isinstance(rows.before, tirx.IntImm) else rows.before + index
                return self._row(panel, rows.image, rows.first + place, place, number)

            return self._loop("row", rows.valid, row)

        if not rest:
            return stores(columns)
        if filters < columns:
            return stores(rest)
        return tirx.IfThenElse(panel < self.at(filters // columns), stores(columns), stores(rest))

    def _row(self, panel: Any, image: Any, place: Any, row: Any, number: int) -> Any:
        """Store what follows from the first `number` sums of a row, unless it lies between two lines of results."""
        where = self._indices(image, place)
        columns = self.inner.columns
        is_vectorised = self.epilogue is None or self.epilogue.is_vectorised
        kind = tirx.ForKind.VECTORIZED if is_vectorised else tirx.ForKind.SERIAL
        statements: list[Any] = []
        for start, lanes in pieces(number, _LANES) if self.epilogue is not None or not self.kept.result else ():

            def store(lane: Any, start: int = start) -> Any:
                column = self.at(start) + lane
                element = self.sums[row * self.at(columns) + column]
                at = [*where, panel * self.at(columns) + column]
                if self.epilogue is None:
                    return tirx.BufferStore(self.target, element, at)
                if self.kept.result:
                    value = self.epilogue.value_of(element, at)
                    return tirx.BufferStore(self.sums, value, [row * self.at(columns) + column])
                return self.epilogue.store(element, at)

            statements.append(self._loop("lane", lanes, store, kind))
        if self.kept.result:
            statements.append(self._put(row, [*where, panel * self.at(columns)], number))
        if self.form.way is Way.IMAGE and self.form.pitch > self.found.columns.results:
            return tirx.IfThenElse(where[-1] < self.at(self.found.columns.results), _sequence(statements), None)
        return _sequence(statements)

    def _put(self, row: Any, at: Sequence[Any], number: int) -> Any:
        """Round `number` values, which have replaced the sums of a row, and store them from the indices `at` on."""
        indices = list(at) if self.epilogue is None else self.epilogue.indices_of(at)
        offset = self.at(0)
        for index, extent in zip(indices, self.target.shape, strict=True):
            offset = offset * self.at(int(extent)) + index
        source = address(self.sums, row * self.at(self.inner.columns))
        return call_copy("kt_put", source, address(self.target, offset, BF16_BITS), number, self.inner.size * CHUNK)

    def _indices(self, image: Any, place: Any) -> list[Any]:
        """The indices of a row in the result, without the last one."""
        if self.form.way is Way.IMAGE:
            across = self.at(self.form.pitch)
            return [image, tirx.floordiv(place, across), tirx.floormod(place, across)]
        extents = self.found.extents if self.found.is_direct else self.found.extents[1:]
        indices: list[Any] = []
        for position in reversed(range(len(extents))):
            extent = extents[position]
            outermost = all(each == 1 for each in extents[:position])
            found = self.at(0) if extent == 1 else place if outermost else tirx.floormod(place, self.at(extent))
            indices.insert(0, found)
            place = place if extent == 1 else tirx.floordiv(place, self.at(extent))
        return indices if self.found.is_direct else [image, *indices]


def _whole(buffer: Any) -> Any:
    """The region of all of a buffer."""
    return tirx.BufferRegion(buffer, [tvm.ir.Range.from_min_extent(0, extent) for extent in buffer.shape])


def _size(buffer: Any) -> int:
    return math.prod(map(int, buffer.shape))


def _shares(total: int, number: int) -> list[tuple[int, int]]:
    """The starts and sizes of parts of about equal size."""
    size = -(-total // number)
    return [(start, min(size, total - start)) for start in range(0, total, size)]


def _sequence(statements: Sequence[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
