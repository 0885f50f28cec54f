"""The program for products with blockwise quantised weights of 2, 4 and 8 bits.

Few rows are multiplied while the weights are unpacked in registers.  For many, a task unpacks a panel to floats first,
and multiplies all its rows with that.  Data that do not fill the last block of weights are copied, with zeros behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tvm
from tvm import tirx

from kintune.compiler.kernels.calls import address
from kintune.compiler.kernels.contraction import OF_BLOCKWISE, Contraction
from kintune.compiler.kernels.cost import Work
from kintune.compiler.kernels.images import Image, brought_in
from kintune.compiler.kernels.instructions import PERMUTE, fused
from kintune.compiler.kernels.loops import buffer, index
from kintune.compiler.kernels.microkernel import Kernel, text_of
from kintune.compiler.kernels.nest import Nest, Panels, Share, Target, tasks
from kintune.compiler.kernels.packing import packing_block
from kintune.compiler.kernels.reading import Joined, joined, require
from kintune.compiler.kernels.rows import Lines, OpenRows, Rows, Units
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.kernels.unpacking import Packing, product_text, unpacking_text
from kintune.compiler.programs.prologue import COPIED, computed_rows, has_rows
from kintune.compiler.programs.tiling_program import NestProgram
from kintune.errors import BuildError
from kintune.runtime.target import capabilities

__all__ = ["BlockwiseProduct"]

_PERMUTES, _CONVERTS = "permute", "convert"

_TILES = {
    32: (
        *((1, 4, False), (1, 8, False), (1, 2, False), (2, 4, False), (3, 4, False), (4, 2, False), (6, 2, False)),
        *((6, 4, True), (5, 4, True), (4, 4, True)),
    ),
    16: (
        *((1, 4, False), (1, 2, False), (2, 2, False), (4, 1, False)),
        *((6, 2, True), (5, 2, True), (4, 2, True), (4, 3, True)),
    ),
}
"""Rows by vectors in registers, and whether panels are unpacked to memory first, by the number of registers."""

_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_MOST_TASKS = 192

_UNROLL = 4  # products with unpacked weights that are written out; the depth is whole blocks, so a multiple of it
_AT_ONCE = 2.0  # vector instructions a cycle
_UNPACKING = {True: {2: 1.9, 4: 1.9, 8: 2.0}, False: {2: 3.9, 4: 3.9, 8: 2.0}}
"""Instructions that unpack a vector of weights of so many bits, by permutations or by conversions."""


class Blocking(NamedTuple):
    """Register tiles of `rows` by `vectors`; tasks are `blocks` of rows by about `parts` parts of the panels.

    With `unpacks`, a panel is unpacked to memory for all rows of a block.
    """

    rows: int
    vectors: int
    unpacks: bool
    blocks: int
    parts: int


class _Case(NamedTuple):
    """A workload, whose weights are unpacked by permutations, or by conversions; of any number of rows if `open`."""

    sums: Joined
    permutes: bool
    lanes: int
    open: bool = False

    @property
    def found(self) -> Contraction:
        """The sums."""
        return self.sums.found

    def panels(self, vectors: int) -> int:
        """How many panels of so many vectors the columns fill."""
        return -(-self.found.filters // (vectors * self.lanes))

    def packing(self, vectors: int) -> Packing:
        """How the weights of a panel of so many vectors are packed."""
        p = self.found.blockwise
        return Packing(p.bits, self.lanes, vectors, p.block, p.blocks, p.zeros, self.permutes)

    def kernel(self, b: Blocking) -> Kernel:
        """The inner loops that multiply."""
        if b.unpacks:
            return Kernel(fused(self.lanes, 16), b.rows, b.vectors, self.found.blockwise.depth, _UNROLL)
        return self.packing(b.vectors).kernel(b.rows)


def _way(variant: str) -> tuple[bool, int]:
    """Whether a variant unpacks by permutations, and its lanes."""
    for way in (_PERMUTES, _CONVERTS):
        lanes = variant.removeprefix(way)
        if lanes != variant and lanes in ("4", "8", "16"):
            return way == _PERMUTES, int(lanes)
    raise BuildError(f"products with blockwise quantised weights have no variant {variant}")


class BlockwiseProduct(NestProgram[_Case, Blocking]):
    """Writes a product with blockwise quantised weights; a variant says how they are unpacked, and the lanes.

    The one decision is a tile in registers with blocks of rows and parts of the panels (`Blocking`): so
    few of these go together that they are listed.
    """

    name = "blockwise"
    version = 3
    tiling = Blocking

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return one variant for such a product, which at most elementwise operations follow."""
        can = capabilities(target)
        if not can.llvm_kernels or (found := joined(module, OF_BLOCKWISE, prologues=True)) is None:
            return ()
        if not has_rows(found.found):
            return ()
        way = _PERMUTES if can.has(PERMUTE.needs) else _CONVERTS
        return (f"{way}{can.lanes}",)

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The workload, and how a variant computes it."""
        return _Case(require(module, OF_BLOCKWISE, prologues=True), *_way(variant))

    def lists(self, case: _Case) -> Mapping[str, Sequence[Blocking]]:
        """All tiles, blocks of rows and parts of the panels that make different programs, with work for each task."""
        found, all_rows = [], case.found.positions
        for rows, vectors, unpacks in _TILES[32 if case.permutes else 16]:
            if rows > all_rows:
                continue
            panels = case.panels(vectors)
            parts = {-(-panels // -(-panels // each)) for each in _PARTS if each <= panels}
            blocks = [each for each in _BLOCKS if each <= -(-all_rows // rows)]
            found += [
                Blocking(rows, vectors, unpacks, each, part)
                for each in blocks
                for part in sorted(parts)
                if each * part <= _MOST_TASKS
            ]
        return {"rows vectors unpacks blocks parts": found}

    def work(self, case: _Case, b: Blocking) -> Work:
        """What the tasks do."""
        p, kernel = case.found.blockwise, case.kernel(b)
        own, unpacking = -(-case.panels(b.vectors) // b.parts), _UNPACKING[case.permutes][p.bits]
        prepared = extra = 0.0
        if b.unpacks:
            prepared = p.depth * b.vectors * (unpacking + 2) / _AT_ONCE
        else:
            scaling = b.vectors * (2 + b.rows * (3 if p.zeros else 1)) / p.block
            extra = kernel.words * (b.vectors * unpacking + (b.rows if p.zeros else 0) + scaling)
        number = b.blocks * -(-case.panels(b.vectors) // own)
        groups = -(-case.found.positions // (b.blocks * b.rows))
        beside = float(sum(case.packing(b.vectors).panel_bytes) - kernel.panel_bytes)  # floats do not come from far
        copied = groups * b.rows * p.depth * 4 * COPIED if case.found.prologue is not None else 0.0
        return Work(
            kernel, groups, own, number, p.depth * 4, copied=copied, prepared=prepared, extra=extra, beside=beside
        )

    def opened(self, case: _Case, greatest: _Case) -> _Case:
        """The workload, to be written for any number of rows, if the data is not computed first."""
        return case._replace(open=True) if case.found.prologue is None else super().opened(case, greatest)

    def stages(self, case: _Case, b: Blocking, kept: frozenset[int]) -> Stages:
        """What computes the sums, and what follows them."""
        w, p = case.found, case.found.blockwise
        panel, number = b.vectors * case.lanes, case.panels(b.vectors)
        image = Image.of_matrix(w.positions, p.inputs, p.depth)
        data, filling = (w.data, []) if w.prologue is not None else brought_in(image, w.data, None, [])
        packing, kernel = case.packing(b.vectors), case.kernel(b)
        made = text_of(kernel) if b.unpacks else product_text(packing, b.rows)
        statements, buffers = [], []
        for name, source in zip(("integers", "scales", "zeros"), w.stored_weights, strict=False):
            word = (4,) if p.bits < 8 and source is w.weights else ()
            shape = (number, int(source.shape[0]) // math.prod(word), panel, *word)
            target = buffer(name, shape, str(source.dtype), "global")

            def weight(_: Any, value: Any, column: Any, source: Any = source) -> Any:
                return source[value, column]

            statements.append(packing_block(f"packed_{name}", target, source, weight, w.filters, number))
            buffers.append(target)

        def addresses(o: Any, _: Any = 0) -> list[Any]:
            """Those of a panel's integers, scales and zero points; of scales again where there are no points."""
            given = zip((*buffers, buffers[1])[:3], packing.panel_bytes, strict=True)
            return [address(each, o * index(math.prod(map(int, each.shape[1:])))).touched(size) for each, size in given]

        panels = Panels(number, buffers, addresses)
        if b.unpacks:
            unpacking, size = unpacking_text(packing), p.depth * panel
            floats = buffer("floats", (size + b.rows * panel,), "float32", "global")
            whole = address(floats, index(0))

            def unpacked(o: Any) -> list[Any]:
                given = [*addresses(o), whole.touched(packing.floats_bytes)]
                return [tirx.Evaluate(tirx.call_extern("int32", unpacking.name, *given))]

            panels = Panels(number, buffers, lambda *_: [whole], unpacked, (unpacking,), (floats, size))
        units = -(-w.positions // (b.blocks * b.rows)) * b.rows
        of = Units(Lines.of(image), w.extents, 1, units)
        of_data = OpenRows(of, data, 1, b.blocks) if case.open else Rows(of, data)
        if w.prologue is not None:
            of_data = computed_rows(w, p.depth, units)
        target = Target(w.result, w.filters, case.sums.epilogue)
        nest = Nest(w.name, of_data, panels, target, (Share(kernel, made),), b.parts)
        return Stages([*statements, *filling, tasks(nest)], [*buffers, *([data] if filling else [])])
