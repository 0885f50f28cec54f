"""The loops of Winograd's convolution by blocks: a block of tiles stays in the cache from its data to its results.

One task of the parallel loop takes a block of tiles and a part of the filters: it transforms the data of its tiles,
multiplies, and transforms the products.  The weights are packed in panels of the filters that are computed at once.
The micro-kernel keeps `rows` tiles by `vectors` vectors of filters in registers for the whole sum over channels.

Filters need not be whole vectors: the last one is filled up with zeros, of which no results are stored.  Channels of
the data that are no whole vector are transformed in shorter ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.calls import IMPORT, address, call_kernel
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.instructions import LINE_BYTES, WORD_BYTES, fused
from kintune.compiler.kernels.loops import INDEX, index, loop, over, pieces, sequence
from kintune.compiler.kernels.microkernel import Kernel, text_of, together
from kintune.compiler.kernels.stages import Stages, computing_block
from kintune.compiler.kernels.statements import block_over, ceildiv
from kintune.compiler.programs.winograd_tiles import (
    Geometry,
    Place,
    half_of_tile,
    tile_of_data,
    tile_of_results,
    transformed_weight,
)
from kintune.compiler.space.packing import PACKS

__all__ = ["Blocking", "Blocks", "make_blocks", "product_kernel"]

_ZERO = 0.0

_STEPS = (4, 3, 2, 1)
"""Channels of a turn of the innermost loop, in which some of the next weights are prefetched."""

REGISTERS = 32
"""The vector registers that kernels are named by."""


class Blocking(NamedTuple):
    """`blocks` of tiles by `parts` of the filters; `rows` tiles by `vectors` vectors of filters in registers."""

    rows: int
    vectors: int
    blocks: int
    parts: int


def make_blocks(
    convolution: Contraction,
    g: Geometry,
    blocking: Blocking,
    epilogue: Epilogue | None,
    greatest: Geometry | None = None,
) -> Stages:
    """The statements that compute the convolution's result, or the epilogue of it.

    `parts` times `vectors` vectors must divide the filters.  The number of tiles of a block is a multiple of `rows`;
    tiles beyond the last repeat the last one, and are not stored.  With the `greatest` geometry, the statements are the
    same for any number of tiles up to that.
    """
    return Blocks(convolution, g, blocking, epilogue, greatest).stages()


def product_kernel(g: Geometry, b: Blocking) -> Kernel:
    """The micro-kernel of a group of rows in fp32."""
    step = next(step for step in _STEPS if g.channels % step == 0)
    return Kernel(fused(g.lanes, REGISTERS), b.rows, b.vectors, g.channels, step, pitch=WORD_BYTES * g.channels)


class Blocks:
    """Writes the blocks; subclasses override what depends on the type of the products."""

    def __init__(
        self,
        convolution: Contraction,
        g: Geometry,
        blocking: Blocking,
        epilogue: Epilogue | None,
        greatest: Geometry | None = None,
    ) -> None:
        self.convolution, self.g, self.blocking, self.epilogue = convolution, g, blocking, epilogue
        self.images, self.blocks, self.begun = 1, blocking.blocks, list[Any]()
        most = g.tiles
        if greatest is not None:
            self.images, self.blocks = g.images, -(-blocking.blocks // greatest.images)
            most = greatest.high * greatest.wide
            self._open_extents()
        self.filters = convolution.filters
        self.panel = blocking.vectors * g.lanes
        self.panels = g.filters // self.panel
        self.own = self.panels // blocking.parts  # panels of a task
        self.groups = -(-most // (self.blocks * blocking.rows))
        self.size = self.groups * blocking.rows  # tiles of a task
        self.half = half_of_tile(g)
        self._allocate()

    def _open_extents(self) -> None:
        """Put variables in the place of the heights and widths of data, results and tiles; a task begins by binding
        them.
        """

        def bound(name: str, value: Any) -> Any:
            variable = tirx.Var(name, INDEX)
            self.begun.append(tirx.Bind(variable, index(value)))
            return variable

        found, g = self.convolution, self.g
        reaches = {"rows": found.rows, "columns": found.columns}
        opened = {
            name: reach._replace(
                size=bound(f"size_{name}", reach.size), results=bound(f"results_{name}", reach.results)
            )
            for name, reach in reaches.items()
        }
        high, wide = (bound(f"tiles_{name}", ceildiv(reach.results, g.m)) for name, reach in opened.items())
        self.convolution = found._replace(rows=opened["rows"], columns=opened["columns"])
        self.g = g._replace(images=1, high=high, wide=wide)

    def _allocate(self) -> None:
        """Declare the buffers of weights, of transformed data and of products, what else a task has, and the kernel."""
        g = self.g
        self.weights = g.buffer("weights", g.places, self.panels, g.channels, self.panel)
        self.tiles = g.buffer("tiles", g.places, self.size, g.channels)
        self.products = g.buffer("products", g.places, self.own, self.size, self.panel)
        self.buffers = [self.tiles, self.products, self.half]
        kernel = product_kernel(g, self.blocking)
        lines = self.lines_of(kernel)  # with more than a line for each product nothing is won
        self.kernel = kernel._replace(lines=lines if lines <= kernel.unroll else 0)
        self.texts = [text_of(self.kernel)]

    def lines_of(self, kernel: Kernel) -> int:
        """The cache lines of the next panel that each turn of a kernel prefetches; 0 without a next one.

        The weights of a layer are read once for each block, and come from memory where they are many.
        """
        return 0 if self.g.places * self.own == 1 else kernel.lines_for(self.groups)

    @property
    def line(self) -> int:
        """The values from a row of transformed data to the next one."""
        return int(self.tiles.shape[-1])

    def stages(self) -> Stages:
        """The block of the weights, which is run when the network is built, and the block of the tasks."""
        loops = [("block", self.images * self.blocks), ("part", self.blocking.parts)]
        computing = computing_block(
            "conv2d_winograd", self.convolution, self.epilogue, loops, self._task, weights=self.weights,
            buffers=self.buffers,
        )  # fmt: skip
        return Stages([self._packing(), computing], [self.weights])

    def _packing(self) -> Any:
        def packed(t: Any, o: Any, c: Any, f: Any) -> Any:
            return tirx.BufferStore(self.weights, self._weight(t, c, o * index(self.panel) + f), [t, o, c, f])

        return self._packed("tocf", packed)

    def _packed(self, names: str, body: Callable[..., Any]) -> Any:
        """The block of the weights: `body` stores an element; a letter is the name of an axis."""
        return block_over(
            "winograd_weights",
            list(zip(names, map(int, self.weights.shape), strict=True)),
            body,
            [self.convolution.weights],
            [self.weights],
            parallel=False,
            by_element=True,
            annotations={PACKS: True},
        )

    def _weight(self, t: Any, c: Any, number: Any) -> Any:
        """The transformed weight of a place, a channel and the filter of this number; zero beyond the filters."""
        value = transformed_weight(self.convolution, self.g, t, c, number)
        if self.filters == self.g.filters:
            return value
        return tirx.if_then_else(number < index(self.filters), value, tirx.const(_ZERO, "float32"))

    def _task(self, block: Any, part: Any) -> Any:
        """Transform the data of a block of tiles, multiply it with a part of the filters, transform the products."""
        g, b = self.g, self.blocking
        first, last, groups = block * index(self.size), index(g.tiles - 1), self.groups
        if is_open := bool(self.begun):
            self.g = g._replace(image=tirx.floordiv(block, index(self.blocks)))
            own, count = tirx.floormod(block, index(self.blocks)), ceildiv(g.tiles, b.rows)
            begin, end = (tirx.floordiv((own + k) * count, index(self.blocks)) for k in (0, 1))
            first, groups = begin * index(b.rows), tirx.min(end - begin, index(self.groups))  # never are more
        is_cut, size = is_open or self.blocks * self.size > g.tiles, groups * b.rows

        def data(p: Any) -> Any:
            return self._data(tirx.min(first + p, last), p)

        def results(p: Any, f: Any) -> Any:
            begin = part * index(self.own * self.panel)

            def transformed(number: Any, lanes: int) -> Any:
                return tile_of_results(
                    self.convolution, self.g, first + p, number, lanes, self.half, self.products,
                    lambda t, lane: self._product(t, p, number - begin, lane), self.epilogue,
                )  # fmt: skip

            stored = self._vectors(part * index(self.own * b.vectors) + f, self.filters, transformed)
            return tirx.IfThenElse(first + p <= last, stored, None) if is_cut else stored

        body = tirx.SeqStmt(
            [
                *self.begun,
                loop("p", size, data),
                over("toq", (g.places, self.own, groups), lambda t, o, q: self._multiplied(part, t, o, q)),
                over("pf", (size, self.own * b.vectors), results),
            ]
        )
        return tirx.AttrStmt("inner", IMPORT, together(self.texts), body)

    def _data(self, tile: Any, p: Any) -> Any:
        """Transform the data of a tile, the task's `p`th."""
        return self._transformed(tile, self.tiles, lambda t, channel: [t, p, channel])

    def _transformed(self, tile: Any, target: Any, at: Place) -> Any:
        """Transform the data of a tile, and store it in the target."""
        g = self.g

        def vector(number: Any) -> Any:
            def transformed(channel: Any, lanes: int) -> Any:
                return tile_of_data(self.convolution, g, tile, channel, lanes, self.half, target, at)

            return self._vectors(number, g.channels, transformed)

        return loop("c", -(-g.channels // g.lanes), vector)

    def _product(self, t: Any, p: Any, number: Any, lane: Any) -> list[Any]:
        """The indices of the products of a tile from the task's filter of this number on."""
        panel = index(self.panel)
        return [t, tirx.floordiv(number, panel), p, tirx.floormod(number, panel) + lane]

    def _vectors(self, number: Any, extent: int, body: Callable[[Any, int], Any]) -> Any:
        """`body` of the vector with this number, of so many values in all: its first value, and its lanes.

        The last vector may be several shorter ones.
        """
        g = self.g
        first, (full, rest) = number * index(g.lanes), divmod(extent, g.lanes)
        if not rest:
            return body(first, g.lanes)
        last = sequence(
            [body(first + index(start) if start else first, lanes) for start, lanes in pieces(rest, g.lanes)]
        )
        return tirx.IfThenElse(number < index(full), body(first, g.lanes), last) if full else last

    def _multiplied(self, part: Any, t: Any, o: Any, q: Any) -> Any:
        """The products of a group of rows with a panel, at the place `t` within tiles; `o` counts the task's panels."""
        rows, kernel = self.blocking.rows, self.kernel
        weights = math.prod(int(extent) for extent in self.weights.shape[2:])  # of a panel
        first = t * index(self.size) + q * index(rows)
        number = t * index(self.panels) + part * index(self.own) + o
        of_products = ((t * index(self.own) + o) * index(self.size) + q * index(rows)) * index(self.panel)
        data, panel = address(self.tiles, first * index(self.line)), address(self.weights, number * index(weights))
        asked = None
        if kernel.lines:  # behind the last panel it may lie outside of the weights, where a prefetch does nothing
            following = t * index(self.own) + o + index(1)
            place, own = tirx.floordiv(following, index(self.own)), tirx.floormod(following, index(self.own))
            further = place * index(self.panels) + part * index(self.own) + own
            each = kernel.turns * kernel.lines * LINE_BYTES * weights // kernel.panel_bytes
            asked = address(self.weights, further * index(weights) + q * index(each))
        return call_kernel(self.texts[-1].name, kernel, [data], [panel], address(self.products, of_products), asked)
