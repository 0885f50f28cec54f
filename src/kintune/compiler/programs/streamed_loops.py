"""The loops of a sum with few positions: weights are read once, one vector after the other as they lie in memory.

The weights of all places of the kernel and all channels are packed in panels [depth, panel] of the filters that are
computed at once.  All sums of a tile, some positions by some vectors of filters, stay in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.contraction import Contraction, Reach
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.indexing import Vectors
from kintune.compiler.programs.kernel_writer import pieces
from kintune.compiler.programs.loop_blocks import block_in_loops, computing_block, whole
from kintune.compiler.programs.loops import sequence
from kintune.compiler.programs.prefetching import LINE_VALUES, ask_for
from kintune.compiler.programs.product_tiles import position_of
from kintune.compiler.programs.stages import Stages
from kintune.compiler.space.packing import PACKS

__all__ = ["Live", "Streaming", "live_part", "stream_sum"]

_STEP = 4
"""Values of a sum that are taken in one turn of the innermost loop, at least."""

_SHORT = 16
"""With fewer channels than this, places of the kernel are joined to one loop."""

_MOST_RUNS = 16
"""Parts of the kernel that are written out, at most, so that data need not be copied with zeros around."""


class Streaming(NamedTuple):
    """Tiles of `rows` positions by `vectors` of filters; `parts` of the panels are the tasks.

    Each result has `ways` independent sums.  Weights are prefetched `ahead` bytes before they are read; with 0 they are
    not prefetched.
    """

    rows: int
    vectors: int
    ways: int
    parts: int
    ahead: int


class Live(NamedTuple):
    """What a sum reads along one axis, without the places of the kernel that meet only zeros at its start and end.

    `first` is the first place of the kernel that is left.  `reach.before` is negative where the first position reads
    the image from a later place on.
    """

    reach: Reach
    first: int

    @property
    def extent(self) -> int:
        """The extent of what is read."""
        reach = self.reach
        return (reach.results - 1) * reach.stride + (reach.kernel - 1) * reach.dilation + 1

    @property
    def is_inside(self) -> bool:
        """Whether all that is read lies in the image."""
        return self.reach.before <= 0 and self.extent - self.reach.before <= self.reach.size


class _Run(NamedTuple):
    """Places of the kernel, in its row `i` from `first` on, that meet the image at the same positions."""

    i: int
    first: int
    number: int
    positions: tuple[int, ...]


def _meets(reach: Reach, position: int, place: int) -> bool:
    return 0 <= position * reach.stride + place * reach.dilation - reach.before < reach.size


def live_part(reach: Reach) -> Live:
    """The places of the kernel from the first to the last that meets the image at some position."""
    places = [
        place
        for place in range(reach.kernel)
        if any(_meets(reach, position, place) for position in range(reach.results))
    ]
    first, last = (places[0], places[-1]) if places else (0, 0)
    kept = reach._replace(kernel=last - first + 1, before=reach.before - first * reach.dilation)
    return Live(kept, first)


def stream_sum(found: Contraction, lanes: int, streaming: Streaming, epilogue: Epilogue | None) -> Stages:
    """The statements that compute the sum, or the epilogue of it."""
    return _Streamed(found, lanes, streaming, epilogue).stages()


class _Streamed:
    def __init__(self, found: Contraction, lanes: int, streaming: Streaming, epilogue: Epilogue | None) -> None:
        self._found, self._streaming, self._epilogue = found, streaming, epilogue
        self._g = g = Vectors(lanes, found.index_type)
        self._y, self._x = live_part(found.rows), live_part(found.columns)
        self._is_inside = self._y.is_inside and self._x.is_inside
        self._panel = streaming.vectors * lanes
        self._panels = -(-found.filters // self._panel)
        self._groups = -(-found.positions // streaming.rows)
        self._depth = self._y.reach.kernel * self._x.reach.kernel * found.channels
        self._weights = g.buffer("panels", self._panels, self._depth, self._panel)
        self._runs = [] if self._is_inside or self._groups > 1 else self._met()
        self._is_copied = not self._is_inside and not self._runs
        self._image = g.buffer("image", found.images, self._y.extent, self._x.extent, found.channels)
        self._sums = [
            [g.buffer(f"sums{row}_{way}", self._panel) for way in range(streaming.ways)]
            for row in range(streaming.rows)
        ]
        self._results = g.buffer("results", streaming.rows, self._panel)

    def stages(self) -> Stages:
        found, g, parts = self._found, self._g, self._streaming.parts
        own = [*(each for ways in self._sums for each in ways), self._results]
        computing = computing_block(
            "streamed",
            found,
            self._epilogue,
            [("only", 1), ("part", parts)],
            lambda _only, part: self._task(part),
            g,
            weights=self._weights,
            buffers=[*own, self._image] if self._is_copied else own,
        )
        if parts == 1:
            computing = tirx.For(
                computing.loop_var, computing.min, computing.extent, tirx.ForKind.SERIAL, computing.body
            )
        return Stages([self._packing(), computing], [self._weights])

    def _packing(self) -> Any:
        found, g = self._found, self._g
        across, channels = g.at(self._x.reach.kernel), g.at(found.channels)

        def packed(o: Any, k: Any, f: Any) -> Any:
            place, channel = tirx.floordiv(k, channels), tirx.floormod(k, channels)
            i = tirx.floordiv(place, across) + g.at(self._y.first)
            j = tirx.floormod(place, across) + g.at(self._x.first)
            column = o * g.at(self._panel) + f
            value = found.weight(i, j, channel, column)
            if found.filters % self._panel:
                value = tirx.if_then_else(column < g.at(found.filters), value, tirx.const(0.0, "float32"))
            return tirx.BufferStore(self._weights, value, [o, k, f])

        return block_in_loops(
            "panel_weights",
            [("o", self._panels), ("k", self._depth), ("f", self._panel)],
            packed,
            g,
            reads=lambda o, k, f: [whole(found.weights)],
            writes=lambda o, k, f: [(self._weights, [(o, 1), (k, 1), (f, 1)])],
            annotations={PACKS: True},
        )

    def _framing(self) -> Any:
        """Copy the part of the images that is read, with zeros around."""
        found, g = self._found, self._g

        def at(place: Any, live: Live) -> tuple[Any, Any]:
            inside = place - g.at(live.reach.before)
            return inside, tirx.And(inside >= g.at(0), inside < g.at(live.reach.size))

        def copy(n: Any, a: Any, b: Any) -> Any:
            (y, is_row), (x, is_column) = at(a, self._y), at(b, self._x)

            def filled(value: Callable[[Any], Any]) -> Any:
                return self._loop(
                    "channel", found.channels, lambda c: tirx.BufferStore(self._image, value(c), [n, a, b, c])
                )

            copied = filled(lambda c: found.data[n, y, x, c])
            return tirx.IfThenElse(tirx.And(is_row, is_column), copied, filled(lambda c: tirx.const(0.0, "float32")))

        return self._loop(
            "n",
            found.images,
            lambda n: self._loop(
                "a", self._y.extent, lambda a: self._loop("b", self._x.extent, lambda b: copy(n, a, b))
            ),
        )

    def _task(self, part: Any) -> Any:
        """All tiles of a part of the panels, one panel after the other."""
        g, parts = self._g, self._streaming.parts
        own = -(-self._panels // parts)
        first = part * g.at(own)
        number: Any = own
        if self._panels % own:
            number = tirx.min(g.at(own), g.at(self._panels) - first)

        def panel(o: Any) -> Any:
            return self._loop("group", self._groups, lambda group: self._tile(first + o, group))

        panels = self._loop("panel", number, panel)
        return sequence([self._framing(), panels]) if self._is_copied else panels

    def _tile(self, panel: Any, group: Any) -> Any:
        """The sums of one panel and the positions of a group, and what follows from them."""
        g, found, streaming = self._g, self._found, self._streaming
        first, last = group * g.at(streaming.rows), g.at(found.positions - 1)
        is_cut = found.positions % streaming.rows != 0
        rows = [first + g.at(row) for row in range(streaming.rows)]
        places = [self._place(tirx.min(row, last) if is_cut else row) for row in rows]
        begin = [self._zero(each) for ways in self._sums for each in ways]
        end = [self._added(row, ways) for row, ways in enumerate(self._sums)]
        valid: Any = streaming.rows
        if is_cut:
            valid = tirx.min(g.at(streaming.rows), g.at(found.positions) - first)
        stored = self._loop("row", valid, lambda row: self._stored(panel, first + row, row))
        return sequence([*begin, self._products(panel, group, places), *end, stored])

    def _zero(self, sums: Any) -> Any:
        return self._vectors(lambda column: _store(sums, tirx.const(0.0, "float32"), column))

    def _added(self, row: int, ways: Sequence[Any]) -> Any:
        """Store the total of all ways of a row of the tile in its results."""

        def store(column: Any) -> Any:
            total = _total([each[column] for each in ways])
            return tirx.BufferStore(self._results, total, [self._g.at(row), column])

        return self._vectors(store)

    def _products(self, panel: Any, group: Any, places: Sequence[Callable[..., list[Any]]]) -> Any:
        """Add the products of all places of the kernel and all channels to the sums."""
        g, down = self._g, self._y.reach.kernel
        if not self._runs:
            every = range(len(places))
            across = self._x.reach.kernel
            return self._loop("i", down, lambda i: self._run(panel, group, places, every, i, 0, across))
        return sequence(
            [self._run(panel, group, places, run.positions, g.at(run.i), run.first, run.number) for run in self._runs]
        )

    def _run(
        self,
        panel: Any,
        group: Any,
        places: Sequence[Callable[..., list[Any]]],
        rows: Sequence[int],
        i: Any,
        first: int,
        number: int,
    ) -> Any:
        """The products of some places in row `i` of the kernel, from `first` on, with some rows of the tile."""
        g, channels = self._g, self._found.channels
        is_joined = number > 1 and channels < _SHORT and self._x.reach.dilation == 1
        start = i * g.at(self._x.reach.kernel)

        def products(j: Any, length: int) -> Any:
            def value(q: Any, way: int) -> Any:
                at = (j + tirx.floordiv(q, g.at(channels)), tirx.floormod(q, g.at(channels))) if is_joined else (j, q)
                sources = {row: places[row](i, *at) for row in rows}
                return self._value(panel, group, (start + j) * g.at(channels) + q, sources, way)

            return self._turns(length, value)

        if is_joined:
            return products(g.at(first), number * channels)
        return self._loop("j", number, lambda j: products(g.at(first) + j, channels))

    def _met(self) -> list[_Run]:
        """The runs of places of the kernel that meet the image at the same positions; none where these are too many."""
        runs: list[_Run] = []
        spots = list(itertools.product(*(range(extent) for extent in self._found.extents)))
        for i, j in itertools.product(range(self._y.reach.kernel), range(self._x.reach.kernel)):
            met = tuple(
                row
                for row, (_, down, right) in enumerate(spots)
                if _meets(self._y.reach, down, i) and _meets(self._x.reach, right, j)
            )
            last = runs[-1] if runs else None
            if last is not None and (last.i, last.positions) == (i, met):
                runs[-1] = last._replace(number=last.number + 1)
            else:
                runs.append(_Run(i, j, 1, met))
        kept = [run for run in runs if run.positions]
        return kept if len(kept) <= _MOST_RUNS else []

    def _turns(self, length: int, value: Callable[[Any, int], Any]) -> Any:
        """Loop over all values of a run, several in each turn; consecutive values go to different ways."""
        g, ways = self._g, self._streaming.ways
        step = ways * -(-_STEP // ways)
        whole_turns, rest = divmod(length, step)

        def turn(number: Any, values: int) -> Any:
            return sequence([value(number + g.at(each), each % ways) for each in range(values)])

        statements = []
        if whole_turns:
            statements.append(self._loop("turn", whole_turns, lambda t: turn(t * g.at(step), step)))
        if rest:
            statements.append(turn(g.at(whole_turns * step), rest))
        return sequence(statements)

    def _value(self, panel: Any, group: Any, k: Any, sources: Mapping[int, list[Any]], way: int) -> Any:
        """Add the products of one value of each position with a row of the panel, and prefetch a later row."""
        source = self._image if self._is_copied else self._found.data
        statements = self._ahead(panel, group, k)
        for row, indices in sources.items():
            target = self._sums[row][way]

            def product(column: Any, target: Any = target, indices: list[Any] = indices) -> Any:
                return _store(target, target[column] + source[tuple(indices)] * self._weights[panel, k, column], column)

            statements.append(self._vectors(product))
        return sequence(statements)

    def _ahead(self, panel: Any, group: Any, k: Any) -> list[Any]:
        """Prefetch weights at a fixed distance; where several groups read a panel, each its share of the next one."""
        g, lines = self._g, self._panel // LINE_VALUES
        if not self._streaming.ahead or not lines:
            return []
        if self._groups == 1:
            further = -(-self._streaming.ahead // (self._panel * 4))
            places = [(panel, k + g.at(further), g.at(line * LINE_VALUES)) for line in range(lines)]
        else:
            each = -(-lines // self._groups)
            first = group * g.at(each)
            columns = [tirx.min(first + g.at(line), g.at(lines - 1)) * g.at(LINE_VALUES) for line in range(each)]
            places = [(panel + g.at(1), k, column) for column in columns]
        return [ask_for(self._weights, place) for place in places]

    def _place(self, row: Any) -> Callable[..., list[Any]]:
        """A function from a place (i, j) of the kernel and a channel to the indices of what the position reads."""
        found, g, y, x = self._found, self._g, self._y.reach, self._x.reach
        if found.is_matrix:
            lead = position_of([int(extent) for extent in found.data.shape[:-1]], row, g)
            return lambda _i, _j, c: [*lead, c]
        image, down, right = position_of(found.extents, row, g)
        top = down * g.at(y.stride) - g.at(0 if self._is_copied else y.before)
        left = right * g.at(x.stride) - g.at(0 if self._is_copied else x.before)
        return lambda i, j, c: [image, top + i * g.at(y.dilation), left + j * g.at(x.dilation), c]

    def _stored(self, panel: Any, position: Any, row: Any) -> Any:
        """Store what follows from the sums of one position and a panel."""
        found, g, vectors = self._found, self._g, self._streaming.vectors
        lead = position_of(found.extents, position, g)
        is_vectorised = self._epilogue is None or self._epilogue.is_vectorised
        kind = tirx.ForKind.VECTORIZED if is_vectorised else tirx.ForKind.SERIAL

        def vector(v: Any, start: int, lanes: int) -> Any:
            def lane(each: Any) -> Any:
                column = v * g.at(g.lanes) + g.at(start) + each
                value, at = self._results[row, column], [*lead, panel * g.at(self._panel) + column]
                if self._epilogue is None:
                    return tirx.BufferStore(found.result, value, at)
                return self._epilogue.store(value, at)

            return self._loop("lane", lanes, lane, kind)

        def stored(v: Any) -> Any:
            rest = found.filters % g.lanes
            if not found.filters % self._panel:
                return vector(v, 0, g.lanes)
            first = panel * g.at(self._panel) + v * g.at(g.lanes)
            some = sequence([vector(v, start, lanes) for start, lanes in pieces(rest, g.lanes)]) if rest else None
            if found.filters < g.lanes:
                return tirx.IfThenElse(first < g.at(found.filters), some, None)
            partly = tirx.IfThenElse(first < g.at(found.filters), some, None) if rest else None
            return tirx.IfThenElse(first < g.at(found.filters - rest), vector(v, 0, g.lanes), partly)

        return self._loop("v", vectors, stored)

    def _vectors(self, body: Callable[[Any], Any]) -> Any:
        """Statements for all columns of a panel, one a vector: LLVM splits up a vector of 3 x 16 lanes."""
        g, statements = self._g, []
        for start in range(0, self._panel, g.lanes):
            lane = tirx.Var("lane", g.index_type)
            column = lane if start == 0 else lane + g.at(start)
            statements.append(tirx.For(lane, g.at(0), g.at(g.lanes), tirx.ForKind.VECTORIZED, body(column)))
        return sequence(statements)

    def _loop(self, name: str, extent: Any, body: Callable[[Any], Any], kind: int = tirx.ForKind.SERIAL) -> Any:
        g = self._g
        if isinstance(extent, int) and extent == 1:
            return body(g.at(0))
        variable = tirx.Var(name, g.index_type)
        return tirx.For(variable, g.at(0), g.at(extent), kind, body(variable))


def _store(buffer: Any, value: Any, column: Any) -> Any:
    return tirx.BufferStore(buffer, value, [column])


def _total(values: list[Any]) -> Any:
    """The sum of values, by pairs."""
    while len(values) > 1:
        pairs = [values[at : at + 2] for at in range(0, len(values), 2)]
        values = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return values[0]
