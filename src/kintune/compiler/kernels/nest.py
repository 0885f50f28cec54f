"""The loops around a micro-kernel: tasks of rows by panels of columns, prefetches, and what follows the sums.

Columns are computed in panels, whose weights are packed (`packing`).  Rows are computed in units, as `rows` gives them.
A task of the parallel loop takes some units and a part of the panels; the micro-kernel takes some of these units at
once with one panel.  What follows the sums is computed from them right behind the kernel, or, if sums are `held`, once
all units of the task have been multiplied with a panel.

An edge is a partial tile: it is computed as a whole, and the part of it that there is is stored.

Rows may also come as tiles whose sums are `apart`, in small buffers that the compiler keeps in registers until what
follows is stored (`tiled_rows`).  A tile has its own products, and an edge is a smaller tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import tvm
from tvm import tirx

from kintune.compiler.kernels.calls import BF16_BITS, IMPORT, Address, address, call_copy, call_kernel
from kintune.compiler.kernels.copies import CHUNK
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.instructions import LINE_BYTES, WORD_BYTES
from kintune.compiler.kernels.loops import buffer, index, loop, pieces, sequence
from kintune.compiler.kernels.microkernel import Kernel, Text, text_of, together
from kintune.compiler.kernels.rows import Rows
from kintune.compiler.kernels.statements import block_over
from kintune.compiler.kernels.tiled_rows import RowTile, TiledRows

__all__ = ["InRegisters", "Nest", "Panels", "Share", "SumsOfRow", "Target", "tasks"]

_NAMES = {"i32": "int32", "float": "float32"}


class Share(NamedTuple):
    """A part of a sum: its kernel, whose function is `text`, begins so many values behind the first of a row and of a
    panel.
    """

    kernel: Kernel
    text: Text
    data: int = 0
    weights: int = 0

    @classmethod
    def of(cls, kernel: Kernel, data: int = 0, weights: int = 0) -> Share:
        """The part that this kernel computes."""
        return cls(kernel, text_of(kernel), data, weights)


class Panels(NamedTuple):
    """The packed weights in `buffers`: `number` panels, for each batch if they are `batched`, an equal part of them for
    each of `groups` of columns.

    `addresses(o, offset)` gives what a kernel is given of panel `o`, so many values behind its begin.  `begin` gives
    statements that come before all kernels which read a panel.  They and the rows use the functions `texts`.

    A task's sums are kept in a buffer of its own, or in that of `sums`, from an element on: the compiler would use one
    buffer for the packed weights and for sums, where these follow once a panel is unpacked.
    """

    number: int
    buffers: list[Any]
    addresses: Callable[[Any, Any], list[Any]]
    begin: Callable[[Any], list[Any]] | None = None
    texts: tuple[Text, ...] = ()
    sums: tuple[Any, int] | None = None
    batched: bool = False
    groups: int = 1


class Target(NamedTuple):
    """Where `columns` columns of sums, of a group, go: to `result`, or to what `epilogue` computes from them.

    With `rounds`, that lies in memory in bf16.  Functions of `copies` fetch a row of the buffers `fetched` ahead.
    """

    result: Any
    columns: int
    epilogue: Epilogue | None = None
    rounds: bool = False
    fetched: tuple[tuple[str, Any], ...] = ()

    @property
    def stored(self) -> Any:
        """The buffer that is stored."""
        return self.result if self.epilogue is None else self.epilogue.target

    @property
    def operands(self) -> list[Any]:
        """The further buffers that are read."""
        return [] if self.epilogue is None else self.epilogue.operands

    @property
    def is_vectorised(self) -> bool:
        """Whether columns that are neighbours are stored side by side."""
        return self.epilogue is None or self.epilogue.is_vectorised


class Nest(NamedTuple):
    """A product: units of `rows` by `panels` of weights, whose sums go to `target`; `name` is that of the block.

    A task takes one of about `parts` parts of the panels.  With `panels_first` a panel is used for all units of a task
    before the next one is.  If sums are `held`, they may be computed in several `shares`.  Tiles of rows have the one
    share of a whole tile; theirs may be computed in `depths` equal parts, one for all rows and panels of a task before
    the next one, between which the results hold the sums.  While a panel is multiplied, the next one is prefetched, at
    most so many lines of the cache as are `asked` in a turn of the kernel: weights come from far, and the hardware does
    not prefetch them while it reads one panel again and again.
    """

    name: str
    rows: Rows | TiledRows
    panels: Panels
    target: Target
    shares: tuple[Share, ...]
    parts: int
    panels_first: bool = True
    held: bool = False
    asked: int = 0
    depths: int = 1


def tasks(nest: Nest) -> Any:
    """The statement that computes the result: the loop of tasks, over all batches."""
    return (InRegisters if isinstance(nest.rows, TiledRows) else _InMemory)(nest).tasks()


class _Writer(ABC):
    """What units of rows and tiles of them have in common."""

    def __init__(self, nest: Nest) -> None:
        self.n, self.kernel = nest, nest.shares[0].kernel
        self.instruction = self.kernel.instruction
        self.panel = self.kernel.vectors * self.instruction.lanes
        self.own = -(-nest.panels.number // nest.parts)
        self.texts = list(nest.panels.texts)
        self.buffers: list[Any] = []

    def tasks(self) -> Any:
        n = self.n
        blocks = n.rows.blocks if n.rows.batches == 1 else n.rows.batches * n.rows.blocks
        again = [n.target.stored] if n.depths > 1 else []

        def body(block: Any, part: Any) -> Any:
            written = self._task(block, part)
            if not self.texts:
                return written
            return tirx.AttrStmt(index(0), IMPORT, tvm.ir.StringImm(together(self.texts)), written)

        return block_over(
            n.name,
            [("block", blocks), ("part", -(-n.panels.number // self.own))],
            body,
            [*n.rows.reads, *n.panels.buffers, *n.target.operands, *again],
            [n.target.stored],
            fused=True,
            buffers=[*self.buffers, *n.rows.buffers],
        )

    @abstractmethod
    def _task(self, block: Any, part: Any) -> Any:
        """The products of a task, and what follows them."""

    def _share(self, block: Any, part: Any) -> tuple[Any, Any, Any, Any]:
        """The batch of a task, its block there, its first panel, and how many panels it has."""
        rows, number = self.n.rows, self.n.panels.number
        batch, start = index(0), part * index(self.own)
        if rows.batches > 1:
            batch, block = tirx.floordiv(block, index(rows.blocks)), tirx.floormod(block, index(rows.blocks))
        return batch, block, start, tirx.min(index(self.own), index(number) - start) if number % self.own else self.own

    def _lines(self, calls: int) -> int:
        """The lines of the next panel that each turn of so many calls prefetches; 0 without a next panel."""
        lines = self.kernel.lines_for(calls) if self.own * self.n.depths > 1 else 0
        return lines if lines <= self.n.asked else 0

    def _stored(self, o: Any, rows: Callable[[int], Any]) -> Any:
        """What `rows(count)` stores of a panel, the number of which in its group is `o`: so many of its columns."""
        number, rest = divmod(self.n.target.columns, self.panel)
        if not rest or not number:
            return rows(rest or self.panel)
        return tirx.IfThenElse(o < index(number), rows(self.panel), rows(rest))

    def _row(self, o: Any, place: Sequence[Any], count: int, row: SumsOfRow) -> Any:
        """Store what follows from so many sums of a row with a panel; `place` has the row's indices in the result."""
        target, lanes = self.n.target, self.instruction.lanes
        kind = tirx.ForKind.VECTORIZED if target.is_vectorised else tirx.ForKind.SERIAL

        def vector(start: Any, number: int) -> Any:
            def one(lane: Any) -> Any:
                found, at = row.load(start + lane), [*place, o * index(self.panel) + start + lane]
                if target.epilogue is None:
                    return tirx.BufferStore(target.result, found, at)
                if target.rounds:
                    return tirx.BufferStore(row.sums, target.epilogue.value_of(found, at), [row.first + start + lane])
                return target.epilogue.store(found, at)

            return loop("lane", number, one, kind)

        full, rest = divmod(count, lanes)
        vectors = row.vectors(full, lambda v: vector(v * index(lanes), lanes))
        partly = pieces(rest, lanes) if target.is_vectorised else [(0, rest)] if rest else []
        vectors += [vector(index(full * lanes + start), size) for start, size in partly]
        if not target.rounds:
            return sequence(vectors)
        return sequence([*(vectors if target.epilogue is not None else []), self._rounded(row, o, place, count)])

    def _rounded(self, row: SumsOfRow, o: Any, place: Sequence[Any], count: int) -> Any:
        """Round so many values, which have replaced the sums of a row, and store them."""
        target, at = self.n.target, [*place, o * index(self.panel)]
        indices = at if target.epilogue is None else target.epilogue.indices_of(at)
        offset = index(0)
        for each, extent in zip(indices, target.stored.shape, strict=True):
            offset = offset * index(int(extent)) + each
        source = address(row.sums, row.first)
        return call_copy("kt_put", source, address(target.stored, offset, BF16_BITS), count, WORD_BYTES // 2 * CHUNK)


class SumsOfRow(NamedTuple):
    """The sums of a row, from element `first` of `sums` on; vectors of them are written out, or a loop."""

    sums: Any
    first: Any
    written: bool = False

    def load(self, at: Any) -> Any:
        """The sum of a column of the panel."""
        return self.sums[self.first + at]

    def vectors(self, number: int, vector: Callable[[Any], Any]) -> list[Any]:
        """The statements of so many vectors."""
        if self.written:
            return [vector(index(v)) for v in range(number)]
        return [loop("v", number, vector)] if number else []


class _InMemory(_Writer):
    """Writes units of rows, whose sums lie in one buffer."""

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.rows = cast(Rows, nest.rows)
        self.at_once = self.kernel.addresses
        self.groups, self.rest = divmod(self.rows.units, self.at_once)
        units = self.rows.units if nest.held else self.at_once
        size, total = units * self.rows.height * self.panel, _NAMES[self.instruction.total]
        self.sums, self.base = nest.panels.sums or (buffer("sums", (size,), total, "global"), 0)
        self.buffers = [self.sums]
        self.texts += [nest.shares[0].text] if self.instruction.tiles else []
        self.lines = self._lines(-(-self.rows.units // self.at_once)) if nest.asked else 0

    def _task(self, block: Any, part: Any) -> Any:
        n, rows = self.n, self.rows
        batch, number, start, own = self._share(block, part)
        first, groups = rows.share(number, self.at_once)
        brought, origin = rows.begin(batch, first)

        def store(o: Any) -> Callable[[Any, Any], Any]:
            def row(at: Any, place: Any) -> Any:
                sums = SumsOfRow(self.sums, at * index(self.panel) + index(self.base))
                return self._stored(o, lambda count: self._row(o, place, count, sums))

            return row

        def tile(q: Any, o: Any) -> Any:
            """The sums of some units with one panel, and what follows."""
            unit = first + q * index(self.at_once)
            call = self._call(n.shares[0], batch, unit, origin, o, index(0), self.at_once)
            return sequence([call, rows.stored(batch, unit, self.at_once, store(o))])

        def panel(each: Any) -> Any:
            o = start + each
            before = [] if n.panels.begin is None else n.panels.begin(self._number(batch, o))
            if not n.held:
                return sequence([*before, loop("q", groups, lambda q: tile(q, o))])
            products = [each for share in n.shares for each in self._products(share, batch, first, origin, o, groups)]
            return sequence([*before, *products, rows.stored(batch, first, rows.units, store(o))])

        if n.panels_first:
            inner = loop("o", own, panel)
        else:
            inner = loop("q", groups, lambda q: loop("o", own, lambda each: tile(q, start + each)))
        if not self.instruction.tiles:
            return sequence([*brought, inner])
        frame = n.shares[0].text.name
        begin, end = (tirx.Evaluate(tirx.call_extern("int32", f"{frame}_{when}")) for when in ("begin", "end"))
        return sequence([*brought, begin, inner, end])

    def _products(self, share: Share, batch: Any, first: Any, origin: Any, o: Any, groups: Any) -> list[Any]:
        """The products of all units of a task with a panel; their first groups prefetch the next one."""
        asking = -(-self.kernel.step_bytes // (LINE_BYTES * self.lines)) if self.lines else 0
        asked = min(asking, groups) if isinstance(groups, int) else tirx.min(index(asking), groups)
        found = []
        for begin, end, lines in ((0, asked, self.lines), (asked, groups, 0)) if asking else ((0, groups, 0),):
            if not isinstance(end, int) or begin < end:

                def group(q: Any, begin: Any = begin, lines: int = lines) -> Any:
                    place = (q + index(begin)) * index(self.at_once)
                    return self._call(share, batch, first + place, origin, o, place, self.at_once, lines)

                found.append(loop("group", end - begin, group))
        if self.rest:
            place, lines = index(self.groups * self.at_once), self.lines if self.groups < asking else 0
            found.append(self._call(share, batch, first + place, origin, o, place, self.rest, lines))
        return found

    def _call(
        self, share: Share, batch: Any, unit: Any, origin: Any, o: Any, place: Any, units: int, lines: int = 0
    ) -> Any:
        """A call of the kernel for so many units from one on, the sums of which begin at unit `place`."""
        n, rows, kernel, text = self.n, self.rows, share.kernel, share.text
        if lines or units != self.at_once:
            kernel = kernel._replace(lines=lines, rows=units if units != self.at_once else kernel.rows)
            text = text_of(kernel)
        self.texts.append(text)
        number = self._number(batch, o)
        read = rows.addresses(batch, unit, units, origin, share.data)
        ahead = None
        if lines:  # behind the last panel it may lie outside of the weights, where a prefetch does nothing
            values = WORD_BYTES // self.instruction.step
            behind = tirx.floordiv(place, index(self.at_once)) * index(kernel.turns * lines * LINE_BYTES // values)
            (ahead,) = n.panels.addresses(number + index(1), index(share.weights) + behind)
        sums = address(self.sums, place * index(rows.height * self.panel) + index(self.base))
        call = call_kernel(text.name, kernel, read, n.panels.addresses(number, index(share.weights)), sums, ahead)
        return sequence([*([] if share.data else self._fetched(unit, units, o)), call])

    def _fetched(self, unit: Any, units: int, o: Any) -> list[Any]:
        """Prefetch what is stored and read with the sums of so many rows, while the kernel computes them.

        A row is one cache line there, and the next row is far away, so that the hardware does not prefetch it.
        """
        columns, rows = self.n.target.columns, units * self.rows.height
        offset = unit * index(self.rows.height * columns) + o * index(self.panel)
        size = WORD_BYTES // self.instruction.step
        return [
            call_copy(name, address(each, offset, BF16_BITS), rows, size * columns)
            for name, each in self.n.target.fetched
        ]

    def _number(self, batch: Any, o: Any) -> Any:
        """The number of a panel among those of all batches."""
        return batch * index(self.n.panels.number) + o if self.n.panels.batched else o


class InRegisters(_Writer):
    """Writes tiles of rows, the sums of each row in a small buffer of its own.

    The compiler keeps these in registers, since all that is done with a tile is written out.  Where columns that are
    neighbours are not stored side by side, the sums are moved to memory first.
    """

    def __init__(self, nest: Nest) -> None:
        super().__init__(nest)
        self.rows = cast(TiledRows, nest.rows)
        self.sums = [buffer(f"sums{row}", (self.panel,), "float32", "global") for row in range(self.kernel.rows)]
        self.moved = buffer("results", (self.kernel.rows * self.panel,), "float32", "global")
        self.buffers = self.sums if nest.target.is_vectorised else [*self.sums, self.moved]
        tiles = self.rows.looped
        self.lines = self._lines(tiles) if tiles > 1 else 0

    def _task(self, block: Any, part: Any) -> Any:
        batch, number, start, own = self._share(block, part)
        depths, panels = self.n.depths, self.n.panels.number // self.n.panels.groups

        def panel(d: Any, each: Any) -> Any:
            o = start + each
            group = tirx.floordiv(o, index(panels)) if self.n.panels.groups > 1 else index(0)
            following = tirx.min(d * index(own) + each + index(1), index(own) * index(depths) - index(1))
            further, deep = following, index(0)
            if depths > 1:
                further, deep = tirx.floormod(following, index(own)), tirx.floordiv(following, index(own))

            def tile(found: RowTile, q: Any) -> Any:
                ahead = None
                if self.lines and q is not None:
                    behind = q * index(self.lines * self.kernel.turns * LINE_BYTES // WORD_BYTES)
                    offset = deep * index(self.kernel.steps * self.panel) + behind
                    (ahead,) = self.n.panels.addresses(start + further, offset)
                return self._tile(found, o, o - group * index(panels), d, ahead)

            return self.rows.tiles(batch, number, group, tile)

        tiles = loop("depth", depths, lambda d: loop("panel", own, lambda each: panel(d, each)))
        return sequence([*self.rows.begun, tiles])

    def _tile(self, tile: RowTile, o: Any, number: Any, depth: Any, ahead: Address | None) -> Any:
        """The sums of a tile with a panel, the number of which in its group is given, and what follows them; of one
        depth, if there are several.
        """
        zero, depths = tirx.const(0.0, "float32"), self.n.depths

        def multiply(rows: Sequence[int], source: Callable[[int], Any], value: Any, steps: int) -> Any:
            behind = depth * index(steps // depths)
            return self._multiplied(
                tile, rows, lambda row: source(row) + behind, o, value + behind, steps // depths, ahead
            )

        begun = self._each(tile, lambda row, at: tirx.BufferStore(self.sums[row], zero, [at]))
        products = self.rows.products(tile, multiply)
        if depths == 1:
            return sequence([*begun, *products, self._results(tile, number)])
        stored, epilogue = self.n.target.stored, self.n.target.epilogue

        def indices(row: int, at: Any) -> list[Any]:
            found = [*tile.place(row), number * index(self.panel) + at]
            return found if epilogue is None else epilogue.indices_of(found)

        def resumed(row: int, at: Any) -> Any:
            return tirx.BufferStore(self.sums[row], stored[tuple(indices(row, at))], [at])

        def kept(row: int, at: Any) -> Any:
            return tirx.BufferStore(stored, self.sums[row][at], indices(row, at))

        first, last = tirx.EQ(depth, index(0)), tirx.EQ(depth, index(depths - 1))
        begin = tirx.IfThenElse(first, sequence(begun), sequence(self._each(tile, resumed)))
        end = tirx.IfThenElse(last, self._results(tile, number), sequence(self._each(tile, kept)))
        return sequence([begin, *products, end])

    def _each(self, tile: RowTile, body: Callable[[int, Any], Any]) -> list[Any]:
        """Statements for all sums of a tile, a vector each: LLVM splits up a vector of 3 x 16 lanes."""
        lanes, vectors = self.instruction.lanes, self.kernel.vectors

        def vector(row: int, first: int) -> Any:
            return loop("lane", lanes, lambda lane: body(row, index(first) + lane), tirx.ForKind.VECTORIZED)

        return [vector(row, v * lanes) for row in range(tile.number) for v in range(vectors)]

    def _multiplied(
        self,
        tile: RowTile,
        rows: Sequence[int],
        source: Callable[[int], Any],
        o: Any,
        value: Any,
        steps: int,
        ahead: Address | None,
    ) -> Any:
        """Add products to the sums of some rows: so many steps from a value of the sums on."""
        is_even = tile.pitch > 0 and list(rows) == list(range(rows[0], rows[0] + len(rows)))
        calls = []
        for start, number, unroll in _turns(steps, self.kernel.unroll):
            kernel = self.kernel._replace(
                rows=len(rows), steps=number, unroll=unroll, pitch=WORD_BYTES * tile.pitch if is_even else 0,
                lines=0 if start or ahead is None else self.lines,
                ways=self.kernel.ways if unroll % self.kernel.ways == 0 else 1,
            )  # fmt: skip
            text = text_of(kernel)
            self.texts.append(text)
            data = [address(self.rows.data, source(row) + index(start)) for row in rows[: kernel.addresses]]
            weights = self.n.panels.addresses(o, (value + index(start)) * index(self.panel))
            sums = [address(self.sums[row], index(0)) for row in rows]
            calls.append(call_kernel(text.name, kernel, data, weights, sums, ahead if kernel.lines else None))
        return sequence(calls)

    def _results(self, tile: RowTile, o: Any) -> Any:
        """Store what follows from the sums of a tile with a panel, the number of which in its group is `o`."""
        moves, rows = [], [SumsOfRow(self.sums[row], index(0), written=True) for row in range(tile.number)]
        if not self.n.target.is_vectorised:
            rows = [SumsOfRow(self.moved, index(row * self.panel)) for row in range(tile.number)]
            moves = self._each(
                tile, lambda row, at: tirx.BufferStore(self.moved, self.sums[row][at], [rows[row].first + at])
            )
        each = list(enumerate(rows))
        return sequence(
            [
                *moves,
                self._stored(o, lambda count: sequence([self._row(o, tile.place(row), count, s) for row, s in each])),
            ]
        )


def _turns(steps: int, unroll: int) -> Iterator[tuple[int, int, int]]:
    """Calls of a kernel for so many steps: where each begins, its steps, and those that are written out."""
    rest = steps % unroll
    if steps > rest:
        yield 0, steps - rest, unroll
    if rest:
        yield steps - rest, rest, rest
