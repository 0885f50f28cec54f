"""The programs for sums of products of bytes: convolutions and products of quantised networks, in vectors or tiles.

Tiles take rows of the data that lie at one distance.  Those of a product are one line of them, and so are the pixels of
a convolution of 1 x 1 with a stride of one.  For other convolutions a line is a line of pixels of the result.  If such
lines are short and the stride is one, all lines of an image are taken as one (`kernels.rows.Lines`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.blocks import loads_in
from kintune.compiler.kernels.calls import address
from kintune.compiler.kernels.contraction import BATCHED, DENSE, OF_BYTES, Contraction
from kintune.compiler.kernels.cost import Work
from kintune.compiler.kernels.images import Image, brought_in, stores
from kintune.compiler.kernels.instructions import (
    BYTES,
    LINE_BYTES,
    TILE_ROWS,
    TILES,
    WORD_BYTES,
    Instruction,
    best,
    byte_instruction,
    is_available,
)
from kintune.compiler.kernels.loops import buffer, index
from kintune.compiler.kernels.microkernel import Kernel, registers_for
from kintune.compiler.kernels.nest import Nest, Panels, Share, Target, tasks
from kintune.compiler.kernels.packing import packing_block, weight_by_value
from kintune.compiler.kernels.reading import Joined, joined, require
from kintune.compiler.kernels.rows import Lines, OpenRows, Rows, TaskLines, Units, copied_lines
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.programs.tiling_program import NestProgram
from kintune.errors import BuildError

__all__ = ["ByteProducts", "ByteTiles", "tile_heights", "tile_lines"]

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)
_UNROLL = (1, 2, 4)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_PARTS = (1, 2, 4, 8, 16)
_LEAST_ROWS, _LEAST_STEPS = 8, 2  # of the result, and of four bytes of a row: less is left to vectors
_UNITS = (WORD_BYTES, 16, LINE_BYTES)  # what channels may be filled up to, for tiles
_WORTH = 0.75  # channels are filled up further only where fewer than this share of the products are left
_LEAST_COST = 13  # of a tile, in rows: products wait for each other
_AHEAD = 2  # steps at which weights are prefetched for tiles, whose rows the hardware does not prefetch


class _Case(NamedTuple):
    """A workload, the instruction that computes it, and the lines of its data, of any length if they are `open`."""

    sums: Joined
    instruction: Instruction
    lines: Lines
    open: bool = False

    @property
    def found(self) -> Contraction:
        """The sums."""
        return self.sums.found

    @property
    def batches(self) -> int:
        """The batches, each with weights of its own."""
        return math.prod(self.found.batches)

    def units(self, height: int) -> int:
        """The units of so many rows in a batch."""
        return self.lines.number // self.batches * int(self.lines.units(height))

    def panels(self, vectors: int) -> int:
        """How many panels of so many vectors the columns fill."""
        return -(-self.found.filters // (vectors * self.instruction.lanes))


class _Tiling(NamedTuple):
    """`rows` or tiles of `height` rows by `vectors` of columns in registers, and `unroll` steps written out.

    Tasks are `blocks` of rows by `parts` of the panels.

    With `panels_first` a panel is used for all rows of a block before the next one is.  With `copies` a task copies the
    lines of pixels that it reads, with their borders; else all are copied first.
    """

    rows: int
    vectors: int
    blocks: int
    parts: int
    panels_first: int
    height: int = 1
    unroll: int = 1
    copies: int = 0

    def units(self, case: _Case) -> int:
        """The units of rows of a task."""
        return -(-case.units(self.height) // (self.blocks * self.rows)) * self.rows


class _Bytes(NestProgram[_Case, _Tiling]):
    version = 3
    tiling: Callable[..., _Tiling] = _Tiling

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The workload, and how a variant computes it."""
        sums = require(module, OF_BYTES)
        return _Case(sums, *self._lines(sums.found, variant))

    @abstractmethod
    def _lines(self, found: Contraction, variant: str) -> tuple[Instruction, Lines]:
        """The instruction of a variant, and the lines of the data."""

    def fits(self, case: _Case, t: _Tiling) -> bool:
        """Whether sums, weights and data fit the registers, parts divide the panels, and each block has a tile."""
        i, rows = case.instruction, t.rows + case.instruction.signed
        if i.tiles:
            in_registers = registers_for(t.rows, t.vectors) <= TILES
        else:
            in_registers = rows * t.vectors + t.vectors + i.signed + 1 <= i.registers
        tiles = -(-case.units(t.height) // t.rows)
        return in_registers and case.panels(t.vectors) % t.parts == 0 and t.blocks <= tiles

    def work(self, case: _Case, t: _Tiling) -> Work:
        """What the tasks do."""
        image, units = case.lines.image, t.units(case)
        copied = copied_lines(case.lines, t.height, units) * image.line if t.copies else 0
        brought = image.number * image.height * image.line if image.is_copied and not t.copies else 0
        own, number = case.panels(t.vectors) // t.parts, case.batches * t.blocks * t.parts
        row_bytes, first = image.depth * image.taps[0], bool(t.panels_first)
        return Work(_kernel(case, t), units // t.rows, own, number, row_bytes, first, copied=copied, brought=brought)

    def stages(self, case: _Case, t: _Tiling, kept: frozenset[int]) -> Stages:
        """What computes the sums, and what follows them."""
        return _stages(case, t)

    def opened(self, case: _Case, greatest: _Case) -> _Case:
        """The workload, to be written for any number of rows, if these are of matrices and no tiles."""
        is_plain = case.lines.number == case.batches and case.lines.image.is_plain
        if case.instruction.tiles or not is_plain:
            return super().opened(case, greatest)
        return case._replace(open=True)


class ByteProducts(_Bytes):
    """Implements `Program`, in vectors; a variant is an instruction."""

    name = "bytes"

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return the widest instruction that the CPU has, for sums of products of bytes.

        Elementwise operations may follow the sums, and nothing else.
        """
        instruction = best(BYTES, target)
        found = joined(module, OF_BYTES, (DENSE, BATCHED))
        return () if instruction is None or found is None else (instruction.variant,)

    def _lines(self, found: Contraction, variant: str) -> tuple[Instruction, Lines]:
        return byte_instruction(variant), _lines_of(found, _image(found))

    def lists(self, case: _Case) -> Mapping[str, Sequence[int]]:
        """The values that are offered."""
        rows, vectors = case.found.positions, case.panels(1)
        return {
            "rows": [each for each in _ROWS if each <= rows],
            "vectors": range(1, min(4, vectors) + 1),
            "unroll": [each for each in _UNROLL if case.lines.image.segment // WORD_BYTES % each == 0],
            "blocks": [blocks for blocks in _BLOCKS if blocks <= rows],
            "parts": [parts for parts in _PARTS if parts <= vectors],
            "panels_first": (0, 1),
        }


class ByteTiles(_Bytes):
    """Implements `Program`, in tiles."""

    name = "byte_tiles"
    tiling = staticmethod(lambda tiles, **others: _Tiling(tiles, **others))

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return the one variant for sums of products of bytes that are large enough, on a CPU with tiles of bytes.

        Elementwise operations may follow the sums, and nothing else.
        """
        if not is_available(_TILE, target) or best(BYTES, target) is None:
            return ()
        sums = joined(module, OF_BYTES)
        if sums is None or sums.found.positions < _LEAST_ROWS:
            return ()
        return (_TILE.variant,) if _image(sums.found).segment >= _LEAST_STEPS * WORD_BYTES else ()

    def instructions(self, variant: str) -> tuple[str, ...]:
        """Return the extensions that kernels need, beyond those which any kernel may use."""
        return _TILE.extensions

    def _lines(self, found: Contraction, variant: str) -> tuple[Instruction, Lines]:
        if variant != _TILE.variant:
            raise BuildError(f"products of bytes in tiles have no variant {variant}")
        return _TILE, tile_lines(found)

    def lists(self, case: _Case) -> Mapping[str, Sequence[int]]:
        """The values that are offered."""
        lines, vectors, image = case.lines, case.panels(1), case.lines.image
        heights = tile_heights(lines.length)
        most = case.units(min(heights))
        copies = image.is_copied and image.number == 1 and (lines.through or lines.number > 1)
        return {
            "height": heights,
            "tiles": range(1, min(4, most) + 1),
            "vectors": range(1, min(2, vectors) + 1),
            "blocks": [blocks for blocks in _BLOCKS[:16] if blocks <= most],
            "parts": [parts for parts in _PARTS if parts <= vectors],
            "panels_first": (0, 1),
            "copies": (0, 1) if copies else (0,),
        }


_TILE = next(each for each in BYTES if each.tiles)


def _image(found: Contraction, unit: int = WORD_BYTES) -> Image:
    """The data of a workload, whose channels are filled up to a multiple of `unit`."""
    return Image.of(found, -(-found.channels // unit) * unit, whole=found.border is None)


def _lines_of(w: Contraction, image: Image) -> Lines:
    """The lines of a workload; of a batch, if weights differ by batches."""
    lines = Lines.of(image)
    return lines._replace(number=math.prod(w.batches), length=w.positions) if w.batches else lines


def tile_lines(w: Contraction) -> Lines:
    """The lines of a workload for tiles, with its channels filled up as tiles need them."""
    images = [_image(w, unit) for unit in _UNITS]
    fewest = min(images, key=lambda image: _chunks(image)[0])
    image = fewest if _chunks(fewest)[0] < _WORTH * _chunks(images[0])[0] else images[0]
    lines = _lines_of(w, image)
    if image.is_plain or image.strides != (1, 1):
        return lines
    return min(lines, Lines.of_images(image), key=lambda each: each.number * _cost(each.length))


def tile_heights(length: int) -> tuple[int, ...]:
    """The heights that tiles may have, in rows: a line in the fewest tiles, or in one or two more, about evenly cut."""
    fewest = -(-length // TILE_ROWS)
    return tuple(sorted({-(-length // (fewest + more)) for more in range(3) if fewest + more <= length}))


def _chunks(image: Image) -> tuple[int, int]:
    """The rows of tiles of a segment, and their words, which divide it."""
    words = image.segment // WORD_BYTES
    each = max(size for size in range(1, LINE_BYTES // WORD_BYTES + 1) if words % size == 0)
    return words // each, each


def _cost(length: int) -> int:
    tiles = -(-length // TILE_ROWS)
    return tiles * max(_LEAST_COST, -(-length // tiles))


def _kernel(case: _Case, t: _Tiling) -> Kernel:
    image, instruction = case.lines.image, case.instruction
    if not instruction.tiles:
        steps = image.segment // WORD_BYTES
        return Kernel(instruction, t.rows, t.vectors, steps, t.unroll, image.segments(1))
    steps, words = _chunks(image)
    return Kernel(
        instruction, t.rows, t.vectors, steps, segments=image.segments(1), pitch=case.lines.pitch, height=t.height,
        words=words, ahead=_AHEAD * words * t.vectors * instruction.vector_bytes,
    )  # fmt: skip


def _stages(case: _Case, t: _Tiling) -> Stages:
    w, lines, image = case.found, case.lines, case.lines.image
    kernel, panels, batches, units = _kernel(case, t), case.panels(t.vectors), case.batches, t.units(case)
    panel = t.vectors * case.instruction.lanes
    packed = buffer("packed", (batches * panels, image.values // WORD_BYTES, panel, WORD_BYTES), "int8", "global")
    weight = weight_by_value(w, image.values // image.depth, image.depth, image.channels)
    packing = packing_block("packed_bytes", packed, w.weights, weight, w.filters, panels, computed=w.position is None)
    around = [load.source for load in loads_in(w.border)] if image.is_copied and w.border is not None else []
    data, copying = (w.data, []) if t.copies else brought_in(image, w.data, w.border, around)
    of = Units(lines, w.extents, t.height, units)
    if t.copies:
        writer = stores(image, w.data, w.border)
        rows: Rows = TaskLines(of, w.data, writer, str(w.data.dtype), around)
    else:
        rows = OpenRows(of, data, batches, t.blocks) if case.open else Rows(of, data, batches)

    def addresses(o: Any, offset: Any) -> list[Any]:
        return [address(packed, o * index(kernel.panel_bytes) + offset)]

    nest = Nest(
        w.name,
        rows,
        Panels(panels, [packed], addresses, batched=True),
        Target(w.result, w.filters, case.sums.epilogue),
        (Share.of(kernel),),
        t.parts,
        bool(t.panels_first),
    )
    return Stages([packing, *copying, tasks(nest)], [packed, *([data] if copying else [])])
