"""Winograd's convolution by blocks whose products are of bf16, in vectors of pairs.

Transforms are of fp32, as sums are.  Transformed weights are rounded when the network is built, and transformed data
when it runs: all places of a tile are transformed into a small buffer, and rounded from there.  Pairs of channels lie
side by side, and channels are filled up with zeros to whole parts of 32.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from kintune.compiler.kernels.calls import BF16_BITS, address, call_copy, odd_lines
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.copies import CHUNK, copying_text
from kintune.compiler.kernels.epilogue import Epilogue
from kintune.compiler.kernels.instructions import LINE_BYTES, PAIRS
from kintune.compiler.kernels.loops import buffer, index, loop, sequence
from kintune.compiler.kernels.microkernel import text_of
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.programs.panel_form import Inner
from kintune.compiler.programs.winograd_blocked import Blocking, Blocks
from kintune.compiler.programs.winograd_tiles import Geometry

__all__ = ["NARROW", "make_narrow_blocks"]

NARROW = next(each for each in PAIRS if not each.tiles)
"""The instruction that multiplies."""

_PAIR = 2
_SIZE = 2  # bytes of a value


def make_narrow_blocks(convolution: Contraction, g: Geometry, blocking: Blocking, epilogue: Epilogue | None) -> Stages:
    """As `winograd_blocked.make_blocks`, with products by `NARROW`, of whose lanes vectors must be."""
    return _NarrowBlocks(convolution, g, blocking, epilogue).stages()


class _NarrowBlocks(Blocks):
    def _allocate(self) -> None:
        g = self.g
        self._depth = -(-g.channels // CHUNK) * CHUNK  # values of a sum
        line = odd_lines(self._depth, LINE_BYTES // _SIZE)
        shape = (g.places, self.panels, self._depth // _PAIR, self.panel, _PAIR)
        self.weights = buffer("weights", shape, "bfloat16", "global")
        self.tiles = buffer("tiles", (g.places, self.size, line), BF16_BITS, "global")
        self.products = g.buffer("products", g.places, self.own, self.size, self.panel)
        self._wide = g.buffer("wide", g.places, g.channels)
        self.buffers = [self.tiles, self.products, self._wide, self.half]
        kernel = Inner(NARROW.variant, self.blocking.rows, self.panel).kernel(1, self._depth // CHUNK, _SIZE * line)
        self.kernel = kernel._replace(lines=self.lines_of(kernel))
        self.texts = [copying_text(converts=True), text_of(self.kernel)]

    def _packing(self) -> Any:
        g = self.g

        def packed(t: Any, o: Any, h: Any, f: Any, e: Any) -> Any:
            channel = h * index(_PAIR) + e
            value = tirx.Cast("bfloat16", self._weight(t, channel, o * index(self.panel) + f))
            if self._depth > g.channels:
                value = tirx.if_then_else(channel < index(g.channels), value, tirx.const(0.0, "bfloat16"))
            return tirx.BufferStore(self.weights, value, [t, o, h, f, e])

        return self._packed("tohfe", packed)

    def _data(self, tile: Any, p: Any) -> Any:
        """Transform the data of a tile, then round the channels of one place after the other."""
        g = self.g

        def rounded(t: Any) -> Any:
            source = address(self._wide, t * index(g.channels))
            target = address(self.tiles, (t * index(self.size) + p) * index(self.line))
            return call_copy("kt_round", source, target, g.channels, _SIZE * CHUNK)

        transformed = self._transformed(tile, self._wide, lambda t, channel: [t, channel])
        return sequence([transformed, loop("t", g.places, rounded)])
