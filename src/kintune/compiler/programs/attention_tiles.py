"""Attention with many queries: a task is a block of queries of one head, in vectors of queries.

For each block of keys, the scores are computed in a register tile of some keys by some vectors of queries, from the
transposed queries of the block; so maxima and sums over keys are of whole vectors.  The softmax is computed online
(Milakov and Gimelshein 2018; Dao et al. 2022): the largest score so far and the sum of exponentials are kept of each
query, and what was added up before is scaled down when the largest grows.

A block has no part outside of the matrix.  The last block, and the last vector of a block, begin earlier instead, and
compute some queries twice.  For open extents, the last query or key is computed again in place of what lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.loops import index
from kintune.compiler.kernels.statements import ceildiv
from kintune.compiler.programs.attention_pattern import Access, AttentionPattern, element, place, scored
from kintune.compiler.programs.kernel_writer import (
    alloc,
    bind,
    conditional,
    load,
    repeat,
    store,
    store_vector,
    tasks,
    tiles,
    transposed,
    vector,
)
from kintune.compiler.programs.powers import power_of_e

__all__ = ["LOWEST", "Blocking", "factor_of", "finished", "write_tiles"]

LOWEST = -3.4028234663852886e38
"""The value from which the maximum of scores starts: the least finite float32."""

_NO_SUM = 0.5
"""A sum of exponentials below this is that of a row whose scores are all excluded: else the largest one adds 1."""


class Blocking(NamedTuple):
    """How the work is cut: vectors of queries a task, keys a block, and register tiles.

    A tile of scores has `score_rows` keys by `score_vectors` vectors of queries.  A tile of the result has `mix_rows`
    by `mix_vectors`: queries by vectors of the width, or with `across` places of the width by vectors of queries.
    """

    queries: int
    keys: int
    score_rows: int
    score_vectors: int
    mix_rows: int
    mix_vectors: int
    across: bool


def write_tiles(function: Any, pattern: AttentionPattern, lanes: int, blocking: Blocking, *, most: int = 0) -> Any:
    """A module whose `main` computes the attention of `function` in blocks, in vectors of so many `lanes`.

    The pattern must have at least as many queries as a vector has lanes, and unless the blocking is `across` also a
    width of as many.  If there may be up to `most` queries, the statements are the same for any number of queries and
    keys.
    """
    blocks = -(-(most or pattern.rows) // (blocking.queries * lanes))
    kind = _OpenTask if most else _Task
    return tasks(
        function,
        pattern.heads * blocks,
        "attention",
        lambda buffers, task: kind(buffers, pattern, lanes, blocking, blocks).write(task),
        result=pattern.result.parameter,
        is_open=most > 0,
    )


class _Task:
    def __init__(self, buffers: Any, pattern: AttentionPattern, lanes: int, blocking: Blocking, blocks: int) -> None:
        self.buffers, self.pattern, self.lanes, self.blocking = buffers, pattern, lanes, blocking
        self.blocks, self.rows = blocks, max(-(-pattern.rows // blocks), lanes)
        self.vectors: Any = -(-self.rows // self.lanes)
        self.wide = -(-pattern.width // self.lanes)
        self.batch: list[Any] = []
        self.start: Any = 0

    def write(self, task: Any) -> None:
        pattern = self.pattern
        keys, number = self._begin_task(task)
        across = self.blocking.across
        self.query = alloc("query", pattern.depth, number)
        self.scores = alloc("scores", keys, number)
        self.result = alloc("mixed", *((pattern.width, number) if across else (number, self.wide * self.lanes)))
        self.most, self.total = alloc("most", number), alloc("total", number)
        self.block_most, self.shrink = alloc("block_most", number), alloc("shrink", number)
        most = max(self.blocking.score_rows, self.blocking.mix_rows)
        width = max(self.blocking.score_vectors, self.blocking.mix_vectors) * self.lanes
        self.tile = [alloc(f"tile_{i}", width) for i in range(most)]
        self.new, self.sum = alloc("new_most", self.lanes), alloc("sum", self.lanes)
        self._pack()
        self._begin()
        self._blocks()
        self._invert()
        self._finish()

    @property
    def queries(self) -> Any:
        """The queries of a block, in whole vectors."""
        return self.vectors * self.lanes

    def _begin_task(self, task: Any) -> tuple[int, int]:
        """Say what a task computes; returns the keys and queries that its buffers have room for."""
        head = task // self.blocks if self.blocks > 1 else task
        self.batch = self.pattern.batch_of(head)
        if self.blocks > 1:
            self.start = tirx.min(task % self.blocks * self.rows, self.pattern.rows - self.rows)
        return min(self.blocking.keys, self.pattern.columns), self.queries

    def _query(self, index: Any, lane: Any) -> Any:
        """The query of a lane of a vector of the block."""
        begin = index * self.lanes
        if self.queries > self.rows:
            last = self.rows - self.lanes
            begin = min(begin, last) if isinstance(begin, int) else tirx.min(begin, last)
        return begin + self.start + lane

    def _column(self, first: Any, key: Any) -> Any:
        """The column of a key of a block that begins at `first`."""
        return first + key

    def _read(self, access: Access, row: Any = 0, column: Any = 0, depth: Any = 0, width: Any = 0) -> Any:
        return element(self.buffers, access, (*self.batch, row, column, depth, width))

    def _pack(self) -> None:
        """The block's queries, scaled, with queries side by side."""
        pattern, lanes = self.pattern, self.lanes
        scale = tirx.const(pattern.scale, "float32")
        if pattern.depth % lanes == 0 and pattern.query.is_contiguous(pattern.row + 2):
            with repeat(self.vectors, "group") as group, repeat(pattern.depth // lanes, "part") as part:
                rows = [
                    load(
                        self.buffers[pattern.query.parameter],
                        place(pattern.query, (*self.batch, self._query(group, i), 0, part * lanes, 0)),
                        lanes,
                    )
                    for i in range(lanes)
                ]
                for i, column in enumerate(transposed(rows)):
                    store_vector(self.query, column * tirx.Broadcast(scale, lanes), [part * lanes + i, group * lanes])
            return
        groups, depths = repeat(self.vectors, "group"), repeat(self.pattern.depth, "depth")
        with groups as group, depths as depth, vector(self.lanes) as lane:
            value = self._read(self.pattern.query, self._query(group, lane), depth=depth)
            store(self.query, value * scale, depth, group * self.lanes + lane)

    def _begin(self) -> None:
        zero = tirx.const(0, "float32")
        with repeat(self.vectors, "group") as group, vector(self.lanes) as lane:
            store(self.most, tirx.const(LOWEST, "float32"), group * self.lanes + lane)
        with repeat(self.vectors, "group") as group, vector(self.lanes) as lane:
            store(self.total, zero, group * self.lanes + lane)
        rows, groups = self._result_tiles()
        with repeat(rows, "row") as row, repeat(groups, "group") as group, vector(self.lanes) as lane:
            store(self.result, zero, row, group * self.lanes + lane)

    def _blocks(self) -> None:
        pattern, keys = self.pattern, min(self.blocking.keys, self.pattern.columns)
        whole, rest = divmod(pattern.columns, keys)
        shift = pattern.shift
        if shift is None:
            with repeat(whole, "block") as block:
                self._block(block * keys, keys)
            if rest:
                self._block(whole * keys, rest)
            return
        seen = self.start + (self.rows + shift)
        needed = (seen + (keys - 1)) // keys
        number = tirx.min(needed, whole) if not isinstance(needed, int) else min(needed, whole)
        with repeat(number, "block") as block:
            self._block(block * keys, keys)
        if rest and isinstance(seen, int):
            if seen > whole * keys:
                self._block(whole * keys, rest)
        elif rest:
            with conditional(seen > whole * keys):
                self._block(whole * keys, rest)

    def _block(self, first: Any, keys: int) -> None:
        """Add a block of keys and values to the running maxima, sums and results."""
        lanes = self.lanes
        with repeat(self.vectors, "group") as group, vector(lanes) as lane:
            store(self.block_most, tirx.const(LOWEST, "float32"), group * lanes + lane)
        for key_loop, height in self._key_tiles(keys):
            with key_loop() as key:
                for group_loop, width in tiles(self.vectors, self.blocking.score_vectors):
                    with group_loop() as group:
                        self._score(first, key, height, group, width)
        self._softmax(keys)
        rows, groups = self._result_tiles()
        for row_loop, height in tiles(rows, self.blocking.mix_rows):
            with row_loop() as row:
                for group_loop, width in tiles(groups, self.blocking.mix_vectors):
                    with group_loop() as group:
                        self._mix(first, keys, row, height, group, width)

    def _key_tiles(self, keys: Any) -> Iterable[tuple[Callable[[], Any], int]]:
        """The loops over tiles of so many keys, and how many keys a tile has."""
        return tiles(keys, self.blocking.score_rows)

    def _result_tiles(self) -> tuple[Any, Any]:
        """The rows of the result, and the vectors of a row."""
        return (self.pattern.width, self.vectors) if self.blocking.across else (self.queries, self.wide)

    def _each(self, height: int, width: int, value: Callable[[int, int, Any], Any]) -> None:
        """Store the `value(row, number, lane)` of each vector of a register tile in it."""
        for i, u in product(range(height), range(width)):
            with vector(self.lanes) as lane:
                store(self.tile[i], value(i, u, lane), u * self.lanes + lane)

    def _score(self, first: Any, key: Any, height: int, group: Any, width: int) -> None:
        lanes = self.lanes

        def multiplied(i: int, u: int, lane: Any) -> Any:
            keys = self._read(self.pattern.key, column=self._column(first, key + i), depth=depth)
            return self.tile[i][u * lanes + lane] + keys * self.query[depth, (group + u) * lanes + lane]

        self._each(height, width, lambda *_: tirx.const(0, "float32"))
        with repeat(self.pattern.depth, "depth") as depth:
            self._each(height, width, multiplied)
        for u in range(width):
            if self.pattern.steps:
                for i in range(height):
                    with vector(lanes) as lane:
                        at = (*self.batch, self._query(group + u, lane), self._column(first, key + i), 0, 0)
                        score, read = self.tile[i][u * lanes + lane], partial(element, self.buffers)
                        store(self.tile[i], scored(self.pattern, score, at, read), u * lanes + lane)
            with vector(lanes) as lane:
                most = self.block_most[(group + u) * lanes + lane]
                for i in range(height):
                    most = tirx.max(most, self.tile[i][u * lanes + lane])
                store(self.block_most, most, (group + u) * lanes + lane)
            for i in range(height):
                with vector(lanes) as lane:
                    store(self.scores, self.tile[i][u * lanes + lane], key + i, (group + u) * lanes + lane)

    def _softmax(self, keys: int) -> None:
        """Scores become exponentials; what was added up before is scaled down later, by `shrink`."""
        lanes = self.lanes
        with repeat(self.vectors, "group") as group:
            with vector(lanes) as lane:
                store(self.new, tirx.max(self.most[group * lanes + lane], self.block_most[group * lanes + lane]), lane)
            with vector(lanes) as lane:
                shrink = power_of_e(self.most[group * lanes + lane] - self.new[lane])
                store(self.shrink, shrink, group * lanes + lane)
            with vector(lanes) as lane:
                store(self.most, self.new[lane], group * lanes + lane)
            with vector(lanes) as lane:
                store(self.sum, self.total[group * lanes + lane] * self.shrink[group * lanes + lane], lane)
            with repeat(keys, "key") as key:
                with vector(lanes) as lane:
                    power = power_of_e(self.scores[key, group * lanes + lane] - self.new[lane])
                    store(self.scores, power, key, group * lanes + lane)
                with vector(lanes) as lane:
                    store(self.sum, self.sum[lane] + self.scores[key, group * lanes + lane], lane)
            with vector(lanes) as lane:
                store(self.total, self.sum[lane], group * lanes + lane)

    def _mix(self, first: Any, keys: int, row: Any, height: int, group: Any, width: int) -> None:
        """Add a block's values to a tile: queries by vectors of the width, or places of that by vectors of queries."""
        lanes, across = self.lanes, self.blocking.across

        def shrunk(i: int, u: int, lane: Any) -> Any:
            at = (group + u) * lanes + lane
            return self.result[row + i, at] * self.shrink[at if across else row + i]

        def added(i: int, u: int, lane: Any) -> Any:
            if across:
                value = self._read(self.pattern.value, column=first + key, width=row + i)
                return self.tile[i][u * lanes + lane] + value * self.scores[key, (group + u) * lanes + lane]
            value = self._read(self.pattern.value, column=first + key, width=self._width_of(group + u) + lane)
            return self.tile[i][u * lanes + lane] + self.scores[key, row + i] * value

        self._each(height, width, shrunk)
        with repeat(keys, "key") as key:
            self._each(height, width, added)
        for i, u in product(range(height), range(width)):
            with vector(lanes) as lane:
                store(self.result, self.tile[i][u * lanes + lane], row + i, (group + u) * lanes + lane)

    def _width_of(self, index: Any) -> Any:
        """Where a vector of the width begins; the last one begins earlier where it would not fit."""
        begin, last = index * self.lanes, self.pattern.width - self.lanes
        if self.pattern.width % self.lanes == 0:
            return begin
        return min(begin, last) if isinstance(begin, int) else tirx.min(begin, last)

    def _invert(self) -> None:
        """Replace each query's sum of exponentials by the factor of its sum of values (`factor_of`)."""
        with repeat(self.vectors, "group") as group, vector(self.lanes) as lane:
            row = self._query(group, lane)
            blank = None if self.pattern.blank is None else self._read(self.pattern.blank, row)
            at = group * self.lanes + lane
            store(self.total, factor_of(self.pattern, self.total[at], blank), at)

    def _finish(self) -> None:
        lanes, result = self.lanes, self.pattern.result
        output = self.buffers[result.parameter]
        with repeat(self.vectors, "group") as group, repeat(lanes, "query") as lane:
            at, row = group * lanes + lane, self._query(group, lane)
            if self.blocking.across:
                with repeat(self.pattern.width, "width") as width:
                    place_of = place(result, (*self.batch, row, 0, 0, width))
                    store(output, finished(self.pattern, self.result[width, at], self.total[at]), *place_of)
                return
            with repeat(self.wide, "part") as part, vector(lanes) as inner:
                place_of = place(result, (*self.batch, row, 0, 0, self._width_of(part) + inner))
                value = finished(self.pattern, self.result[at, part * lanes + inner], self.total[at])
                store(output, value, *place_of)


class _OpenTask(_Task):
    """A block of any number of queries, which is known when the task begins, as is that of keys."""

    def _begin_task(self, task: Any) -> tuple[int, int]:
        """Bind the numbers, and say what a task computes."""
        pattern, lanes = self.pattern, self.lanes
        if not self.blocking.across:  # vectors of queries are whole tiles
            self.blocking = self.blocking._replace(
                mix_rows=math.gcd(lanes, 1 << self.blocking.mix_rows.bit_length() - 1)
            )
        self.rows, columns = bind(index(pattern.rows)), bind(index(pattern.columns))
        self.batch, block = pattern.batch_of(task // self.blocks), task % self.blocks
        first, end = ((block + i) * ceildiv(self.rows, lanes) // self.blocks for i in (0, 1))
        self.start, most = bind(first * lanes), self.blocking.queries
        self.vectors = bind(tirx.max(tirx.min(end - first, index(most)), index(0)))  # always is, which is shown easily
        shift = pattern.shift
        self.end = columns if shift is None else bind(tirx.min(columns, self.start + self.queries + shift))
        tile = max(self.blocking.score_vectors, self.blocking.mix_vectors if self.blocking.across else 1)
        keys = ceildiv(self.blocking.keys, self.blocking.score_rows) * self.blocking.score_rows
        return keys, (most + tile - 1) * lanes

    def _query(self, place: Any, lane: Any) -> Any:
        return tirx.min(place * self.lanes + self.start + lane, self.rows - 1)

    def _column(self, first: Any, key: Any) -> Any:
        return tirx.min(first + key, self.end - 1)

    def _blocks(self) -> None:
        keys = self.blocking.keys
        with repeat(ceildiv(self.end, keys), "block") as block:
            self._block(block * keys, bind(tirx.min(index(keys), self.end - block * keys)))

    def _key_tiles(self, keys: Any) -> Iterable[tuple[Callable[[], Any], int]]:
        """Tiles of one size, the last of which has the last column several times."""
        return tiles(keys, self.blocking.score_rows, beyond=True)


def factor_of(pattern: AttentionPattern, total: Any, blank: Any) -> Any:
    """What the sum of values of a row is multiplied by: one over `total`, its sum of exponentials.

    Where all scores of the row are excluded, this is NaN, as a plain softmax gives, or zero with `zero_nan`.  It is
    zero where `blank` is true.
    """
    one, zero = tirx.const(1, "float32"), tirx.const(0, "float32")
    if pattern.zero_nan:
        factor = tirx.Select(total >= tirx.const(_NO_SUM, "float32"), one / total, zero)
    else:
        none = tirx.const(math.nan, "float32")
        factor = tirx.Select(total < tirx.const(_NO_SUM, "float32"), none, one / total)
    return factor if blank is None else tirx.Select(blank, zero, factor)


def finished(pattern: AttentionPattern, mixed: Any, factor: Any) -> Any:
    """An element of the result: `mixed * factor`, or zero where the factor is zero, even if `mixed` is not finite."""
    if not pattern.zero_nan and pattern.blank is None:
        return mixed * factor
    zero = tirx.const(0, "float32")
    return tirx.Select(factor == zero, zero, mixed * factor)
