"""Convolutions with packed weights and register tiles of results along a row, in fp32.

MetaSchedule's sketches copy the data with zeros around it first, tile rows, columns and filters by divisors of their
numbers, and sum into memory.  Here nothing is copied, tiles need not divide anything, and the whole sum of a tile is in
registers.  That counts where filters are no whole vectors, channels are few, or the kernel's places lie far apart.
Convolutions in groups are among them where data and result have an axis of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.contraction import DENSE, GROUPED, Contraction, Reach
from kintune.compiler.kernels.reading import Joined, joined
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.direct_loops import Tiling, convolve, inner_tiles
from kintune.compiler.programs.image_tiles import CONTENDED_CYCLES, PAIR_BYTES, edges, even_widths, has_written_edges
from kintune.compiler.programs.stages import with_stages
from kintune.compiler.programs.vector_variants import lanes_and_registers, vector_variant
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["DirectConvolution"]

_COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)
_VECTORS = (1, 2, 3, 4)
_BLOCKS = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64)
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_FEW = 16  # results that the program of few positions has
_MOST_KERNEL = 16  # places of a row of the kernel, which are written out at the edges
_LEAST_FLOPS = 1e6  # of a convolution that is worth a kernel of its own
_LEAST_USE = 0.2  # of the filters, which are filled up to whole vectors
_LEAST_FILLED = 0.9  # of that use, for panels of several vectors
_FIRST = 24  # candidates of the rule

_BYTES_A_CYCLE = 24.0  # of a core, from its second cache
_INSIDE, _OWN = 0.6, 0.7  # of the first and second cache, for what is read again
_FAR = 1.2  # times as long where data and panel do not fit in the second
_STORED_CYCLES = 3.0  # of a vector of results
_TURN_CYCLES = 8.0  # of a place of the kernel
_SINGLE_CYCLES = 4.0  # of a product of a result that is computed for itself
_TASK_CYCLES = 500.0


class _Shape(NamedTuple):
    """What a convolution reads along its axes; read from the workload once."""

    images: int
    rows: Reach
    columns: Reach
    channels: int
    filters: int
    groups: int

    def panels(self, vectors: int, lanes: int) -> int:
        """The panels of the filters of all groups."""
        return self.groups * -(-self.filters // (vectors * lanes))


class DirectConvolution:
    """Writes a convolution with constant weights; its variants are lanes and registers, as in "16x32".

    The decisions are the register tile, blocks of rows or of tiles, and parts of the panels (`direct_loops.Tiling`).
    """

    name = "direct"
    version = 2
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """One variant for a large enough convolution with at most an epilogue, if a register tile fits its rows.

        Convolutions that are matrix products, and those of few positions, have other programs.
        """
        variant = vector_variant(target)
        matched = _matched(module) if variant else None
        if matched is None or matched.found.flops < _LEAST_FLOPS:
            return ()
        return (variant,) if _tiles(_shape(matched.found), variant) else ()

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...] | None:
        """The choices of tile, blocks and parts.

        Raises:
            BuildError: the workload is no such convolution, or there is no such variant of it.
        """
        return _choices(_shape(_found(module).found), variant).axes()

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """The workload with the program in the place of its convolution.

        Raises:
            BuildError: the workload is no such convolution, the decisions are not its own, or make no program.
        """
        matched = _found(module)
        shape, (lanes, _) = _shape(matched.found), _registers(variant)
        tiling = _tiling(*_choices(shape, variant).picked(decisions))
        if not _is_shared(shape, tiling, lanes):
            raise BuildError(
                f"{tiling.blocks} blocks and {tiling.parts} parts do not fit {shape.rows.results} x "
                f"{shape.columns.results} results of {shape.filters} filters"
            )
        stages = convolve(matched.found, lanes, tiling, matched.epilogue)
        return with_stages(matched.module, matched.found, stages, matched.epilogue)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """The decisions of the least estimated times."""
        shape, (lanes, _) = _shape(_found(module).found), _registers(variant)

        def cost(*values: Any) -> float | None:
            tiling = _tiling(*values)
            return _estimated_cycles(shape, tiling, lanes, machine) if _is_shared(shape, tiling, lanes) else None

        return _choices(shape, variant).cheapest(_FIRST, cost)


def _estimated_cycles(shape: _Shape, tiling: Tiling, lanes: int, machine: Processor) -> float:
    """The estimated cycles of the core that has most tasks."""
    rows, columns, width = shape.rows, shape.columns, tiling.columns
    taps = rows.kernel * columns.kernel
    tiles = -(-columns.results // width)
    number = -(-rows.results // tiling.blocks) * tiles if rows.results > 1 else -(-tiles // tiling.blocks)
    panel_bytes = 4.0 * taps * shape.channels * tiling.vectors * lanes
    each = max(width * tiling.vectors / 2, (width + tiling.vectors) / 2)
    reading = 0.0 if panel_bytes <= _INSIDE * machine.caches[0] else 4.0 * tiling.vectors * lanes / _BYTES_A_CYCLE
    summed = taps * (shape.channels * max(each, reading) + _TURN_CYCLES)
    stored = _STORED_CYCLES * width * tiling.vectors
    # a tile that is cut off has the products of its results only
    cut = columns.results / (tiles * width)
    data = 4.0 * number * width * columns.stride * rows.stride * shape.channels
    far = 1.0 if data + panel_bytes <= _OWN * machine.caches[1] else _FAR
    own = shape.panels(tiling.vectors, lanes) // tiling.parts
    turns = -(-shape.images * tiling.blocks * tiling.parts // machine.threads)
    alone = 0 if has_written_edges(columns, width) else sum(edges(columns, width)) * width
    singles = _SINGLE_CYCLES * alone * taps * shape.channels * -(-rows.results // tiling.blocks)
    ends = (4 * own * tiling.vectors * lanes, 4 * shape.groups * shape.filters)
    contended = tiling.parts > 1 and any(end % PAIR_BYTES for end in ends)
    waited = CONTENDED_CYCLES * number * cut * width if contended else 0.0
    return turns * (own * (number * cut * (summed + stored) * far + singles) + waited + _TASK_CYCLES)


def _matched(module: tvm.IRModule) -> Joined | None:
    """The workload's convolution, where what follows can be computed in vectors along its filters."""
    matched = joined(module, kinds=(DENSE, GROUPED))
    if matched is None or matched.found.positions <= _FEW:
        return None
    if matched.found.kind == DENSE and (matched.found.is_matrix or matched.found.is_direct):
        return None
    return matched if matched.epilogue is None or matched.epilogue.is_vectorised else None


