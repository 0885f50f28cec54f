"""The loops around a micro-kernel: tasks of rows by panels of columns, prefetches, and what follows the sums.

Columns are computed in panels, whose weights are packed (`packing`).  Rows are computed in units, as `rows` gives them.
A task of the parallel loop takes some units and a part of the panels; the micro-kernel takes some of these units at
once with one panel.  What follows the sums is computed from them right behind the kernel, or, if sums are `held`, once
all units of the task have been multiplied with a panel.

An edge is a partial tile: it is computed as a whole, and the part of it that there is is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.kernels.calls import BF16_BITS, IMPORT, address, call_copy, call_kernel
from kintune.compiler.kernels.copies import CHUNK
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.instructions import LINE_BYTES, WORD_BYTES
from kintune.compiler.kernels.loops import INDEX, buffer, index, loop, pieces, sequence
from kintune.compiler.kernels.microkernel import Kernel, Text, text_of, together
from kintune.compiler.kernels.rows import Rows
from kintune.compiler.kernels.statements import whole

__all__ = ["Nest", "Panels", "Share", "Target", "tasks"]

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
    """The packed weights in `buffers`: `number` panels, for each batch if they are `batched`.

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


class Target(NamedTuple):
    """Where `columns` columns of sums go: to `result`, or to what `epilogue` computes from them.

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
    before the next one is.  If sums are `held`, they may be computed in several `shares`.  While a panel is multiplied,
    the next one is prefetched if that is `asked`: weights come from far, and the hardware does not prefetch them while
    it reads one panel again and again.
    """

    name: str
    rows: Rows
    panels: Panels
    target: Target
    shares: tuple[Share, ...]
    parts: int
    panels_first: bool = True
    held: bool = False
    asked: bool = False


def tasks(nest: Nest) -> Any:
    """The statement that computes the result: the loop of tasks, over all batches."""
    return _Writer(nest).tasks()


