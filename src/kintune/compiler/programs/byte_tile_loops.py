"""The loops around the innermost ones of a sum of products of bytes by tiles : the whole program.

Weights are packed, and data is copied where it has borders, as for vectors (`byte_packing`).  A task of the parallel
loop takes a block of tiles of rows and a part of the panels.  The last tile of a line begins earlier where it would not
fit; rows that the tile before it has are computed and not stored.  Tiles and filters beyond the last repeat the last
one, and are not stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm
from tvm import tirx

from kintune.compiler.kernels.calls import IMPORT, address, call_kernel
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.instructions import BYTES, WORD_BYTES
from kintune.compiler.kernels.microkernel import Kernel, text_of
from kintune.compiler.programs.byte_packing import brought_in, line_copier, packed_weights
from kintune.compiler.programs.byte_tile_form import TileForm, copied_lines, tiles_of
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.loops import INDEX, buffer, index, loop, sequence
from kintune.compiler.programs.task_blocks import stored_vector, tasks_over, unravelled, with_body

__all__ = ["INSTRUCTION", "TileBlocking", "write_byte_tiles"]

INSTRUCTION = next(each for each in BYTES if each.tiles)
"""The instruction that multiplies tiles of bytes."""

_AHEAD = 2  # steps at which weights are prefetched from the shared cache; hardware does not prefetch rows of tiles


class TileBlocking(NamedTuple):
    """`tiles` of `height` rows by `vectors` of filters in registers, `blocks` of tiles by `parts` of panels.

    With `panels_first` a panel is used for all tiles of a block before the next one is.  With `copies` a task copies
    the lines of pixels that it reads, with their borders; else all are copied first.
    """

    height: int
    tiles: int
    vectors: int
    blocks: int
    parts: int
    panels_first: bool
    copies: bool = False


def write_byte_tiles(
    module: tvm.IRModule,
    workload: Contraction,
    form: TileForm,
    epilogue: Epilogue | None,
    blocking: TileBlocking,
) -> tvm.IRModule:
    """The program; `epilogue` is what follows the sums, if anything does."""
    w, b = workload, blocking
    packed, packing = packed_weights(w, b.vectors * INSTRUCTION.lanes)
    data, copying = (w.data, None) if b.copies else brought_in(w)
    computing = _Tiles(w, form, b, epilogue, data, packed).tasks()
    statements = [packing, *([] if copying is None else [copying]), computing]
    packs = set() if w.position is None else {w.position}
    return with_body(module, statements, [packed, *([] if copying is None else [data])], packs, epilogue)


class _Tiles:
    """Writes the loop of tasks."""

    def __init__(
        self,
        workload: Contraction,
        form: TileForm,
        blocking: TileBlocking,
        epilogue: Epilogue | None,
        data: Any,
        packed: Any,
    ) -> None:
        self.workload, self.form, self.blocking, self.epilogue = workload, form, blocking, epilogue
        self.data, self.packed = data, packed
        self.panel = blocking.vectors * INSTRUCTION.lanes
        self.own = workload.panels(blocking.vectors * INSTRUCTION.lanes) // blocking.parts
        self.in_line = tiles_of(form, blocking.height)
        self.total = form.lines * self.in_line
        self.groups = -(-self.total // (blocking.blocks * blocking.tiles))
        self.copied = copied_lines(workload, form, blocking.height, self.groups * blocking.tiles)
        if blocking.copies:
            size = self.copied * workload.image[2] * workload.depth
            self.data = buffer("lines", (size,), "uint8", "global")
        self.sums = buffer("sums", (blocking.tiles * blocking.height * self.panel,), "int32", "global")
        self.kernel = Kernel(
            INSTRUCTION,
            blocking.tiles,
            blocking.vectors,
            form.chunks,
            segments=workload.segments,
            pitch=form.pitch,
            height=blocking.height,
            words=form.quads,
            ahead=_AHEAD * form.quads * self.panel * WORD_BYTES,
        )

    def tasks(self) -> Any:
        """The parallel loop."""
        w, b = self.workload, self.blocking
        name, text = (made := text_of(self.kernel)).name, made.whole

        def body(block: Any, part: Any) -> Any:
            first = block * index(self.groups * b.tiles)
            top = self._top(first) if b.copies else index(0)

            def at(q: Any, o: Any) -> Any:
                return self._group(name, first + q * index(b.tiles), part * index(self.own) + o, top)

            if b.panels_first:
                inner = loop("o", self.own, lambda o: loop("q", self.groups, lambda q: at(q, o)))
            else:
                inner = loop("q", self.groups, lambda q: loop("o", self.own, lambda o: at(q, o)))
            begin, end = (tirx.Evaluate(tirx.call_extern("int32", f"{name}_{when}")) for when in ("begin", "end"))
            return tirx.AttrStmt(
                index(0), IMPORT, tvm.ir.StringImm(text), sequence([*self._copying(top), begin, inner, end])
            )

        target = w.result if self.epilogue is None else self.epilogue.target
        operands = [] if self.epilogue is None else self.epilogue.operands
        reads = [*(w.brought if b.copies else [self.data]), self.packed, *operands]
        own = [self.sums, *([self.data] if b.copies else [])]
        return tasks_over(w.name, b.blocks, b.parts, body, reads, [target], own)

    def _top(self, first: Any) -> Any:
        """The first line of pixels, with borders, that tiles from this one on read."""
        line, begin, _ = self._place(tirx.min(first, index(self.total - 1)))
        if self.form.through:
            return tirx.floordiv(begin, index(self.workload.image[2]))
        return line * index(self.workload.rows.stride)

    def _copying(self, top: Any) -> list[Any]:
        """Copy the lines of pixels that a task reads, if it copies them."""
        if not self.blocking.copies:
            return []
        w = self.workload
        _, height, width = w.image
        copied, length = line_copier(w, self.data), index(width * w.depth)

        def line(number: Any) -> Any:
            return copied(top + number, number * length)

        count = tirx.min(index(self.copied), index(height) - top)
        variable = tirx.Var("line", INDEX)
        return [tirx.For(variable, index(0), count, tirx.ForKind.SERIAL, line(variable))]

    def _group(self, name: str, first: Any, o: Any, top: Any) -> Any:
        """The sums of some tiles of rows with one panel, and what follows."""
        b = self.blocking
        exact = self.total == b.blocks * self.groups * b.tiles
        numbers = [first + index(tile) for tile in range(b.tiles)]
        if not exact:
            numbers = [tirx.min(number, index(self.total - 1)) for number in numbers]
        read = [address(self.data, self._offset(number, top)) for number in numbers]
        weights = address(self.packed, o * index(self.kernel.panel_bytes))
        call = call_kernel(name, self.kernel, read, [weights], address(self.sums, index(0)))

        def stored(tile: Any) -> Any:
            rows = self._stored(first + tile, tile, o)
            return rows if exact else tirx.IfThenElse(first + tile < index(self.total), rows, None)

        return sequence([call, loop("t", b.tiles, stored)])

    def _place(self, number: Any) -> tuple[Any, Any, Any]:
        """The line of a tile, its first row there, and how many rows the tile before it has as well."""
        b, form = self.blocking, self.form
        line = number if self.in_line == 1 else tirx.floordiv(number, index(self.in_line))
        if form.lines == 1:
            line = index(0)
        within = number if form.lines == 1 else tirx.floormod(number, index(self.in_line))
        first = index(0) if self.in_line == 1 else within * index(b.height)
        if form.length % b.height == 0:
            return line, first, index(0)
        begin = tirx.min(first, index(form.length - b.height))
        return line, begin, first - begin

    def _offset(self, number: Any, top: Any) -> Any:
        """The bytes from the start of the data, or of the line of pixels `top`, to the first row of a tile."""
        w, form = self.workload, self.form
        line, first, _ = self._place(number)
        _, height, width = w.image
        before = top * index(width * w.depth) if self.blocking.copies else index(0)
        if form.lines == 1:
            return first * index(form.pitch) - before
        if form.through:
            return (line * index(height * width) + first) * index(w.depth) - before
        down = w.rows.stride
        high = w.extents[1]
        image, y = tirx.floordiv(line, index(high)), tirx.floormod(line, index(high))
        return (image * index(height) + y * index(down)) * index(width * w.depth) + first * index(form.pitch) - before

    def _stored(self, number: Any, tile: Any, o: Any) -> Any:
        """Store what follows from the sums of a tile."""
        w, b, form = self.workload, self.blocking, self.form
        line, first, before = self._place(number)

        def row(r: Any) -> Any:
            place, condition = first + r, None
            if form.through:
                width, across = w.image[2], w.extents[2]
                x = tirx.floormod(place, index(width))
                lead = [line, tirx.floordiv(place, index(width)), x]
                condition = x < index(across) if width > across else None
            elif form.lines == 1 and form.length == w.positions:
                lead = unravelled(place, w.extents)
            else:
                lead = [*unravelled(line, w.extents[:-1]), place]

            def element(v: Any, lane: Any) -> Any:
                at = (tile * index(b.height) + r) * index(self.panel) + v * index(INSTRUCTION.lanes) + lane
                return self.sums[at]

            vector = stored_vector(INSTRUCTION.lanes, w.filters, self.panel, self.epilogue, w.result, element, lead)
            stored = loop("v", b.vectors, lambda v: vector(o, v))
            return stored if condition is None else tirx.IfThenElse(condition, stored, None)

        if isinstance(before, tirx.IntImm):
            return loop("r", b.height, row)
        variable = tirx.Var("r", INDEX)
        rows = index(b.height) - before
        return tirx.For(variable, index(0), rows, tirx.ForKind.SERIAL, row(before + variable))
