"""The program for products with blockwise quantised weights of 4 and 8 bits, which are unpacked in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tvm

from kintune.compiler.kernels.contraction import OF_BLOCKWISE, Contraction
from kintune.compiler.kernels.reading import joined, require
from kintune.compiler.programs.blockwise_loops import Blocking, write_blockwise
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["BlockwiseProduct"]

_PERMUTES, _CONVERTS = "permute", "convert"
_VECTOR = "avx512f"

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
_FIRST = 32  # candidates of the rule

_AT_ONCE = 2.0  # vector instructions a cycle
_LATENCY = 4.0  # cycles of a product that is added
_UNPACKING = {_PERMUTES: {4: 1.9, 8: 2.0}, _CONVERTS: {4: 3.9, 8: 2.0}}
"""Instructions that unpack a vector of weights of so many bits."""

_COLD_BYTES_A_CYCLE = 6.0  # of a core, from memory
_BYTES_A_CYCLE = 24.0  # from its second cache
_AFTER = 6.0  # cycles for what follows a vector of sums
_TASK_CYCLES = 500.0


class BlockwiseProduct:
    """Writes a product with blockwise quantised weights; a variant says how they are unpacked, and the lanes.

    The one decision is a tile in registers with blocks of rows and parts of the panels (`blockwise_loops.Blocking`): so
    few of these go together that they are listed.
    """

    name = "blockwise"
    version = 2
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return one variant for such a product, which at most elementwise operations follow."""
        if joined(module, OF_BLOCKWISE) is None:
            return ()
        can = capabilities(target)
        way = _PERMUTES if can.has((_VECTOR,)) else _CONVERTS
        return (f"{way}{can.lanes}",)

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Return the choice of a blocking.

        Raises:
            BuildError: the workload is no such product, or there is no such variant.
        """
        return _choices(_size(require(module, OF_BLOCKWISE)[1], variant)).axes()

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """Return the program.

        Raises:
            BuildError: the workload is no such product, there is no such variant, or the decisions are not its own.
        """
        changed, workload, epilogue = require(module, OF_BLOCKWISE)
        size = _size(workload, variant)
        (blocking,) = _choices(size).picked(decisions)
        return write_blockwise(changed, workload, epilogue, size.lanes, size.way == _PERMUTES, blocking)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Return the decisions of the least estimated times."""
        size = _size(require(module, OF_BLOCKWISE)[1], variant)
        return _choices(size).cheapest(_FIRST, lambda blocking: _cycles(size, blocking, machine))


class _Size(NamedTuple):
    """Numbers of a workload: `way` is how weights are unpacked; a column has `depth` of them in `blocks` blocks."""

    way: str
    lanes: int
    bits: int
    zeros: bool
    rows: int
    columns: int
    depth: int
    blocks: int

    def panels(self, vectors: int) -> int:
        """How many panels of so many vectors the columns fill."""
        return -(-self.columns // (vectors * self.lanes))


def _size(w: Contraction, variant: str) -> _Size:
    for way in (_PERMUTES, _CONVERTS):
        lanes = variant.removeprefix(way)
        if lanes != variant and lanes in ("4", "8", "16"):
            p = w.blockwise
            return _Size(way, int(lanes), p.bits, bool(p.zeros), w.positions, w.filters, p.depth, p.blocks)
    raise BuildError(f"products with blockwise quantised weights have no variant {variant}")


def _choices(size: _Size) -> ChoiceLists:
    return ChoiceLists(BlockwiseProduct.name, {"rows vectors unpacks blocks parts": _blockings(size)})


def _blockings(size: _Size) -> tuple[Blocking, ...]:
    """All tiles, blocks of rows and parts of the panels that make different programs, with work for each task."""
    found = []
    for rows, vectors, unpacks in _TILES[32 if size.way == _PERMUTES else 16]:
        if rows > size.rows:
            continue
        panels = size.panels(vectors)
        parts = {-(-panels // -(-panels // each)) for each in _PARTS if each <= panels}
        blocks = [each for each in _BLOCKS if each <= -(-size.rows // rows)]
        found += [
            Blocking(rows, vectors, unpacks, each, part)
            for each in blocks
            for part in sorted(parts)
            if each * part <= _MOST_TASKS
        ]
    return tuple(found)


def _cycles(size: _Size, b: Blocking, machine: Processor) -> float:
    """The estimated cycles of the core that has the most tasks."""
    groups = -(-size.rows // (b.blocks * b.rows))
    own = -(-size.panels(b.vectors) // b.parts)
    panel = b.vectors * size.lanes * (size.depth * size.bits / 8 + size.blocks * (5 if size.zeros else 4))
    unpacking = _UNPACKING[size.way][size.bits]
    sums = b.rows * b.vectors
    if b.unpacks:
        first = size.depth * b.vectors * (unpacking + 2) / _AT_ONCE
        read = size.depth * b.vectors * size.lanes * 4 / _BYTES_A_CYCLE
        each = max(size.depth * max(sums / _AT_ONCE, (b.rows + b.vectors) / _AT_ONCE, _LATENCY), read)
    else:
        step = sums + b.vectors * unpacking + (b.rows if size.zeros else 0)
        scaling = size.blocks * b.vectors * (2 + b.rows * (3 if size.zeros else 1))
        first, each = 0.0, size.depth * max(step / _AT_ONCE, _LATENCY) + scaling / _AT_ONCE
    tile = each + _AFTER * sums
    cold = panel / _COLD_BYTES_A_CYCLE
    turns = -(-b.blocks * -(-size.panels(b.vectors) // own) // machine.threads)
    return turns * (own * max(first + groups * tile, cold) + _TASK_CYCLES)
