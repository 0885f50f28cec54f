"""The program for sums of products of bytes: convolutions and products of quantised networks, in vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import tvm

from kintune.compiler.kernels.contraction import BATCHED, DENSE, OF_BYTES, Contraction
from kintune.compiler.kernels.instructions import BYTES, WORD_BYTES, Instruction, best, instruction_named
from kintune.compiler.kernels.reading import joined, require
from kintune.compiler.programs.byte_loops import Blocking, write_bytes
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["ByteProducts"]

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)
_VECTORS = (1, 2, 3, 4)
_UNROLL = (1, 2, 4)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_PARTS = (1, 2, 4, 8, 16)
_FIRST = 32  # candidates of the rule

_AT_ONCE = 2.0  # vector instructions a cycle: products, and loads
_LATENCY = 5.0  # cycles of a product that is added
_START = 30.0  # cycles of a tile beside its products
_AFTER = 12.0  # cycles for what follows a vector of sums
_OWN_BYTES, _SHARED_BYTES = 40.0, 16.0  # a cycle and core, from the second cache and from the shared one


class ByteProducts:
    """Implements `Program`, written as a whole.

    The decisions are the rows and vectors in registers, the steps that are written out, the blocks of rows, the parts
    of the panels, and whether a panel is used for all rows of a block first.
    """

    name = "bytes"
    version = 2
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return the widest instruction that the CPU has, for sums of products of bytes.

        Elementwise operations may follow the sums, and nothing else.
        """
        instruction = best(BYTES, target)
        return (
            () if instruction is None or joined(module, OF_BYTES, (DENSE, BATCHED)) is None else (instruction.variant,)
        )

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Return the choices.

        Raises:
            BuildError: the workload sums no products of bytes, or there is no such variant.
        """
        return _choices(_sizes(require(module, OF_BYTES)[1], instruction_named(BYTES, variant))).axes()

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """Return the program.

        Raises:
            BuildError: the workload sums no products of bytes, or the decisions make no program.
        """
        changed, workload, epilogue = require(module, OF_BYTES)
        sizes = _sizes(workload, instruction_named(BYTES, variant))
        blocking = _blocking(sizes, *_choices(sizes).picked(decisions))
        if not _fits(sizes, blocking):
            tile = f"{blocking.rows} by {blocking.vectors}"
            raise BuildError(f"the tile of {tile} vectors, or {blocking.parts} parts of the panels, do not fit")
        return write_bytes(changed, workload, epilogue, blocking)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Return the decisions of the least estimated times."""
        sizes = _sizes(require(module, OF_BYTES)[1], instruction_named(BYTES, variant))

        def cost(*values: int) -> float | None:
            blocking = _blocking(sizes, *values)
            return _cycles(sizes, blocking, machine) if _fits(sizes, blocking) else None

        return _choices(sizes).cheapest(_FIRST, cost)


class _Sizes(NamedTuple):
    """Numbers of a workload: `rows` of the result, `filters`, and the `steps` of a sum, of which `segment` lie side by
    side; the `depth` of the data, and `taps`, the rows of the weights.  `instruction` adds the products.  There are
    `batches` of rows with weights of their own.
    """

    rows: int
    filters: int
    steps: int
    segment: int
    depth: int
    taps: int
    instruction: Instruction
    batches: int = 1

    def panels(self, vectors: int) -> int:
        """How many panels of so many vectors the filters fill."""
        return -(-self.filters // (vectors * self.instruction.lanes))


def _sizes(w: Contraction, instruction: Instruction) -> _Sizes:
    together = w.taps[1] == 1 or w.columns.dilation == 1
    segment = w.depth // WORD_BYTES * (w.taps[1] if together else 1)
    return _Sizes(w.positions, w.filters, w.steps, segment, w.depth, w.taps[0], instruction, math.prod(w.batches))


def _choices(w: _Sizes) -> ChoiceLists:
    """Rows, vectors, steps written out, blocks, parts, and whether panels come first."""
    vectors = w.panels(1)
    values = {
        "rows": tuple(rows for rows in _ROWS if rows <= w.rows),
        "vectors": tuple(each for each in _VECTORS if each <= vectors),
        "unroll": tuple(each for each in _UNROLL if w.segment % each == 0),
        "blocks": tuple(blocks for blocks in _BLOCKS if blocks <= w.rows),
        "parts": tuple(parts for parts in _PARTS if parts <= vectors),
        "panels_first": (0, 1),
    }
    return ChoiceLists(ByteProducts.name, values)


def _blocking(w: _Sizes, rows: int, vectors: int, unroll: int, blocks: int, parts: int, panels_first: int) -> Blocking:
    return Blocking(rows, vectors, unroll, blocks, parts, bool(panels_first), w.instruction)


def _fits(w: _Sizes, b: Blocking) -> bool:
    """Whether sums, a row of weights and a value of the data fit the registers, and tasks are whole.

    Parts must divide the panels, and each block must have a tile.
    """
    tiles = -(-w.rows // b.rows)
    rows = b.rows + w.instruction.signed
    in_registers = rows * b.vectors + b.vectors + rows - b.rows + 1 <= w.instruction.registers
    return in_registers and w.panels(b.vectors) % b.parts == 0 and b.blocks <= tiles


def _cycles(w: _Sizes, b: Blocking, machine: Processor) -> float:
    """The estimated cycles of the core that has the most tasks."""
    groups = -(-w.rows // (b.blocks * b.rows))
    own = w.panels(b.vectors) // b.parts
    weights = b.panel * WORD_BYTES  # bytes of a step
    panel = w.steps * weights
    data = groups * b.rows * w.depth * w.taps
    step = max((b.rows + w.instruction.signed) * b.vectors / _AT_ONCE, (b.rows + b.vectors) / _AT_ONCE, _LATENCY)
    nearest = machine.caches[0] / 2
    reused = panel if b.panels_first else own * panel
    if reused > nearest:
        step = max(step, weights / (_OWN_BYTES if reused < machine.caches[1] / 2 else _SHARED_BYTES))
    follows = _AFTER * b.rows * b.vectors
    loop = 1.0 + 0.1 / b.unroll
    tile = w.steps * step * loop + follows + _START
    again = own * data / _OWN_BYTES if b.panels_first and data > nearest else 0.0
    tasks = -(-w.batches * b.blocks * b.parts // machine.threads)
    return tasks * (groups * own * tile + again)