def _found(module: tvm.IRModule) -> Joined:
    matched = _matched(module)
    if matched is None:
        raise BuildError("the workload is no convolution with constant weights that this program computes")
    return matched


def _choices(shape: _Shape, variant: str) -> ChoiceLists:
    """The register tiles, numbers of blocks, and numbers of parts of the panels.

    Raises:
        BuildError: there is no such variant, or no register tile fits.
    """
    tiles, (lanes, _) = _tiles(shape, variant), _registers(variant)
    if not tiles:
        raise BuildError(
            f"no register tile of {variant} fits {shape.columns.results} results of {shape.filters} filters"
        )
    numbers = sorted({shape.panels(vectors, lanes) for _, vectors in tiles})
    most = shape.rows.results if shape.rows.results > 1 else -(-shape.columns.results // min(tiles)[0])
    values = {
        "columns vectors": tiles,
        "blocks": tuple(blocks for blocks in _BLOCKS if blocks <= most),
        "parts": tuple(parts for parts in _PARTS if any(number % parts == 0 for number in numbers)),
    }
    return ChoiceLists(DirectConvolution.name, values)


def _tiles(shape: _Shape, variant: str) -> tuple[tuple[int, int], ...]:
    """The register tiles, columns by vectors, of which sums and a row of weights fit the registers.

    All tiles of a row are as wide as each other, as far as that can be; panels have few zeros.

    Raises:
        BuildError: there is no such variant.
    """
    lanes, registers = _registers(variant)
    columns = shape.columns
    use = {
        vectors: shape.groups * shape.filters / (shape.panels(vectors, lanes) * vectors * lanes) for vectors in _VECTORS
    }
    if use[1] < _LEAST_USE or columns.kernel > _MOST_KERNEL:
        return ()
    found = []
    for vectors in (each for each in _VECTORS if use[each] >= _LEAST_FILLED * use[1]):
        for width in even_widths(columns.results, _COLUMNS):
            fits = width * vectors + vectors + 1 <= registers and width * vectors >= min(4, columns.results)
            if fits and (has_written_edges(columns, width) or inner_tiles(columns, width)):
                found.append((width, vectors))
    return tuple(found)


def _is_shared(shape: _Shape, tiling: Tiling, lanes: int) -> bool:
    """Whether each block has rows or tiles, and each part as many panels."""
    extent = shape.rows.results
    if extent == 1:
        extent = max(1, inner_tiles(shape.columns, tiling.columns))
    is_whole = tiling.blocks <= extent and -(-extent // -(-extent // tiling.blocks)) == tiling.blocks
    return is_whole and shape.panels(tiling.vectors, lanes) % tiling.parts == 0


def _tiling(tile: tuple[int, int], blocks: int, parts: int) -> Tiling:
    return Tiling(*tile, blocks, parts)


def _registers(variant: str) -> tuple[int, int]:
    return lanes_and_registers(variant, "direct convolutions")


def _shape(found: Contraction) -> _Shape:
    return _Shape(found.images, found.rows, found.columns, found.channels, found.filters, found.groups)
