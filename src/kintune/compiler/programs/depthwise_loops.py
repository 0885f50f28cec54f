"""The loops of a depthwise convolution: a nest whose panels are strips of channels, each multiplied by itself alone.

All products of a result are summed in registers.  Nothing is copied with zeros around it, and weights are read where
they lie (`kernels.tiled_rows`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from kintune.compiler.kernels.instructions import fused
from kintune.compiler.kernels.loops import index, loop, pieces, sequence
from kintune.compiler.kernels.microkernel import Kernel
from kintune.compiler.kernels.nest import InRegisters, Nest, Panels, Share, SumsOfRow, Target
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.kernels.tiled_rows import PlaceRun, RowTile, TiledRows, Walk
from kintune.compiler.programs.vector_variants import VectorCase

__all__ = ["Strips", "Tiling", "convolve_depthwise", "strips_of"]

_REGISTERS = 32  # by which kernels are named


class Tiling(NamedTuple):
    """Tiles of `columns` results by `vectors` of channels; `blocks` of the rows by `parts` of the channels are tasks.

    The channels of a tile are a strip.  A task computes all its rows of one strip before the next strip if `tall`,
    else all its strips of one row before the next row.
    """

    columns: int
    vectors: int
    blocks: int
    parts: int
    tall: int


class Strips(NamedTuple):
    """How channels are divided: `full` strips of `width` channels, then one of the `rest`, if there is any."""

    width: int
    full: int
    rest: int

    @property
    def number(self) -> int:
        """The number of strips."""
        return self.full + (self.rest > 0)


def strips_of(channels: int, width: int) -> Strips:
    """The strips of so many channels."""
    return Strips(width, *divmod(channels, width))


def convolve_depthwise(case: VectorCase, tiling: Tiling) -> Stages:
    """The statements that compute the convolution, or the epilogue of it."""
    found, lanes, epilogue = case.sums.found, case.lanes, case.sums.epilogue
    tile = Share.of(Kernel(fused(lanes, _REGISTERS), tiling.columns, tiling.vectors, steps=1))
    strips = strips_of(found.filters, tiling.vectors * lanes)
    nest = Nest(
        f"{found.name}_depthwise",
        TiledRows(found, Walk.LINES, tiling.columns, tiling.blocks, case.most, case.outside),
        Panels(strips.number, [found.weights], lambda *_: []),
        Target(found.result, found.filters, epilogue),
        (tile,),
        tiling.parts,
        bool(tiling.tall),
    )
    return Stages([_ByChannels(nest).tasks()], [])


class _ByChannels(InRegisters):
    """Multiplies vectors of channels by their own weights; the last strip has fewer channels."""

    def _task(self, block: Any, part: Any) -> Any:
        batch, number, start, own = self._share(block, part)

        def computed(o: Any, count: int) -> Callable[[RowTile, Any], Any]:
            return lambda tile, _: self._strip(tile, o, count)

        def all_rows(o: Any, count: int) -> Any:
            return self.rows.tiles(batch, number, index(0), computed(o, count))

        def one_row(y: Any, share: Any) -> Any:
            return strips(lambda o, count: self.rows.line(batch, y, index(0), computed(o, count), share))

        def strips(body: Callable[[Any, int], Any]) -> Any:
            full, rest = divmod(self.n.target.columns, self.panel)
            is_one = self.own == self.n.panels.number
            of_task = full if is_one else tirx.min(index(self.own), index(full) - start) if rest else own
            statements = [loop("strip", of_task, lambda strip: body(start + strip, self.panel))] if full else []
            if rest:
                last, is_last = body(index(full), rest), start + index(self.own) > index(full)
                statements.append(last if is_one else tirx.IfThenElse(is_last, last, None))
            return sequence(statements)

        rows = strips(all_rows) if self.n.panels_first else self.rows.lines(number, one_row)
        return sequence([*self.rows.begun, rows])

    def _strip(self, tile: RowTile, o: Any, count: int) -> Any:
        """The results of a tile for so many channels of strip `o`."""
        vectors, zero = pieces(count, self.instruction.lanes), tirx.const(0.0, "float32")

        def begun(row: int, start: int, lanes: int) -> Any:
            return self._vector(lanes, lambda lane: tirx.BufferStore(self.sums[row], zero, [lane + index(start)]))

        def part(first: Any, number: Any, runs: Sequence[PlaceRun]) -> Any:
            return loop("i", number, lambda i: self._taps(tile, first + i, runs, o, vectors))

        rows = range(tile.number)
        return sequence(
            [
                *(begun(row, *vector) for row, vector in itertools.product(rows, vectors)),
                *(part(*each) for each in tile.parts if each[-1]),
                *(self._row(o, tile.place(row), count, SumsOfRow(self.sums[row], index(0), True)) for row in rows),
            ]
        )

    def _taps(self, tile: RowTile, i: Any, runs: Sequence[PlaceRun], o: Any, vectors: Sequence[tuple[int, int]]) -> Any:
        """The products with a row of the kernel, in the order of the data that they read."""
        across = self.rows.across.reach

        def product(row: int, j: Any, start: int, lanes: int) -> Any:
            return self._vector(lanes, lambda lane: self._product(tile.place(row), row, i, j, o, lane + index(start)))

        run = runs[0]
        if not isinstance(run.number, int):  # of a result that is computed by itself
            return loop("j", run.number, lambda j: sequence([product(0, run.first + j, *each) for each in vectors]))
        taps = [(row, j) for each in runs for j in range(each.first, each.first + each.number) for row in each.rows]
        taps.sort(key=lambda tap: tap[0] * across.stride + tap[1] * across.dilation)
        return sequence([product(row, index(j), *vector) for vector, (row, j) in itertools.product(vectors, taps)])

    def _product(self, place: Sequence[Any], row: int, i: Any, j: Any, o: Any, lane: Any) -> Any:
        """Add the product of a channel, number `lane` of its strip, to the sum of a row of the tile."""
        found, (down, top), (across, left) = self.rows.found, self.rows.down, self.rows.across
        image, y, x = place
        line = y * index(down.stride) + i * index(down.dilation) - index(down.before)
        pixel = x * index(across.stride) + j * index(across.dilation) - index(across.before)
        channel = o * index(self.panel) + lane
        value = found.data[image, line, pixel, channel] * found.weight(i + index(top), j + index(left), None, channel)
        return tirx.BufferStore(self.sums[row], self.sums[row][lane] + value, [lane])

    def _vector(self, lanes: int, body: Callable[[Any], Any]) -> Any:
        return loop("lane", lanes, body, tirx.ForKind.VECTORIZED)
