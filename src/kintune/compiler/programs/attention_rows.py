"""Attention with few queries, as in a step of decoding: a task is one query of one head.

Each key and value is used once, so that the bandwidth of memory limits the speed.  Both are read in the order in which
they lie.  The scores of a query fit the caches; the softmax is computed of the whole row at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.loops import pieces
from kintune.compiler.programs.attention_pattern import Access, AttentionPattern, element, place, scored
from kintune.compiler.programs.attention_tiles import LOWEST, factor_of, finished
from kintune.compiler.programs.kernel_writer import alloc, repeat, store, tasks, tiles, vector
from kintune.compiler.programs.powers import power_of_e

__all__ = ["RowBlocking", "write_rows"]


class RowBlocking(NamedTuple):
    """How the work is cut: keys whose scores are computed at once, and vectors of the result."""

    keys: int
    vectors: int


def write_rows(function: Any, pattern: AttentionPattern, lanes: int, blocking: RowBlocking) -> Any:
    """A module whose `main` computes the attention of `function` row by row, in vectors of so many `lanes`."""
    return tasks(
        function,
        pattern.heads * pattern.rows,
        "attention",
        lambda buffers, task: _Row(buffers, pattern, lanes, blocking).write(task),
        result=pattern.result.parameter,
    )


class _Row:
    def __init__(self, buffers: Any, pattern: AttentionPattern, lanes: int, blocking: RowBlocking) -> None:
        self.buffers, self.pattern, self.lanes, self.blocking = buffers, pattern, lanes, blocking
        self.batch: list[Any] = []
        self.row: Any = 0

    def write(self, task: Any) -> None:
        pattern, lanes = self.pattern, self.lanes
        head = task // pattern.rows
        self.row = task % pattern.rows if pattern.rows > 1 else 0
        self.batch = pattern.batch_of(head)
        self.query, self.scores = alloc("query", pattern.depth), alloc("scores", pattern.columns)
        self.tile = [alloc(f"tile_{i}", lanes) for i in range(max(self.blocking.keys, self.blocking.vectors))]
        self.most, self.total = alloc("most", lanes), alloc("total", lanes)
        scale = tirx.const(pattern.scale, "float32")
        for start, width in self._cover(pattern.depth):
            with start() as at, vector(width) as lane:
                store(self.query, self._read(pattern.query, depth=at + lane) * scale, at + lane)
        for key_loop, height in tiles(pattern.columns, self.blocking.keys):
            with key_loop() as key:
                self._score(key, height)
        self._softmax()
        self._mix()

    def _read(self, access: Access, column: Any = 0, depth: Any = 0, width: Any = 0) -> Any:
        return element(self.buffers, access, (*self.batch, self.row, column, depth, width))

    def _cover(self, extent: int) -> list[tuple[Callable[[], Any], int]]:
        """Loops over the vectors that cover an extent."""
        found = []
        whole, rest = divmod(extent, self.lanes)
        if whole:
            ((loop, _),) = tiles(whole * self.lanes, self.lanes)
            found.append((loop, self.lanes))
        for start, width in pieces(rest, self.lanes):
            found.append((partial(nullcontext, whole * self.lanes + start), width))
        return found

    def _score(self, key: Any, height: int) -> None:
        """The scores of some keys: sums of vectors along the depth, whose lanes are added up at the end."""
        lanes = self.lanes
        for i in range(height):
            with vector(lanes) as lane:
                store(self.tile[i], tirx.const(0, "float32"), lane)
        for start, width in self._cover(self.pattern.depth):
            with start() as at:
                for i in range(height):
                    with vector(width) as lane:
                        product = self._read(self.pattern.key, key + i, depth=at + lane) * self.query[at + lane]
                        store(self.tile[i], self.tile[i][lane] + product, lane)
        for i in range(height):
            self._fold(self.tile[i], lambda one, other: one + other)
            store(self.scores, self.tile[i][0], key + i)

    def _fold(self, buffer: Any, combine: Callable[[Any, Any], Any]) -> None:
        """Combine the lanes of a vector into its first one."""
        width = self.lanes // 2
        while width:
            with vector(width) as lane:
                store(buffer, combine(buffer[lane], buffer[lane + width]), lane)
            width //= 2

    def _softmax(self) -> None:
        """Scores become exponentials, less the largest score; `total` becomes the factor that normalises the row."""
        pattern, lanes = self.pattern, self.lanes
        with vector(lanes) as lane:
            store(self.most, tirx.const(LOWEST, "float32"), lane)
        for start, width in self._cover(pattern.columns):
            with start() as at:
                if pattern.steps:
                    with vector(width) as lane:
                        place_of = (*self.batch, self.row, at + lane, 0, 0)
                        read = partial(element, self.buffers)
                        store(self.scores, scored(pattern, self.scores[at + lane], place_of, read), at + lane)
                with vector(width) as lane:
                    store(self.most, tirx.max(self.most[lane], self.scores[at + lane]), lane)
        self._fold(self.most, tirx.max)
        with vector(lanes) as lane:
            store(self.total, tirx.const(0, "float32"), lane)
        for start, width in self._cover(pattern.columns):
            with start() as at:
                with vector(width) as lane:
                    store(self.scores, power_of_e(self.scores[at + lane] - self.most[0]), at + lane)
                with vector(width) as lane:
                    store(self.total, self.total[lane] + self.scores[at + lane], lane)
        self._fold(self.total, lambda one, other: one + other)
        blank = None if pattern.blank is None else self._read(pattern.blank)
        store(self.total, factor_of(pattern, self.total[0], blank), 0)

    def _mix(self) -> None:
        pattern = self.pattern
        parts = pieces(pattern.width, self.lanes)
        for first in range(0, len(parts), self.blocking.vectors):
            group = parts[first : first + self.blocking.vectors]
            for i, (_, width) in enumerate(group):
                with vector(width) as lane:
                    store(self.tile[i], tirx.const(0, "float32"), lane)
            with repeat(pattern.columns, "key") as key:
                for i, (start, width) in enumerate(group):
                    with vector(width) as lane:
                        product = self.scores[key] * self._read(pattern.value, key, width=start + lane)
                        store(self.tile[i], self.tile[i][lane] + product, lane)
            for i, (start, width) in enumerate(group):
                with vector(width) as lane:
                    at = (*self.batch, self.row, 0, 0, start + lane)
                    output = self.buffers[pattern.result.parameter]
                    store(output, finished(pattern, self.tile[i][lane], self.total[0]), *place(pattern.result, at))
