"""Sums of products with constant weights in fp32: products of matrices and convolutions, in vectors along the filters.

MetaSchedule's sketches keep sums in memory between parts of a reduction, tile positions and filters by divisors of
their numbers, and copy an image with zeros around it.  Here all of a tile's sum is in registers, tiles need not divide
anything, and nothing is copied (`vector_sum`).

A sum with few positions uses each weight a few times only, so it takes as long as its weights take to be read.  If all
positions fit one tile, each weight is read once, as one stream.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.contraction import DENSE, GROUPED, Contraction, Reach
from kintune.compiler.kernels.instructions import fused
from kintune.compiler.kernels.reading import Joined, joined, require
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.programs.image_tiles import (
    CONTENDED_CYCLES,
    PAIR_BYTES,
    edges,
    even_widths,
    has_written_edges,
    is_shared,
)
from kintune.compiler.programs.tiling_program import TilingProgram
from kintune.compiler.programs.vector_sum import Tiling, sum_in_vectors
from kintune.compiler.programs.vector_variants import lanes_and_registers, vector_variant
from kintune.compiler.programs.vector_walks import Walk, few_tiles, inner_tiles, live_part
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["VectorSum"]

_KINDS = (DENSE, GROUPED)

_MOST_POSITIONS = 16
"""The most positions of a sum whose time is that of reading its weights from the last cache."""

_TILES = {
    32: ((6, 4), (7, 4), (14, 2), (12, 2), (9, 3), (8, 3), (5, 4), (4, 4), (8, 2), (16, 1), (8, 1), (5, 5)),
    16: ((6, 2), (4, 3), (5, 2), (4, 2), (3, 4), (12, 1), (8, 1)),
}
"""Register tiles of rows by vectors, by the number of vector registers, where positions are many and all alike."""

_WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)
"""Widths of tiles of a row of results, which are made even."""

_VECTORS, _FEW_VECTORS = (1, 2, 3, 4), (1, 2, 3, 4, 6, 8)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_LINES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64)
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_DEPTHS = (2, 3, 4, 6, 8)
_WAYS = (1, 2, 4)
_AHEAD = (0, 2048, 8192)

_LEAST_DEEP, _LEAST_DEPTH = 3072, 256  # products of a sum that may be taken in parts, and of a part
_MOST_ROWS, _MOST_FEW_TILES = 24, 4  # of a tile where positions are few, and of these
_MOST_CALLS = 64  # of the micro-kernel, which are written out
_MOST_KERNEL = 1024  # places of a row of the kernel
_LEAST_WEIGHTS, _LEAST_FLOPS = 4096, 1e6  # of a sum of few positions, or of many, that is worth a kernel of its own
_LEAST_USE, _LEAST_FILLED = 0.2, 0.9  # of the columns, filled up to whole vectors; of that, for tiles of several
_LEAST_FEW_USE = 0.6  # of the columns of panels, where positions are few

_INSIDE, _OWN = 0.6, 0.7
"""Of the first and second cache, for what is read again."""

_AGAIN_BYTES, _NEAR_BYTES, _FAR_BYTES, _FETCHED_BYTES = 24.0, 40.0, 8.0, 8.5
"""Bytes a cycle and core: of a panel again from the second cache; the first time from there, from the shared one, and
from that with prefetches.
"""

_FAR = 1.1  # times as long where data and a panel do not fit in the second cache
_ASKING = 1.2  # times as long where weights are prefetched that are near anyway
_WAY, _OF_WAYS, _EVICTED = 4096, 0.75, 1.6  # rows that share too many of a way's sets take so many times as long
_LATENCY = 4.0  # cycles of a sum
_STORED_CYCLES = 3.0  # of a vector of results
_CALL_CYCLES = 8.0
_SINGLE_CYCLES = 4.0  # of a product of a result that is computed for itself
_TASK_CYCLES, _LAUNCH_CYCLES = 300.0, 1500.0  # of a task; until other threads have begun


class _Shape(NamedTuple):
    """What decisions depend on; read from the workload once.  `depth` values are summed for each result."""

    walk: Walk
    is_few: bool
    images: int
    rows: Reach
    columns: Reach
    channels: int
    filters: int
    groups: int
    positions: int
    heights: tuple[int, ...]

    @property
    def depth(self) -> int:
        """The values that each result is the sum of."""
        return self.rows.kernel * self.columns.kernel * self.channels

    def panels(self, vectors: int, lanes: int) -> int:
        """The panels of the filters of all groups, the last of each group filled up with zeros."""
        return self.groups * -(-self.filters // (vectors * lanes))

    def used(self, vectors: int, lanes: int) -> float:
        """The share of the columns of the panels that are filters."""
        return self.groups * self.filters / (self.panels(vectors, lanes) * vectors * lanes)

    def shared(self, rows: int) -> int:
        """What blocks are parts of: tiles of so many positions, or rows of results."""
        if self.walk is Walk.EVERY:
            return self.positions // rows
        if self.walk is Walk.FEW:
            return 1
        return self.rows.results if self.rows.results > 1 else max(1, inner_tiles(self.columns, rows))


class _Case(NamedTuple):
    """A workload, what decisions depend on, and the lanes and registers of a variant."""

    sums: Joined
    shape: _Shape
    lanes: int
    registers: int


class VectorSum(TilingProgram[_Case, Tiling]):
    """Writes a sum of products with constant weights; its variants are lanes and registers, as in "16x32"."""

    name = "vectors"
    version = 1
    tiling = Tiling

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """One variant for a large enough sum with at most an epilogue, if a register tile fits it."""
        variant = vector_variant(target)
        if not variant or joined(module, kinds=_KINDS) is None:
            return ()
        (_, found, _), shape, lanes, registers = self.case(module, variant)
        is_worth = shape.filters * shape.depth >= _LEAST_WEIGHTS if shape.is_few else found.flops >= _LEAST_FLOPS
        return (variant,) if is_worth and _tiles(shape, lanes, registers) else ()

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The workload, and how a variant computes it."""
        matched = require(module, kinds=_KINDS)
        return _Case(matched, _shape(matched.found), *lanes_and_registers(variant, "sums of products"))

    def lists(self, case: _Case) -> Mapping[str, Sequence[Any]]:
        """The register tiles, numbers of blocks, parts and depths, ways, and distances ahead.

        Raises:
            BuildError: no register tile fits.
        """
        _, shape, lanes, registers = case
        tiles = _tiles(shape, lanes, registers)
        if not tiles:
            raise BuildError(f"no register tile fits {shape.positions} positions of {shape.filters} filters")
        most_panels = max(shape.panels(vectors, lanes) for _, vectors in tiles)
        most_blocks = max(shape.shared(rows) for rows, _ in tiles)
        least = min(rows * vectors for rows, vectors in tiles)
        blocks = _LINES if shape.walk is Walk.LINES else _BLOCKS
        ways = [each for each in _WAYS if shape.is_few and each * least <= registers and each <= shape.depth]
        return {
            "rows vectors": tiles,
            "blocks": (1,) if shape.is_few else tuple(each for each in blocks if each <= most_blocks),
            "parts": tuple(each for each in _PARTS if each <= most_panels),
            "depths": (1, *_depths(shape, lanes)),
            "ways": tuple(ways) or (1,),
            "ahead": _AHEAD if shape.is_few else (0,),
        }

    def fits(self, case: _Case, tiling: Tiling) -> bool:
        """Whether sums are in registers, no block or part is empty, and parts of a deep sum divide the columns."""
        _, shape, lanes, registers = case
        rows, vectors, blocks, parts, depths, ways, _ = tiling
        panels = shape.panels(vectors, lanes)
        is_whole = depths == 1 or not (shape.filters % (vectors * lanes) or panels % parts)
        has_all = is_shared(shape.shared(rows), blocks) and is_shared(panels, parts)
        return is_whole and has_all and _fits(rows, vectors, ways, registers)

    def cost(self, case: _Case, tiling: Tiling, machine: Processor) -> float:
        """The estimated cycles of the core that has most tasks."""
        return _estimated_cycles(case.shape, tiling, case.lanes, machine)

    def stages(self, case: _Case, tiling: Tiling) -> Stages:
        """What computes the sums, and what follows them."""
        (_, found, epilogue), shape, lanes, registers = case
        return sum_in_vectors(found, fused(lanes, registers), tiling, shape.walk, epilogue)

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """The products with zeros around the data that are left out at all positions."""
        found = require(module, kinds=_KINDS).found
        shape = _shape(found)
        return found.flops - 2.0 * shape.positions * shape.filters * shape.depth


