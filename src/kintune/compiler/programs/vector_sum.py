"""The loops of a sum of products in fp32: tiles of positions by vectors of filters, around the micro-kernel.

The weights are packed in panels [depth, panel] of the filters that are computed at once: all channels of one place of
the kernel after the other.  Places that meet nothing but zeros at all positions are left out.  The last panel of a
group is filled up with zeros, of which no results are stored.

A task takes a block of the positions and a part of the panels.  For one panel after the other, it computes all tiles of
its block.  The sums of a tile stay in registers until what follows from them is stored.  Positions that fill no whole
tile are a smaller one.

There are three ways through the positions (`vector_walks`).  Nothing is copied with zeros around it: a tile has the
products that lie in the image (`image_tiles`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import tirx

from kintune.compiler.kernels.calls import IMPORT, Address, address, call_kernel
from kintune.compiler.kernels.contraction import DENSE, Contraction
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.instructions import LINE_BYTES, WORD_BYTES, Instruction
from kintune.compiler.kernels.loops import pieces, sequence, unravelled
from kintune.compiler.kernels.microkernel import Kernel, Text, text_of, together
from kintune.compiler.kernels.stages import Stages, computing_block
from kintune.compiler.kernels.statements import block_over
from kintune.compiler.programs.image_tiles import (
    Tile,
    edges,
    has_written_edges,
    places_in_image,
    share_of,
    tiles_of,
)
from kintune.compiler.programs.indexing import Vectors
from kintune.compiler.programs.vector_walks import Run, Walk, few_tiles, live_part, runs_of
from kintune.compiler.space.packing import PACKS

__all__ = ["Tiling", "sum_in_vectors"]

_UNROLL = 4
"""Values of a sum that are taken in a turn of the innermost loop.