class _Writer:
    def __init__(self, nest: Nest) -> None:
        self.n, self.rows, self.kernel = nest, nest.rows, nest.shares[0].kernel
        self.instruction = self.kernel.instruction
        self.panel = self.kernel.vectors * self.instruction.lanes
        self.at_once = self.kernel.addresses
        self.own = -(-nest.panels.number // nest.parts)
        self.groups, self.rest = divmod(nest.rows.units, self.at_once)
        units = nest.rows.units if nest.held else self.at_once
        size, total = units * nest.rows.height * self.panel, _NAMES[self.instruction.total]
        self.sums, self.base = nest.panels.sums or (buffer("sums", (size,), total, "global"), 0)
        self.texts = [*nest.panels.texts, *([nest.shares[0].text] if self.instruction.tiles else [])]
        self.lines = 0
        """Cache lines of the next panel that groups of units prefetch in each step; 0 without a next one."""
        if nest.asked and self.own > 1:
            self.lines = -(-self.kernel.step_bytes // (LINE_BYTES * -(-nest.rows.units // self.at_once)))

    def tasks(self) -> Any:
        n, rows = self.n, self.rows
        parts = -(-n.panels.number // self.own)
        block, part, task = (tirx.Var(each, INDEX) for each in ("vblock", "vpart", "task"))
        blocks = rows.blocks if rows.batches == 1 else rows.batches * rows.blocks
        body = self._task(block, part)
        made = SBlock(
            [
                tirx.IterVar(tvm.ir.Range(index(0), index(extent)), variable, tirx.IterVar.DataPar)
                for variable, extent in ((block, blocks), (part, parts))
            ],
            [whole(each) for each in (*rows.reads, *n.panels.buffers, *n.target.operands)],
            [whole(n.target.stored)],
            n.name,
            tirx.AttrStmt(index(0), IMPORT, tvm.ir.StringImm(together(self.texts)), body),
            alloc_buffers=[self.sums, *rows.buffers],
        )
        inside = SBlockRealize([tirx.floordiv(task, index(parts)), tirx.floormod(task, index(parts))], True, made)
        return tirx.For(task, index(0), index(blocks * parts), tirx.ForKind.PARALLEL, inside)

    def _task(self, block: Any, part: Any) -> Any:
        n, rows = self.n, self.rows
        batch, number = index(0), block
        if rows.batches > 1:
            batch, number = tirx.floordiv(block, index(rows.blocks)), tirx.floormod(block, index(rows.blocks))
        first, start = number * index(rows.units), part * index(self.own)
        brought, origin = rows.begin(batch, first)
        own = self.own
        if n.panels.number % own:
            own = tirx.min(index(own), index(n.panels.number) - start)

        def tile(q: Any, o: Any) -> Any:
            """The sums of some units with one panel, and what follows."""
            unit = first + q * index(self.at_once)
            call = self._call(n.shares[0], batch, unit, origin, o, index(0), self.at_once)
            return sequence([call, rows.stored(batch, unit, self.at_once, lambda row, at: self._stored(row, o, at))])

        def panel(each: Any) -> Any:
            o = start + each
            before = [] if n.panels.begin is None else n.panels.begin(self._number(batch, o))
            if not n.held:
                return sequence([*before, loop("q", self.groups, lambda q: tile(q, o))])
            products = [each for share in n.shares for each in self._products(share, batch, first, origin, o)]
            stored = rows.stored(batch, first, rows.units, lambda row, at: self._stored(row, o, at))
            return sequence([*before, *products, stored])

        if n.panels_first:
            inner = loop("o", own, panel)
        else:
            inner = loop("q", self.groups, lambda q: loop("o", own, lambda each: tile(q, start + each)))
        if not self.instruction.tiles:
            return sequence([*brought, inner])
        frame = n.shares[0].text.name
        begin, end = (tirx.Evaluate(tirx.call_extern("int32", f"{frame}_{when}")) for when in ("begin", "end"))
        return sequence([*brought, begin, inner, end])

    def _products(self, share: Share, batch: Any, first: Any, origin: Any, o: Any) -> list[Any]:
        """The products of all units of a task with a panel; their first groups prefetch the next one."""
        asking = -(-self.kernel.step_bytes // (LINE_BYTES * self.lines)) if self.lines else 0
        found = []
        for begin, end, lines in (
            (0, min(asking, self.groups), self.lines),
            (min(asking, self.groups), self.groups, 0),
        ):
            if begin < end:

                def group(q: Any, begin: int = begin, lines: int = lines) -> Any:
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
            steps, values = kernel.segments.number * kernel.steps, WORD_BYTES // self.instruction.step
            behind = tirx.floordiv(place, index(self.at_once)) * index(steps * lines * LINE_BYTES // values)
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

    def _stored(self, row: Any, o: Any, place: Sequence[Any]) -> Any:
        """Store what follows from row `row` of the sums with a panel; `place` has the row's indices in the result."""
        target, lanes = self.n.target, self.instruction.lanes
        kind = tirx.ForKind.VECTORIZED if target.is_vectorised else tirx.ForKind.SERIAL

        def vector(start: Any, count: int) -> Any:
            def one(lane: Any) -> Any:
                at = row * index(self.panel) + start + lane + index(self.base)
                found, indices = self.sums[at], [*place, o * index(self.panel) + start + lane]
                if target.epilogue is None:
                    return tirx.BufferStore(target.result, found, indices)
                if target.rounds:
                    return tirx.BufferStore(self.sums, target.epilogue.value_of(found, indices), [at])
                return target.epilogue.store(found, indices)

            return loop("lane", count, one, kind)

        def columns(count: int) -> Any:
            full, rest = divmod(count, lanes)
            vectors = [loop("v", full, lambda v: vector(v * index(lanes), lanes))] if full else []
            partly = pieces(rest, lanes) if target.is_vectorised else [(0, rest)] if rest else []
            vectors += [vector(index(full * lanes + start), size) for start, size in partly]
            if not target.rounds:
                return sequence(vectors)
            return sequence([*(vectors if target.epilogue is not None else []), self._rounded(row, o, place, count)])

        number, rest = divmod(target.columns, self.panel)
        if not rest or not number:
            return columns(rest or self.panel)
        return tirx.IfThenElse(o < index(number), columns(self.panel), columns(rest))

    def _rounded(self, row: Any, o: Any, place: Sequence[Any], count: int) -> Any:
        """Round so many values, which have replaced the sums of a row, and store them."""
        target, at = self.n.target, [*place, o * index(self.panel)]
        indices = at if target.epilogue is None else target.epilogue.indices_of(at)
        offset = index(0)
        for each, extent in zip(indices, target.stored.shape, strict=True):
            offset = offset * index(int(extent)) + each
        source = address(self.sums, row * index(self.panel))
        return call_copy("kt_put", source, address(target.stored, offset, BF16_BITS), count, WORD_BYTES // 2 * CHUNK)
