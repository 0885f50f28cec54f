"""Writes a sum of products with inner kernels that are LLVM's text: panels of weights, blocks of rows, one parallel loop.

One task takes a block of rows and a part of the panels of columns.  It writes its rows in the form that the inner
kernel reads, multiplies them with one panel after the other, and computes what follows from the sums of a panel while
these are in the first cache.  A row is a place at which all filters are computed: a row of a matrix, or a pixel.

The sum of a row has *runs*: values that lie one after another in the data.  A convolution has a run for each row of its
kernel.  Each run is filled up with zeros to whole parts of 32 values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.narrow_text import CHUNK, TILE_ROWS
from kintune.compiler.programs.weighted_sum import WeightedSum
from kintune.compiler.space.packing import PACKS

__all__ = ["AMX", "DOT", "Form", "Inner", "Tiling", "form_of", "write_sum"]

AMX, DOT = "amx", "dot"

_IMPORT = "pragma_import_llvm"
_NARROW, _STORED = "bfloat16", "uint16"
_HALF = 2  # bytes
_SLACK = 2 * CHUNK  # values behind an image that a copy may reach


class Inner(NamedTuple):
    """An inner kernel: its `kind`, the rows that it computes at once (for tiles, of one tile), the columns of a panel,
    and the text with its functions.
    """

    kind: str
    rows: int
    columns: int
    text: str


class Tiling(NamedTuple):
    """A task has `units` times the rows of the inner kernel, and one of `parts` of the panels; the sum is computed in
    `depth` parts.
    """

    units: int
    parts: int
    depth: int


class Form(NamedTuple):
    """A sum as the inner kernel reads it: `runs` of `values` each, in `chunks` parts of 32; `panels` of columns.

    `rows` are those of an image, or of all of them where each row is read from one place of the data.
    """

    images: int
    rows: int
    panels: int
    runs: int
    values: int
    chunks: int

    @property
    def steps(self) -> int:
        """Parts of 32 values in the sum of a row."""
        return self.runs * self.chunks


def form_of(found: WeightedSum, inner: Inner) -> Form:
    """The form of a sum."""
    images, rows = found.images, found.positions // found.images
    if found.is_direct:
        images, rows = 1, found.positions
    whole = found.columns.dilation == 1
    values = found.channels * (found.columns.kernel if whole else 1)
    runs = found.rows.kernel * (1 if whole else found.columns.kernel)
    return Form(images, rows, -(-found.filters // inner.columns), runs, values, -(-values // CHUNK))


def write_sum(found: WeightedSum, inner: Inner, tiling: Tiling, epilogue: Epilogue | None) -> tuple[list[Any], Any]:
    """The statements that compute the result, or the epilogue of it, and the buffer of the packed weights."""
    writer = _Writer(found, inner, tiling, epilogue)
    return [writer.packing(), writer.tasks()], writer.weights


class _Writer:
    def __init__(self, found: WeightedSum, inner: Inner, tiling: Tiling, epilogue: Epilogue | None) -> None:
        self.found, self.inner, self.epilogue = found, inner, epilogue
        self.form = form = form_of(found, inner)
        self.units = tiling.units
        self.rows = tiling.units * inner.rows
        self.blocks = -(-form.rows // self.rows)
        self.own = -(-form.panels // tiling.parts)
        self.parts = -(-form.panels // self.own)
        self.depth = _shares(form.steps, tiling.depth)
        self.target = found.result if epilogue is None else epilogue.target
        self.weights = self._buffer("panels", _NARROW, form.panels, form.steps * CHUNK // 2, inner.columns, 2)
        chunk = 2 * TILE_ROWS * CHUNK if inner.kind == AMX else CHUNK
        self.chunk = chunk
        self.line = form.steps * CHUNK if form.steps % 2 else (form.steps + 1) * CHUNK  # of DOT: an odd number of parts
        size = -(-self.units // 2) * form.steps * chunk if inner.kind == AMX else self.rows * self.line
        self.packed = self._buffer("rows", _STORED, size)
        self.sums = self._buffer("sums", "float32", (self.units + self.units % 2) * inner.rows * inner.columns)
        self.buffers = [self.packed, self.sums]
        if not found.is_direct:
            self._lay_out_image()

    def _lay_out_image(self) -> None:
        """The part of an image that a task reads, with zeros around."""
        y, x = self.found.rows, self.found.columns
        high = self.rows // x.results if self.rows % x.results == 0 else (self.rows + x.results - 2) // x.results + 1
        self.high = (min(high, y.results) - 1) * y.stride + (y.kernel - 1) * y.dilation + 1
        self.wide = ((x.results - 1) * x.stride + (x.kernel - 1) * x.dilation + 1) * self.found.channels
        self.image = self._buffer("image", _STORED, self.high * self.wide + _SLACK)
        self.buffers.append(self.image)

    def at(self, value: int) -> Any:
        return tirx.IntImm(self.found.index_type, value)

    def _buffer(self, name: str, dtype: str, *shape: int) -> Any:
        return tirx.decl_buffer([self.at(extent) for extent in shape], dtype, name)

    def packing(self) -> Any:
        """The block that writes the weights in panels."""
        form, inner, found = self.form, self.inner, self.found
        names = {"o": form.panels, "k": form.steps * CHUNK // 2, "f": inner.columns, "h": 2}
        outer = [tirx.Var(f"{name}_pack", found.index_type) for name in names]
        o, k, f, h = (tirx.Var(f"v{name}", found.index_type) for name in names)
        run_size = form.chunks * CHUNK
        value = k * self.at(2) + h
        run, place = tirx.floordiv(value, self.at(run_size)), tirx.floormod(value, self.at(run_size))
        if form.runs == 1:
            run, place = self.at(0), value
        column = o * self.at(inner.columns) + f
        channels = self.at(found.channels)
        if found.columns.dilation == 1:
            i, j, c = run, tirx.floordiv(place, channels), tirx.floormod(place, channels)
        else:
            kernel = self.at(found.columns.kernel)
            i, j, c = tirx.floordiv(run, kernel), tirx.floormod(run, kernel), place
        if found.columns.kernel == 1:
            j, c = self.at(0), place
        if found.rows.kernel == 1:
            i = self.at(0)
        weight = tirx.Cast(_NARROW, found.weight(i, j, c, column))
        conditions = []
        if form.values < run_size:
            conditions.append(place < self.at(form.values))
        if found.filters < form.panels * inner.columns:
            conditions.append(column < self.at(found.filters))
        for condition in conditions:
            weight = tirx.if_then_else(condition, weight, tirx.const(0, _NARROW))
        variables = [o, k, f, h]
        block = SBlock(
            [
                tirx.IterVar(tvm.ir.Range(self.at(0), self.at(extent)), variable, tirx.IterVar.DataPar)
                for variable, extent in zip(variables, names.values(), strict=True)
            ],
            [_whole(found.weights)],
            [tirx.BufferRegion(self.weights, [tvm.ir.Range.from_min_extent(v, self.at(1)) for v in variables])],
            "panels",
            tirx.BufferStore(self.weights, weight, variables),
            annotations={PACKS: True},
        )
        statement: Any = SBlockRealize(outer, True, block)
        for variable, extent in reversed(list(zip(outer, names.values(), strict=True))):
            statement = tirx.For(variable, self.at(0), self.at(extent), tirx.ForKind.SERIAL, statement)
        return statement

    def tasks(self) -> Any:
        """The parallel loop."""
        blocks = self.form.images * self.blocks
        task = tirx.Var("task", self.found.index_type)
        block_of, part_of = tirx.Var("vblock", self.found.index_type), tirx.Var("vpart", self.found.index_type)
        operands = [] if self.epilogue is None else self.epilogue.operands
        body = tirx.AttrStmt(tirx.StringImm("kernel"), _IMPORT, tirx.StringImm(self.inner.text), self._task(block_of, part_of))
        block = SBlock(
            [
                tirx.IterVar(tvm.ir.Range(self.at(0), self.at(extent)), variable, tirx.IterVar.DataPar)
                for variable, extent in ((block_of, blocks), (part_of, self.parts))
            ],
            [_whole(self.found.data), _whole(self.weights), *map(_whole, operands)],
            [_whole(self.target)],
            self.found.name,
            body,
            alloc_buffers=self.buffers,
        )
        values = [tirx.floordiv(task, self.at(self.parts)), tirx.floormod(task, self.at(self.parts))]
        inside = SBlockRealize(values, True, block)
        return tirx.For(task, self.at(0), self.at(blocks * self.parts), tirx.ForKind.PARALLEL, inside)

    def _task(self, block: Any, part: Any) -> Any:
        image = tirx.floordiv(block, self.at(self.blocks)) if self.form.images > 1 else self.at(0)
        number = tirx.floormod(block, self.at(self.blocks)) if self.form.images > 1 else block
        first = number * self.at(self.rows)
        valid: Any = self.at(self.rows)
        if self.form.rows % self.rows:
            valid = tirx.min(valid, self.at(self.form.rows) - first)
        pack = self._pack_direct(first, valid) if self.found.is_direct else self._pack_image(image, first, valid)
        start = part * self.at(self.own)
        number_of_panels: Any = self.at(self.own)
        if self.form.panels % self.own:
            number_of_panels = tirx.min(number_of_panels, self.at(self.form.panels) - start)
        panels = self._loop("panel", number_of_panels, lambda o: self._panel(start + o, image, first, valid))
        if self.inner.kind != AMX:
            return tirx.SeqStmt([pack, panels])
        return tirx.SeqStmt([_call("kt_tiles_begin"), pack, panels, _call("kt_tiles_end")])

    def _loop(self, name: str, extent: Any, body: Callable[[Any], Any], kind: int = tirx.ForKind.SERIAL) -> Any:
        extent = self.at(extent) if isinstance(extent, int) else extent
        if isinstance(extent, tirx.IntImm) and int(extent) == 1:
            return body(self.at(0))
        variable = tirx.Var(name, self.found.index_type)
        return tirx.For(variable, self.at(0), extent, kind, body(variable))

    def _place(self, row: Any) -> Any:
        """Where a row of the task begins in its packed form."""
        if self.inner.kind != AMX:
            return row * self.at(self.line)
        height = self.at(TILE_ROWS)
        unit, line = tirx.floordiv(row, height), tirx.floormod(row, height)
        pair = tirx.floordiv(unit, self.at(2)) * self.at(self.form.steps * self.chunk)
        return pair + tirx.floormod(unit, self.at(2)) * self.at(TILE_ROWS * CHUNK) + line * self.at(CHUNK)

    def _pack_direct(self, first: Any, valid: Any) -> Any:
        """Round rows on the way into the form that the inner kernel reads."""
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
            source = _pointer(self.found.data, place * self.at(channels))
            return _call("kt_round", source, _pointer(self.packed, self._place(row)), channels, _HALF * self.chunk)

        return self._loop("row", valid, body)

    def _pack_image(self, image: Any, first: Any, valid: Any) -> Any:
        """Round the part of the image that is read, then copy the runs of each row."""
        y, x, channels, form = self.found.rows, self.found.columns, self.found.channels, self.form
        across = self.at(x.results)
        top = tirx.floordiv(first, across)
        copied = min(x.size * channels, self.wide - x.before * channels)
        left = x.before * channels
        right = self.wide - left - copied

        def line(number: Any) -> Any:
            real = top * self.at(y.stride) + number - self.at(y.before)
            place = number * self.at(self.wide)
            source = (image * self.at(y.size) + real) * self.at(x.size * channels)
            inside = [
                *([_call("kt_zero", _pointer(self.image, place), _HALF * left)] if left else []),
                _call(
                    "kt_round",
                    _pointer(self.found.data, source),
                    _pointer(self.image, place + self.at(left)),
                    copied,
                    _HALF * CHUNK,
                ),
                *(
                    [_call("kt_zero", _pointer(self.image, place + self.at(left + copied)), _HALF * right)]
                    if right
                    else []
                ),
            ]
            outside = _call("kt_zero", _pointer(self.image, place), _HALF * self.wide)
            condition = tirx.And(real >= self.at(0), real < self.at(y.size))
            return tirx.IfThenElse(condition, _sequence(inside), outside)

        def row(number: Any) -> Any:
            place = first + number
            down = tirx.floordiv(place, across) - top
            start = down * self.at(y.stride * self.wide) + tirx.floormod(place, across) * self.at(x.stride * channels)
            target = self._place(number)

            def run(index: Any) -> Any:
                if form.runs == y.kernel:
                    offset = index * self.at(y.dilation * self.wide)
                else:
                    kernel = self.at(x.kernel)
                    offset = tirx.floordiv(index, kernel) * self.at(y.dilation * self.wide)
                    offset += tirx.floormod(index, kernel) * self.at(x.dilation * channels)
                return _call(
                    "kt_copy",
                    _pointer(self.image, start + offset),
                    _pointer(self.packed, target + index * self.at(form.chunks * self.chunk)),
                    form.values,
                    _HALF * self.chunk,
                )

            return self._loop("run", form.runs, run)

        return tirx.SeqStmt([self._loop("line", self.high, line), self._loop("row", valid, row)])

    def _panel(self, panel: Any, image: Any, first: Any, valid: Any) -> Any:
        """The sums of all rows of the task and one panel, and what follows from them."""
        statements = []
        size = self.form.steps * CHUNK * self.inner.columns
        for start, steps in self.depth:
            weights = _pointer(self.weights, panel * self.at(size) + self.at(start * CHUNK * self.inner.columns))
            statements.append(self._products(weights, start, steps))
        statements.append(self._results(panel, image, first, valid))
        return tirx.SeqStmt(statements)

    def _products(self, weights: Any, start: int, steps: int) -> Any:
        inner, sums = self.inner, self.inner.rows * self.inner.columns
        add = int(start > 0)
        if inner.kind != AMX:

            def group(number: Any) -> Any:
                rows = _pointer(self.packed, number * self.at(inner.rows * self.line) + self.at(start * CHUNK))
                target = _pointer(self.sums, number * self.at(sums))
                name = f"kt_{inner.kind}_{inner.rows}"
                return _call(name, rows, weights, target, steps * CHUNK // 2, _HALF * self.line, add)

            return self._loop("group", self.units, group)

        def pair(number: Any, tiles: int) -> Any:
            rows = _pointer(self.packed, number * self.at(self.form.steps * self.chunk) + self.at(start * self.chunk))
            return _call(f"kt_amx_{tiles}", rows, weights, _pointer(self.sums, number * self.at(2 * sums)), steps, 0, add)

        pairs, single = divmod(self.units, 2)
        found = [self._loop("pair", pairs, lambda number: pair(number, 2))] if pairs else []
        return _sequence([*found, *([pair(self.at(pairs), 1)] if single else [])])

    def _results(self, panel: Any, image: Any, first: Any, valid: Any) -> Any:
        """Store what follows from the sums of a panel."""
        columns, filters = self.inner.columns, self.found.filters
        rest = filters % columns

        def stores(number: int) -> Any:
            return self._loop("row", valid, lambda row: self._row(panel, image, first + row, row, number))

        if not rest:
            return stores(columns)
        if filters < columns:
            return stores(rest)
        return tirx.IfThenElse(panel < self.at(filters // columns), stores(columns), stores(rest))

    def _row(self, panel: Any, image: Any, place: Any, row: Any, number: int) -> Any:
        """Store what follows from the first sums of a row."""
        where = self._indices(image, place)
        columns = self.inner.columns
        vectorised = self.epilogue is None or self.epilogue.is_vectorised
        statements = []
        for start, lanes in _vectors(number, 16):

            def store(lane: Any, start: int = start) -> Any:
                column = self.at(start) + lane
                element = self.sums[row * self.at(columns) + column]
                at = [*where, panel * self.at(columns) + column]
                if self.epilogue is None:
                    return tirx.BufferStore(self.target, element, at)
                return self.epilogue.store(element, at)

            statements.append(self._loop("lane", lanes, store, tirx.ForKind.VECTORIZED if vectorised else tirx.ForKind.SERIAL))
        return _sequence(statements)

    def _indices(self, image: Any, place: Any) -> list[Any]:
        """The indices of the result, but the last, of a row."""
        extents = self.found.extents
        if not self.found.is_direct:
            extents = extents[1:]
        indices: list[Any] = []
        rest = place
        for position in reversed(range(len(extents))):
            extent = extents[position]
            if extent == 1:
                indices.insert(0, self.at(0))
                continue
            outermost = all(each == 1 for each in extents[:position])
            indices.insert(0, rest if outermost else tirx.floormod(rest, self.at(extent)))
            rest = rest if outermost else tirx.floordiv(rest, self.at(extent))
        return indices if self.found.is_direct else [image, *indices]


def _whole(buffer: Any) -> Any:
    """The region of all of a buffer."""
    return tirx.BufferRegion(buffer, [tvm.ir.Range.from_min_extent(0, extent) for extent in buffer.shape])


def _shares(total: int, number: int) -> list[tuple[int, int]]:
    """The starts and sizes of parts of about equal size."""
    size = -(-total // number)
    return [(start, min(size, total - start)) for start in range(0, total, size)]


def _vectors(extent: int, lanes: int) -> list[tuple[int, int]]:
    """Vectors (start, lanes) that cover an extent: as many whole ones as fit, then halves, quarters and so on."""
    found, start = [], 0
    while start < extent:
        while start + lanes > extent:
            lanes //= 2
        found.append((start, lanes))
        start += lanes
    return found


def _pointer(buffer: Any, offset: Any) -> Any:
    return buffer.access_ptr("rw", offset=offset)


def _call(name: str, *arguments: Any) -> Any:
    """A call of a function of the inner kernel's text; numbers are 32 bits wide."""
    given = [tirx.const(each, "int32") if isinstance(each, int) else each for each in arguments]
    return tirx.Evaluate(tirx.call_extern("int32", name, *given))


def _sequence(statements: Sequence[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