def _shape(found: Contraction) -> _Shape:
    rows, columns = (live_part(reach).reach for reach in (found.rows, found.columns))
    is_product, is_few = (
        found.kind == DENSE and found.is_direct,
        found.kind == DENSE and found.positions <= _MOST_POSITIONS,
    )
    walk = Walk.EVERY if is_product else Walk.FEW if is_few else Walk.LINES
    heights = sorted({-(-found.positions // tiles) for tiles in range(1, _MOST_FEW_TILES + 1)}, reverse=True)
    if walk is Walk.FEW:
        heights = [height for height in heights if _calls(found, height) <= _MOST_CALLS]
    positions = found.images * rows.results * columns.results
    return _Shape(
        walk, is_few, found.images, rows, columns, found.channels, found.filters, found.groups,
        found.positions if found.kind == DENSE else positions, tuple(heights),
    )  # fmt: skip


def _calls(found: Contraction, height: int) -> int:
    """The calls of the micro-kernel that are written out, if tiles have so many positions."""
    return sum(len(runs) for tile in few_tiles(found, height) for _, _, runs in tile)


def _depths(shape: _Shape, lanes: int) -> tuple[int, ...]:
    """The numbers of parts that a sum may be taken in; none if it is short, or the columns are no whole vectors."""
    if shape.is_few or shape.walk is not Walk.EVERY or shape.channels < _LEAST_DEEP or shape.filters % lanes:
        return ()
    return tuple(n for n in _DEPTHS if shape.channels % n == 0 and shape.channels // n >= _LEAST_DEPTH)


def _tiles(shape: _Shape, lanes: int, registers: int) -> tuple[tuple[int, int], ...]:
    """The register tiles, positions by vectors; none where these would be mostly zeros, filled up to whole vectors."""
    least = _LEAST_FEW_USE if shape.is_few else _LEAST_FILLED * shape.used(1, lanes)
    if shape.is_few:
        possible = list(itertools.product([each for each in shape.heights if each <= _MOST_ROWS], _FEW_VECTORS))
    elif shape.used(1, lanes) < _LEAST_USE or shape.columns.kernel > _MOST_KERNEL:
        return ()
    elif shape.walk is Walk.EVERY:
        possible = [tile for tile in _TILES[registers] if tile[0] <= shape.positions]
    else:
        widths = even_widths(shape.columns.results, _WIDTHS)
        possible = [tile for tile in itertools.product(widths, _VECTORS) if _fits_line(shape.columns, tile, registers)]
    used = [(rows, vectors) for rows, vectors in possible if shape.used(vectors, lanes) >= least]
    return tuple(tile for tile in used if _fits(*tile, 1, registers))


def _fits_line(columns: Reach, tile: tuple[int, int], registers: int) -> bool:
    """Whether a tile of a row of results has enough sums, a register beside them and a row of weights for the data, and
    does not leave all results to be computed one by one.
    """
    rows, vectors = tile
    is_written = has_written_edges(columns, rows) or inner_tiles(columns, rows) > 0
    return is_written and min(4, columns.results) <= rows * vectors <= registers - vectors - 1


def _fits(rows: int, vectors: int, ways: int, registers: int) -> bool:
    """Whether the sums of a tile are in registers, with a row of weights where several positions use it."""
    weights = vectors if rows > 1 else 0
    return rows * vectors * ways + weights <= registers - (not weights)


def _estimated_cycles(shape: _Shape, tiling: Tiling, lanes: int, machine: Processor) -> float:
    """The estimated cycles of the core that has most tasks."""
    rows, vectors, blocks, parts, depths, ways, ahead = tiling
    own, width = -(-shape.panels(vectors, lanes) // parts), vectors * lanes
    steps = shape.depth // depths
    tasks = (shape.images if shape.walk is Walk.LINES else 1) * blocks * parts
    turns = -(-tasks // machine.threads)
    tiles = _tiles_of_task(shape, tiling)
    # a weight that is used once need not be loaded to a register first; a prefetch takes a load's slot
    loads = (vectors if rows == 1 else rows) + vectors + (vectors if ahead else 0)
    each = max(rows * vectors / 2, loads / 2, _LATENCY / ways)
    pitch = 4 * shape.columns.stride * shape.groups * shape.channels
    if rows * math.gcd(pitch, _WAY) / _WAY > _OF_WAYS * machine.caches[0] / _WAY:
        each *= _EVICTED
    panel_bytes = 4.0 * steps * width
    is_near = (
        panel_bytes * depths * shape.panels(vectors, lanes) / min(parts, machine.threads) <= _OWN * machine.caches[1]
    )
    first = _NEAR_BYTES if is_near else _FETCHED_BYTES if ahead else _FAR_BYTES
    again = 0.0 if panel_bytes <= _INSIDE * machine.caches[0] else 4.0 * width / _AGAIN_BYTES
    calls = _CALL_CYCLES * (1 if shape.walk is Walk.EVERY else shape.rows.kernel)
    stored = _STORED_CYCLES * rows * vectors + (rows * vectors * ways if shape.is_few else 0.0)
    tile = steps * max(each, again) + calls + stored
    begin = steps * max(each, 4.0 * width / first) + calls + stored
    data = 4.0 * tiles * rows * shape.columns.stride * shape.rows.stride * shape.channels / depths
    far = 1.0 if data + panel_bytes <= _OWN * machine.caches[1] else _FAR
    moved = 2 * (depths - 1) * 4 * tiles * rows * own * width / _AGAIN_BYTES
    ends = (4 * own * width, 4 * shape.groups * shape.filters)
    is_contended = parts > 1 and any(end % PAIR_BYTES for end in ends)
    waited = CONTENDED_CYCLES * tiles * rows if is_contended else 0.0
    singles = _SINGLE_CYCLES * shape.depth * _singles_of_task(shape, tiling)
    task = own * (depths * far * ((tiles - 1) * tile + begin) + singles) + moved + waited + _TASK_CYCLES
    asking = _ASKING if ahead and is_near else 1.0
    return turns * task * asking + (_LAUNCH_CYCLES if tasks > 1 else 0.0)


def _tiles_of_task(shape: _Shape, tiling: Tiling) -> float:
    """The tiles of a task, those that are cut off as parts of one."""
    rows, blocks = tiling.rows, tiling.blocks
    if shape.walk is not Walk.LINES:
        full, rest = divmod(shape.positions, rows)
        share = -(-full // blocks)
        return max(share, full - (blocks - 1) * share + rest / rows)
    if shape.rows.results > 1:
        return -(-shape.rows.results // blocks) * shape.columns.results / rows
    return max(1.0, shape.columns.results / rows / blocks)


def _singles_of_task(shape: _Shape, tiling: Tiling) -> int:
    """The results of a task that are computed one by one."""
    if shape.walk is not Walk.LINES or has_written_edges(shape.columns, tiling.rows):
        return 0
    return sum(edges(shape.columns, tiling.rows)) * tiling.rows * -(-shape.rows.results // tiling.blocks)