Of many that are written out, the compiler would put all products of a result side by side, which wait for each other.
"""

_Statement = Any


class Tiling(NamedTuple):
    """Tiles of `rows` positions by `vectors` of filters; `blocks` of the tiles by `parts` of the panels are the tasks.

    Blocks are of rows of results if these are walked through, and there are several.

    A sum is taken in so many `depths`: all tiles and panels of a task for one depth, then for the next; the results
    hold the sums meanwhile.  So what is read stays in a core's own cache.  Each result has `ways` independent sums.
    Weights are prefetched `ahead` bytes before they are read; with 0, all tiles of a block together prefetch the next
    panel, if they are enough.
    """

    rows: int
    vectors: int
    blocks: int = 1
    parts: int = 1
    depths: int = 1
    ways: int = 1
    ahead: int = 0


def sum_in_vectors(
    found: Contraction, instruction: Instruction, tiling: Tiling, walk: Walk, epilogue: Epilogue | None
) -> Stages:
    """The statements that compute the sum, or the epilogue of it.

    Several depths need a sum of one place of the kernel whose channels they divide, filters that fill their panels, and
    a result of float32.
    """
    return _Sum(found, instruction, tiling, walk, epilogue).stages()


class _Rows(NamedTuple):
    """The positions of a tile: `source(row, i, j)` is where the data of one begins, as the number of an element.

    `lead(row)` are the indices of its results but for the filter.  Rows lie `pitch` values apart if that is not 0.
    """

    number: int
    pitch: int
    source: Callable[[int, Any, Any], Any]
    lead: Callable[[int], list[Any]]


class _Sum:
    def __init__(
        self, found: Contraction, instruction: Instruction, tiling: Tiling, walk: Walk, epilogue: Epilogue | None
    ) -> None:
        self._found, self._tiling, self._walk, self._epilogue = found, tiling, walk, epilogue
        self._instruction = instruction
        self._g = g = Vectors(instruction.lanes, found.index_type)
        self._down, self._across = live_part(found.rows), live_part(found.columns)
        self._panel = tiling.vectors * instruction.lanes
        self._panels = -(-found.filters // self._panel)  # of a group
        self._depth = self._down.reach.kernel * self._across.reach.kernel * found.channels
        self._pixel = found.groups * found.channels  # values of a place of the image
        self._target = found.result if epilogue is None else epilogue.target
        self._weights = g.buffer("panels", found.groups * self._panels, self._depth, self._panel)
        self._sums = [g.buffer(f"sums{row}", self._panel) for row in range(tiling.rows)]
        self._results = g.buffer("results", tiling.rows, self._panel)
        self._is_wide = epilogue is None or epilogue.is_vectorised
        self._texts: list[Text] = []

    def stages(self) -> Stages:
        """Packing and computing."""
        found, tiling = self._found, self._tiling
        blocks = tiling.blocks * (found.images if self._walk is Walk.LINES else 1)
        computing = computing_block(
            f"{found.name}_vectors",
            found,
            self._epilogue,
            [("block", blocks), ("part", tiling.parts)],
            self._task,
            weights=self._weights,
            buffers=self._sums if self._is_wide else [*self._sums, self._results],
            again=tiling.depths > 1,
        )
        if blocks * tiling.parts == 1:
            computing = tirx.For(
                computing.loop_var, computing.min, computing.extent, tirx.ForKind.SERIAL, computing.body
            )
        return Stages([self._packing(), computing], [self._weights])

    def _packing(self) -> _Statement:
        found, g = self._found, self._g
        across, channels = g.at(self._across.reach.kernel), g.at(found.channels)

        def packed(o: Any, k: Any, f: Any) -> _Statement:
            group, panel = self._group_and_panel(o)
            place, channel = tirx.floordiv(k, channels), tirx.floormod(k, channels)
            i = tirx.floordiv(place, across) + g.at(self._down.first)
            j = tirx.floormod(place, across) + g.at(self._across.first)
            number = panel * g.at(self._panel) + f
            value = found.weight(i, j, channel, number, group)
            if found.filters % self._panel:
                value = tirx.if_then_else(number < g.at(found.filters), value, tirx.const(0.0, "float32"))
            return tirx.BufferStore(self._weights, value, [o, k, f])

        return block_over(
            "panel_weights",
            list(zip("okf", map(int, self._weights.shape), strict=True)),
            packed,
            [found.weights],
            [self._weights],
            parallel=False,
            by_element=True,
            annotations={PACKS: True},
            index_type=found.index_type,
        )

    def _group_and_panel(self, number: Any) -> tuple[Any, Any]:
        """The group of the panel with this number of all, and its number there."""
        if self._found.groups == 1:
            return self._g.at(0), number
        count = self._g.at(self._panels)
        return tirx.floordiv(number, count), tirx.floormod(number, count)

    def _task(self, block: Any, part: Any) -> _Statement:
        """All tiles of a block for a part of the panels, one depth and one panel after the other."""
        g, depths = self._g, self._tiling.depths
        first, own = share_of(part, self._found.groups * self._panels, self._tiling.parts, g)
        walk = {Walk.EVERY: self._every, Walk.FEW: self._few, Walk.LINES: self._lines}[self._walk]

        def of_panel(d: Any, o: Any) -> _Statement:
            number = tirx.min(d * g.at(own) + o + g.at(1), g.at(own) * g.at(depths) - g.at(1))
            next_depth, following = (g.at(0), number) if depths == 1 else divided(number, own)
            ahead = (first + following) * g.at(self._depth) + next_depth * g.at(self._depth // depths)
            return walk(block, first + o, d, ahead * g.at(self._panel))

        def divided(number: Any, by: Any) -> tuple[Any, Any]:
            return tirx.floordiv(number, g.at(by)), tirx.floormod(number, g.at(by))

        body = g.loop("depth", depths, lambda d: g.loop("panel", own, lambda o: of_panel(d, o)))
        return tirx.AttrStmt(g.at(0), IMPORT, tvm.ir.StringImm(together(self._texts)), body)

    # ---- ways through the positions ----

    def _every(self, block: Any, panel: Any, depth: Any, ahead: Any) -> _Statement:
        """The tiles of a block of all positions, in a loop; the last block has what fills no whole tile."""
        g, found, tiling = self._g, self._found, self._tiling
        full, rest = divmod(found.positions, tiling.rows)
        first, number = share_of(block, full, tiling.blocks, g)
        lines = self._lines_ahead(-(-full // tiling.blocks))
        each = lines * self._turns(self._depth // tiling.depths) * LINE_BYTES // WORD_BYTES

        def tile(q: Any) -> _Statement:
            further = address(self._weights, ahead + q * g.at(each)) if lines else None
            return self._tile(panel, self._flat((first + q) * g.at(tiling.rows), tiling.rows), depth, (lines, further))

        statements = [g.loop("tile", number, tile)]
        if rest:
            last = self._tile(panel, self._flat(g.at(full * tiling.rows), rest), depth)
            is_last = tirx.EQ(block, g.at(tiling.blocks - 1))
            statements.append(last if tiling.blocks == 1 else tirx.IfThenElse(is_last, last, None))
        return sequence(statements)

    def _few(self, _block: Any, panel: Any, _depth: Any, _ahead: Any) -> _Statement:
        """All tiles of few positions, one by one, each with the places of the kernel that its positions meet."""
        found, rows, tiles = self._found, self._tiling.rows, []
        for number, parts in enumerate(few_tiles(found, rows)):
            first = number * rows
            tile = self._flat(self._g.at(first), min(rows, found.positions - first))
            products = [self._through(panel, tile, *part) for part in parts if part[-1]]
            tiles.append(sequence([*self._begun(tile), *products, self._stored(panel, tile)]))
        return sequence(tiles)

    def _lines(self, block: Any, panel: Any, _depth: Any, _ahead: Any) -> _Statement:
        """The rows of a block of one image; if an image has one row, the tiles of a block of it."""
        g, blocks, found = self._g, self._tiling.blocks, self._found
        image = tirx.floordiv(block, g.at(blocks)) if found.images > 1 else g.at(0)
        place = tirx.floormod(block, g.at(blocks)) if found.images > 1 else block
        if found.rows.results == 1:
            return self._line(image, g.at(0), panel, place)
        first, rows = share_of(place, found.rows.results, blocks, g)
        return g.loop("row", rows, lambda row: self._line(image, first + row, panel, None))

    def _line(self, image: Any, y: Any, panel: Any, share: Any) -> _Statement:
        """A row of results, or a share of it; those tiles in a loop that lack no product, the others one by one."""
        g, blocks, across, columns = self._g, self._tiling.blocks, self._across.reach, self._tiling.rows
        tiles = tiles_of(across, columns)
        left, right = edges(across, columns)
        inner = tiles[left : len(tiles) - right]

        def written(some: Sequence[Tile], owner: int) -> list[_Statement]:
            if has_written_edges(across, columns):
                made = [self._of_line(panel, image, y, g.at(tile.first), tile) for tile in some]
            else:
                made = self._singles(some, image, y, panel)
            if share is None or blocks == 1 or not made:
                return made
            return [tirx.IfThenElse(tirx.EQ(share, g.at(owner)), sequence(made), None)]

        def looped(tile: Tile) -> _Statement:
            begin, number = (g.at(0), len(inner)) if share is None else share_of(share, len(inner), blocks, g)

            def at(k: Any) -> _Statement:
                first = (begin + k) * g.at(tile.columns) + g.at(tile.first)
                return self._of_line(panel, image, y, first, tile)

            return g.loop("tile", number, at)

        middle = [looped(inner[0])] if inner else []
        return sequence([*written(tiles[:left], 0), *middle, *written(tiles[len(tiles) - right :], blocks - 1)])

    def _of_line(self, panel: Any, image: Any, y: Any, x: Any, tile: Tile) -> _Statement:
        """A tile of a row of results, from column `x` on."""
        met = set(tile.products)
        runs = runs_of(self._across.reach.kernel, lambda j: tuple(t for t in range(tile.columns) if (t, j) in met))
        rows = self._in_line(panel, image, y, x, tile.columns)
        return sequence([*self._begun(rows), *self._rows_of_kernel(panel, rows, y, runs), self._stored(panel, rows)])

    def _singles(self, tiles: Sequence[Tile], image: Any, y: Any, panel: Any) -> list[_Statement]:
        """The results of these tiles one by one, each with the places of the kernel that lie in the image."""
        g, number = self._g, sum(tile.columns for tile in tiles)

        def single(k: Any) -> _Statement:
            x = k + g.at(tiles[0].first)
            rows = self._in_line(panel, image, y, x, 1)
            run = Run(*places_in_image(self._across.reach, x, g), (0,))
            return sequence(
                [*self._begun(rows), *self._rows_of_kernel(panel, rows, y, [run]), self._stored(panel, rows)]
            )

        return [g.loop("single", number, single)] if number else []

    def _rows_of_kernel(self, panel: Any, rows: _Rows, y: Any, runs: Sequence[Run]) -> list[_Statement]:
        """The products of a tile with the rows of the kernel that lie in the image; none if there are no `runs`."""
        return [self._through(panel, rows, *places_in_image(self._down.reach, y, self._g), runs)] if runs else []

    def _flat(self, first: Any, number: int) -> _Rows:
        """So many positions from number `first` on."""
        g, found = self._g, self._found
        is_plain = found.rows.is_plain and found.columns.is_plain

        def source(row: int, i: Any, j: Any) -> Any:
            position = first + g.at(row)
            if is_plain:
                return position * g.at(self._pixel)
            image, y, x = unravelled(position, (found.images, found.rows.results, found.columns.results), g.index_type)
            return self._place(image, y, x, i, j)

        def lead(row: int) -> list[Any]:
            return unravelled(first + g.at(row), found.extents, g.index_type)

        return _Rows(number, self._pixel if is_plain else 0, source, lead)

    def _in_line(self, panel: Any, image: Any, y: Any, x: Any, number: int) -> _Rows:
        """So many positions of row `y` of the results from column `x` on."""
        g, found = self._g, self._found
        group, _ = self._group_and_panel(panel)

        def source(row: int, i: Any, j: Any) -> Any:
            return self._place(image, y, x + g.at(row), i, j) + group * g.at(found.channels)

        def lead(row: int) -> list[Any]:
            return [image, y, x + g.at(row), *([] if found.kind == DENSE else [group])]

        return _Rows(number, found.columns.stride * self._pixel, source, lead)

    def _place(self, image: Any, y: Any, x: Any, i: Any, j: Any) -> Any:
        """The number of the element of the data that a position reads with a place of the kernel, in channel 0."""
        g, down, across = self._g, self._down.reach, self._across.reach
        line = y * g.at(down.stride) + g.at(i) * g.at(down.dilation) - g.at(down.before)
        pixel = x * g.at(across.stride) + g.at(j) * g.at(across.dilation) - g.at(across.before)
        return ((image * g.at(down.size) + line) * g.at(across.size) + pixel) * g.at(self._pixel)

    # ---- a tile ----

    def _tile(
        self, panel: Any, rows: _Rows, depth: Any, prefetched: tuple[int, Address | None] = (0, None)
    ) -> _Statement:
        """The sums of one place of the kernel, and what follows from them; of one depth, if there are several."""
        g, depths = self._g, self._tiling.depths
        steps = self._depth // depths
        products = self._products(panel, rows, range(rows.number), (0, 0, depth * g.at(steps)), steps, prefetched)
        if depths == 1:
            return sequence([*self._begun(rows), products, self._stored(panel, rows)])
        going_on = sequence(self._each(rows, panel, lambda row, column, at: [row, column, self._target[tuple(at)]]))
        keeping = sequence(self._each(rows, panel, lambda row, column, at: [None, at, self._sums[row][column]]))
        begun = tirx.IfThenElse(tirx.EQ(depth, g.at(0)), sequence(self._begun(rows)), going_on)
        is_last = tirx.EQ(depth, g.at(depths - 1))
        return sequence([begun, products, tirx.IfThenElse(is_last, self._stored(panel, rows), keeping)])

    def _each(self, rows: _Rows, panel: Any, moved: Callable[[int, Any, list[Any]], list[Any]]) -> list[_Statement]:
        """Move all sums of a tile from or to the results."""

        def body(row: int, column: Any) -> _Statement:
            at = [*rows.lead(row), panel * self._g.at(self._panel) + column]
            to, index, value = moved(row, column, at if self._epilogue is None else self._epilogue.indices_of(at))
            return tirx.BufferStore(self._target, value, index) if to is None else self._kept(to, index, value)

        return [self._vector(row, *each, body) for row in range(rows.number) for each in self._whole]

    def _begun(self, rows: _Rows) -> list[_Statement]:
        """Set the sums to zero."""
        zero = tirx.const(0.0, "float32")

        def body(row: int, column: Any) -> _Statement:
            return self._kept(row, column, zero)

        return [self._vector(row, *each, body) for row in range(rows.number) for each in self._whole]

    def _kept(self, row: int, column: Any, value: Any) -> _Statement:
        return tirx.BufferStore(self._sums[row], value, [column])

    def _through(self, panel: Any, rows: _Rows, i: Any, number: Any, runs: Sequence[Run]) -> _Statement:
        """The products with so many rows of the kernel, from `i` on."""
        g, channels = self._g, self._found.channels
        is_joined = self._across.reach.dilation == 1 and self._found.groups == 1

        def run(i: Any, each: Run) -> _Statement:
            if is_joined and isinstance(each.number, int):
                return self._products(panel, rows, each.rows, (i, each.first, 0), each.number * channels)

            def place(j: Any) -> _Statement:
                return self._products(panel, rows, each.rows, (i, each.first + j, 0), channels)

            return g.loop("j", each.number, place)

        return g.loop("i", number, lambda k: sequence([run(i + k, each) for each in runs]))

    def _products(
        self,
        panel: Any,
        rows: _Rows,
        which: Sequence[int],
        place: tuple[Any, Any, Any],
        steps: int,
        prefetched: tuple[int, Address | None] = (0, None),
    ) -> _Statement:
        """The products of some rows of a tile with so many weights, from a place of the kernel and a channel on."""
        g, (i, j, c), (lines, further) = self._g, place, prefetched
        is_even = rows.pitch > 0 and list(which) == list(range(which[0], which[0] + len(which)))
        at = (g.at(i) * g.at(self._across.reach.kernel) + g.at(j)) * g.at(self._found.channels) + c
        statements = []
        for start, number, unroll in self._split(steps):
            kernel = Kernel(
                self._instruction, len(which), self._tiling.vectors, number, unroll, adds=True, apart=True,
                pitch=WORD_BYTES * rows.pitch if is_even else 0, ahead=self._tiling.ahead, lines=0 if start else lines,
                ways=self._tiling.ways if unroll % self._tiling.ways == 0 else 1,
            )  # fmt: skip
            text = text_of(kernel)
            self._texts.append(text)
            read = [
                address(self._found.data, rows.source(row, i, j) + c + g.at(start)) for row in which[: kernel.addresses]
            ]
            weights = address(self._weights, (panel * g.at(self._depth) + at + g.at(start)) * g.at(self._panel))
            sums = [address(self._sums[row], g.at(0)) for row in which]
            statements.append(call_kernel(text.name, kernel, read, [weights], sums, None if start else further))
        return sequence(statements)

    def _split(self, steps: int) -> Iterator[tuple[int, int, int]]:
        """Calls of the micro-kernel for so many steps: where each begins, its steps, and those that are written out."""
        rest = steps % _UNROLL
        if steps > rest:
            yield 0, steps - rest, _UNROLL
        if rest:
            yield steps - rest, rest, rest

    def _turns(self, steps: int) -> int:
        """The turns of the first call."""
        _, number, unroll = next(self._split(steps))
        return number // unroll

    def _lines_ahead(self, tiles: int) -> int:
        """Cache lines that each turn of several tiles prefetches, so that they prefetch a depth of a panel together.

        Weights come from memory, which takes as long as the products do.  A core has about a dozen misses in flight at
        once, and stalls on more: with more than a line for a step, nothing is won, and none is prefetched.
        """
        steps = self._depth // self._tiling.depths
        lines = -(-steps * self._panel * WORD_BYTES // LINE_BYTES)
        each = -(-lines // (tiles * self._turns(steps)))
        _, _, unroll = next(self._split(steps))
        return each if each <= unroll and tiles > 1 and not self._tiling.ahead else 0

    def _stored(self, panel: Any, rows: _Rows) -> _Statement:
        """Store what follows from the sums, but not that of the zeros that fill up the last panel."""
        g, found = self._g, self._found
        _, number = self._group_and_panel(panel)

        def end(row: int, column: Any) -> _Statement:
            value = self._sums[row][column] if self._is_wide else self._results[row, column]
            at = [*rows.lead(row), number * g.at(self._panel) + column]
            if self._epilogue is None:
                return tirx.BufferStore(found.result, value, at)
            return self._epilogue.store(value, at)

        def stores(spots: Sequence[tuple[int, int]]) -> _Statement:
            kind = tirx.ForKind.VECTORIZED if self._is_wide else tirx.ForKind.SERIAL
            return sequence([self._vector(row, *each, end, kind) for row in range(rows.number) for each in spots])

        valid = found.filters - (self._panels - 1) * self._panel
        statement = stores(self._whole if self._panels > 1 or valid == self._panel else pieces(valid, g.lanes))
        if valid < self._panel and self._panels > 1:
            is_filled = number < g.at(self._panels - 1)
            statement = tirx.IfThenElse(is_filled, statement, stores(pieces(valid, g.lanes)))
        if self._is_wide:
            return statement

        def aside(row: int, column: Any) -> _Statement:
            return tirx.BufferStore(self._results, self._sums[row][column], [g.at(row), column])

        vectors = [self._vector(row, *each, aside) for row in range(rows.number) for each in self._whole]
        return sequence([*vectors, statement])

    @property
    def _whole(self) -> list[tuple[int, int]]:
        """The vectors of a row, one a statement: LLVM splits up a vector of 3 x 16 lanes."""
        return [(start, self._g.lanes) for start in range(0, self._panel, self._g.lanes)]

    def _vector(
        self,
        row: int,
        start: int,
        lanes: int,
        body: Callable[[int, Any], _Statement],
        kind: int = tirx.ForKind.VECTORIZED,
    ) -> _Statement:
        """A statement for so many columns of a row, from `start` on."""
        g = self._g
        return g.loop("lane", lanes, lambda lane: body(row, lane + g.at(start) if start else lane), kind)
