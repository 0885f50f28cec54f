"""The program for sums of products of bytes by AMX: convolutions and products of quantised networks, in tiles."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from kintune.compiler.kernels.contraction import BATCHED, DENSE, OF_BYTES, Contraction
from kintune.compiler.kernels.instructions import TILES, WORD_BYTES
from kintune.compiler.kernels.microkernel import registers_for
from kintune.compiler.kernels.reading import joined, require
from kintune.compiler.programs.byte_tile_form import TileForm, copied_lines, heights_of, may_copy, tile_form, tiles_of
from kintune.compiler.programs.byte_tile_loops import INSTRUCTION, TileBlocking, write_byte_tiles
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["AMX", "NEEDED", "ByteTiles"]

AMX = "amx"
"""The variant."""

NEEDED = ("amxint8", "amxtile")
"""The extensions that kernels of the program need, beyond those for vectors of bytes."""

_VECTORS_OF_BYTES = "avx512vnni"
_TILES = (1, 2, 3, 4)
_VECTORS = (1, 2)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_PARTS = (1, 2, 4, 8, 16)
_FIRST = 32  # candidates of the rule
_LEAST_ROWS, _LEAST_STEPS = 8, 2  # of the result, and of four bytes of a row: less is left to vectors

_LATENCY = 52.0  # cycles of a product that is added
_START = 60.0  # cycles of a kernel beside its products
_TASK = 300.0
_LAUNCH = 5000.0  # of another parallel loop
_COPIED_BYTES = 16.0  # a cycle
_AFTER = 12.0  # cycles for what follows a vector of sums
_LOADED = 2.0  # rows of tiles that are loaded a cycle
_OWN_BYTES, _SHARED_BYTES = 40.0, 12.0  # a cycle and core, from the second cache and from the shared one


class ByteTiles:
    """Implements `Program`, written as a whole.

    The decisions are the rows of a tile, the tiles and vectors in registers, the blocks of tiles, the parts of the
    panels, whether a panel is used for all tiles of a block first, and whether tasks copy the data that they read.
    """

    name = "byte_tiles"
    version = 2
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return "amx" for sums of products of bytes that are large enough, on a CPU that has AMX for bytes.

        Elementwise operations may follow the sums, and nothing else.
        """
        if not capabilities(target).has((*NEEDED, _VECTORS_OF_BYTES)):
            return ()
        found = joined(module, OF_BYTES, (DENSE, BATCHED))
        if found is None:
            return ()
        workload = found[1]
        if workload.batches:
            return ()
        return (AMX,) if workload.positions >= _LEAST_ROWS and workload.segment >= _LEAST_STEPS * WORD_BYTES else ()

    def instructions(self, variant: str) -> tuple[str, ...]:
        """Return the extensions that kernels need, beyond those which any kernel may use."""
        return NEEDED

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Return the choices.

        Raises:
            BuildError: the workload sums no products of bytes.
        """
        return _choices(*tile_form(require(module, OF_BYTES)[1])).axes()

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """Return the program.

        Raises:
            BuildError: the workload sums no products of bytes, or the decisions make no program.
        """
        changed, plain, epilogue = require(module, OF_BYTES)
        workload, form = tile_form(plain)
        blocking = _blocking(*_choices(workload, form).picked(decisions))
        if not _fits(workload, form, blocking):
            raise BuildError(
                f"{blocking.tiles} by {blocking.vectors} tiles, or {blocking.parts} parts of the panels, do not fit"
            )
        return write_byte_tiles(changed, workload, form, epilogue, blocking)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Return the decisions of the least estimated times."""
        workload, form = tile_form(require(module, OF_BYTES)[1])

        def cost(*values: int) -> float | None:
            blocking = _blocking(*values)
            return _cycles(workload, form, blocking, machine) if _fits(workload, form, blocking) else None

        return _choices(workload, form).cheapest(_FIRST, cost)


def _blocking(
    height: int, tiles: int, vectors: int, blocks: int, parts: int, panels_first: int, copies: int
) -> TileBlocking:
    return TileBlocking(height, tiles, vectors, blocks, parts, bool(panels_first), bool(copies))


def _choices(w: Contraction, form: TileForm) -> ChoiceLists:
    """Rows of a tile, tiles, vectors, blocks, parts, whether panels come first, and whether tasks copy their data."""
    heights = heights_of(form)
    most = form.lines * tiles_of(form, min(heights))
    vectors = -(-w.filters // INSTRUCTION.lanes)
    values = {
        "height": heights,
        "tiles": tuple(tiles for tiles in _TILES if tiles <= most),
        "vectors": tuple(each for each in _VECTORS if each <= vectors),
        "blocks": tuple(blocks for blocks in _BLOCKS if blocks <= most),
        "parts": tuple(parts for parts in _PARTS if parts <= vectors),
        "panels_first": (0, 1),
        "copies": (0, 1) if may_copy(w, form) else (0,),
    }
    return ChoiceLists(ByteTiles.name, values)


def _fits(w: Contraction, form: TileForm, b: TileBlocking) -> bool:
    """Whether the tiles are in registers, and parts and blocks are whole."""
    groups = -(-form.lines * tiles_of(form, b.height) // b.tiles)
    panels = w.panels(b.vectors * INSTRUCTION.lanes)
    return registers_for(b.tiles, b.vectors) <= TILES and panels % b.parts == 0 and b.blocks <= groups


def _cycles(w: Contraction, form: TileForm, b: TileBlocking, machine: Processor) -> float:
    """The estimated cycles of the core that has the most tasks."""
    groups = -(-form.lines * tiles_of(form, b.height) // (b.blocks * b.tiles))
    own = w.panels(b.vectors * INSTRUCTION.lanes) // b.parts
    weights = b.vectors * form.quads * INSTRUCTION.lanes * WORD_BYTES  # bytes of a step
    data = b.tiles * b.height * form.quads * WORD_BYTES
    panel, rows = form.steps * weights, b.tiles * b.height * w.depth * w.taps[0]
    step = max(float(b.tiles * b.vectors * b.height), _LATENCY, (b.tiles * b.height + b.vectors * form.quads) / _LOADED)
    nearest, own_cache = machine.caches[0] / 2, machine.caches[1] / 2
    again = panel if b.panels_first else own * panel
    far = 0.0
    if again > nearest:
        far += weights / (_OWN_BYTES if again <= own_cache else _SHARED_BYTES)
    if (groups * rows if b.panels_first else rows) > nearest:
        far += data / _OWN_BYTES
    kernel = form.steps * max(step, far) + _AFTER * b.tiles * b.height * b.vectors + _START
    first = own * panel / _SHARED_BYTES  # the weights of a task come from far once
    tasks = -(-b.blocks * b.parts // machine.threads)
    lines, line = w.image[0] * w.image[1], w.image[2] * w.depth
    copied, before = 0.0, 0.0
    if b.copies:
        copied = copied_lines(w, form, b.height, groups * b.tiles) * line / _COPIED_BYTES
    elif w.is_copied:  # by all threads, before the tasks begin
        before = _LAUNCH + lines * line / machine.threads * (1 / _COPIED_BYTES + 1 / _SHARED_BYTES)
    return tasks * (max(groups * own * kernel, first) + copied + _TASK) + before
