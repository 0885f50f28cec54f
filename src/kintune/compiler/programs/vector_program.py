"""Sums of products with constant weights in fp32: products of matrices and convolutions, in vectors along the filters.

MetaSchedule's sketches keep sums in memory between parts of a reduction, tile positions and filters by divisors of
their numbers, and copy an image with zeros around it.  Here all of a tile's sum is in registers, tiles need not divide
anything, and nothing is copied (`kernels.tiled_rows`).

A sum with few positions uses each weight a few times only, so it takes as long as its weights take to be read.  If all
positions fit one tile, each weight is read once, as one stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.calls import address
from kintune.compiler.kernels.contraction import DENSE, GROUPED, Contraction, Reach
from kintune.compiler.kernels.cost import Work
from kintune.compiler.kernels.image_tiles import (
    edges,
    even_widths,
    has_written_edges,
    inner_tiles,
    is_shared,
)
from kintune.compiler.kernels.instructions import fused
from kintune.compiler.kernels.loops import buffer, index
from kintune.compiler.kernels.microkernel import Kernel
from kintune.compiler.kernels.nest import Nest, Panels, Share, Target, tasks
from kintune.compiler.kernels.packing import packing_block
from kintune.compiler.kernels.reading import joined, require
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.kernels.tiled_rows import TiledRows, Walk, few_tiles, live_part, walk_of
from kintune.compiler.programs.prologue import compute_all_rows, has_rows
from kintune.compiler.programs.tiling_program import NestProgram
from kintune.compiler.programs.vector_variants import VectorCase, vector_variant
from kintune.errors import BuildError

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

_UNROLL = 4
"""Values of a sum that are taken in a turn of the innermost loop.

Of many that are written out, the compiler would put all products of a result side by side, which wait for each other.
"""

_LEAST_DEEP, _LEAST_DEPTH = 3072, 256  # products of a sum that may be taken in parts, and of a part
_MOST_ROWS, _MOST_FEW_TILES = 24, 4  # of a tile where positions are few, and of these
_MOST_CALLS = 64  # of the micro-kernel, which are written out
_MOST_KERNEL = 1024  # places of a row of the kernel
_LEAST_WEIGHTS, _LEAST_FLOPS = 4096, 1e6  # of a sum of few positions, or of many, that is worth a kernel of its own
_LEAST_USE, _LEAST_FILLED = 0.2, 0.9  # of the columns, filled up to whole vectors; of that, for tiles of several
_LEAST_FEW_USE = 0.6  # of the columns of panels, where positions are few

_SINGLE_CYCLES = 4.0  # of a product of a result that is computed for itself


class Tiling(NamedTuple):
    """Tiles of `rows` positions by `vectors` of filters; `blocks` of the tiles by `parts` of the panels are the tasks.

    Blocks are of rows of results if these are walked through, and there are several.

    A sum is taken in so many `depths`: all tiles and panels of a task for one depth, then for the next; the results
    hold the sums meanwhile.  So what is read stays in a core's own cache.  Each result has `ways` independent sums.
    Weights are prefetched `ahead` bytes before they are read; with 0, all tiles of a block together prefetch the next
    panel, if they are enough.
    """

    rows: int
    vectors: int
    blocks: int = 1
    parts: int = 1
    depths: int = 1
    ways: int = 1
    ahead: int = 0


class VectorSum(NestProgram[VectorCase, Tiling]):
    """Writes a sum of products with constant weights; its variants are lanes and registers, as in "16x32"."""

    name = "vectors"
    version = 1
    tiling = Tiling

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """One variant for a large enough sum with at most an epilogue, if a register tile fits it."""
        variant = vector_variant(target)
        if not variant or joined(module, kinds=_KINDS, prologues=True) is None:
            return ()
        case = self.case(module, variant)
        if not has_rows(case.sums.found):
            return ()
        is_worth = case.sums.found.flops >= _LEAST_FLOPS
        if _is_few(case):
            is_worth = case.filters * _depth(case) >= _LEAST_WEIGHTS
        return (variant,) if is_worth and _tiles(case) else ()

    def case(self, module: tvm.IRModule, variant: str) -> VectorCase:
        """The workload, and how a variant computes it."""
        sums = require(module, kinds=_KINDS, prologues=True)
        reaches = live_part(sums.found.rows).reach, live_part(sums.found.columns).reach
        return VectorCase.of(sums, reaches, variant, "sums of products")

    def lists(self, case: VectorCase) -> Mapping[str, Sequence[Any]]:
        """The register tiles, numbers of blocks, parts and depths, ways, and distances ahead.

        Raises:
            BuildError: no register tile fits.
        """
        tiles, is_few = _tiles(case), _is_few(case)
        if not tiles:
            raise BuildError(f"no register tile fits {case.positions} positions of {case.filters} filters")
        most_panels = max(_panels(case, vectors) for _, vectors in tiles)
        most_blocks = max(_shared(case, rows) for rows, _ in tiles)
        least = min(rows * vectors for rows, vectors in tiles)
        blocks = _LINES if _walk(case) is Walk.LINES else _BLOCKS
        ways = [each for each in _WAYS if is_few and each * least <= case.registers and each <= _depth(case)]
        return {
            "rows vectors": tiles,
            "blocks": (1,) if is_few else tuple(each for each in blocks if each <= most_blocks),
            "parts": tuple(each for each in _PARTS if each <= most_panels),
            "depths": (1, *_depths(case)),
            "ways": tuple(ways) or (1,),
            "ahead": _AHEAD if is_few else (0,),
        }

    def fits(self, case: VectorCase, tiling: Tiling) -> bool:
        """Whether sums are in registers, no block or part is empty, and parts of a deep sum divide the columns."""
        rows, vectors, blocks, parts, depths, ways, _ = tiling
        panels = _panels(case, vectors)
        is_whole = depths == 1 or not (case.filters % (vectors * case.lanes) or panels % parts)
        has_all = is_shared(_shared(case, rows), blocks) and is_shared(panels, parts)
        return is_whole and has_all and _fits(rows, vectors, ways, case.registers)

    def work(self, case: VectorCase, tiling: Tiling) -> Work:
        """What the tasks do."""
        kernel, walk, depths = _kernel(case, tiling), _walk(case), tiling.depths
        own, tiles = -(-_panels(case, tiling.vectors) // tiling.parts), _tiles_of_task(case, tiling)
        pixel = 4 * case.columns.stride * case.groups * case.channels
        moved = 2 * (depths - 1) * tiles * tiling.rows * own * kernel.line
        return Work(
            kernel,
            tiles,
            own * depths,
            (case.images if walk is Walk.LINES else 1) * tiling.blocks * tiling.parts,
            4 * case.columns.stride * case.rows.stride * case.channels / depths,
            copied=moved,
            prepared=_SINGLE_CYCLES * _depth(case) * _singles_of_task(case, tiling),
            parts=tiling.parts,
            pitch=pixel,
        )

    def stages(self, case: VectorCase, tiling: Tiling, kept: frozenset[int]) -> Stages:
        """What computes the sums, and what follows them."""
        found, kernel, walk = case.sums.found, _kernel(case, tiling), _walk(case)
        rows = TiledRows(found, walk, tiling.rows, tiling.blocks, case.most, case.outside)
        if found.prologue is not None:
            compute_all_rows(found, rows)
        number, panel = _panels(case, tiling.vectors), tiling.vectors * case.lanes
        packed = buffer("panels", (number, rows.depth, panel), "float32", "global")

        def weight(group: Any, value: Any, column: Any) -> Any:
            return rows.weight(value, column, group)

        def addresses(o: Any, offset: Any) -> list[Any]:
            return [address(packed, o * index(rows.depth * panel) + offset)]

        nest = Nest(
            found.name,
            rows,
            Panels(number, [packed], addresses, groups=case.groups),
            Target(found.result, case.filters, case.sums.epilogue),
            (Share.of(kernel),),
            tiling.parts,
            asked=0 if tiling.ahead else kernel.unroll,
            depths=tiling.depths,
        )
        packing = packing_block("panels", packed, found.weights, weight, case.filters, number // case.groups)
        return Stages([packing, tasks(nest)], [packed])

    def opened(self, case: VectorCase, greatest: VectorCase) -> VectorCase:
        """The workload, to be written for any number of positions, if kernels meet the borders in the same way."""
        opened = case.opened(greatest)
        if opened is None or _walk(greatest) is Walk.FEW or case.sums.found.prologue is not None:
            return super().opened(case, greatest)
        return opened

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """The products with zeros around the data that are left out at all positions."""
        case = self.case(module, variant)
        return case.sums.found.flops - 2.0 * case.positions * case.filters * case.groups * _depth(case)


def _is_few(case: VectorCase) -> bool:
    return case.sums.found.kind == DENSE and case.positions <= _MOST_POSITIONS


def _walk(case: VectorCase) -> Walk:
    found = case.sums.found
    if case.most:
        return Walk.EVERY if found.rows.is_plain and found.columns.is_plain and found.kind == DENSE else Walk.LINES
    return walk_of(found, _MOST_POSITIONS)


def _depth(case: VectorCase) -> int:
    """The values that each result is the sum of."""
    return case.rows.kernel * case.columns.kernel * case.channels


def _panels(case: VectorCase, vectors: int) -> int:
    """The panels of the filters of all groups, the last of each group filled up."""
    return case.groups * -(-case.filters // (vectors * case.lanes))


def _used(case: VectorCase, vectors: int) -> float:
    """The share of the columns of the panels that are filters."""
    return case.groups * case.filters / (_panels(case, vectors) * vectors * case.lanes)


def _shared(case: VectorCase, rows: int) -> int:
    """What blocks are parts of: tiles of so many positions, or rows of results."""
    walk = _walk(case)
    if walk is not Walk.LINES:
        return case.positions // rows if walk is Walk.EVERY else 1
    return case.rows.results if case.rows.results > 1 else max(1, inner_tiles(case.columns, rows))


def _kernel(case: VectorCase, tiling: Tiling) -> Kernel:
    """The kernel of a whole tile and a depth."""
    steps = _depth(case) // tiling.depths
    return Kernel(
        fused(case.lanes, case.registers), tiling.rows, tiling.vectors, steps, min(_UNROLL, steps), adds=True,
        apart=True, ways=tiling.ways, ahead=tiling.ahead,
    )  # fmt: skip


def _heights(case: VectorCase) -> list[int]:
    """The heights of tiles that take few positions in at most so many tiles."""
    found = case.sums.found
    heights = {-(-case.positions // tiles) for tiles in range(1, _MOST_FEW_TILES + 1)}
    kept = [height for height in sorted(heights, reverse=True) if height <= _MOST_ROWS]
    return kept if _walk(case) is Walk.EVERY else [height for height in kept if _calls(found, height) <= _MOST_CALLS]


def _calls(found: Contraction, height: int) -> int:
    """The calls of the micro-kernel that are written out, if tiles have so many positions."""
    return sum(len(runs) for tile in few_tiles(found, height) for _, _, runs in tile)


def _depths(case: VectorCase) -> tuple[int, ...]:
    """The numbers of parts that a sum may be taken in; none if it is short, or the columns are no whole vectors."""
    if _is_few(case) or _walk(case) is not Walk.EVERY or case.channels < _LEAST_DEEP or case.filters % case.lanes:
        return ()
    return tuple(n for n in _DEPTHS if case.channels % n == 0 and case.channels // n >= _LEAST_DEPTH)


def _tiles(case: VectorCase) -> tuple[tuple[int, int], ...]:
    """The register tiles, positions by vectors; none where these would be mostly zeros, filled up to whole vectors."""
    is_few, registers = _is_few(case), case.registers
    least = _LEAST_FEW_USE if is_few else _LEAST_FILLED * _used(case, 1)
    if case.sums.found.prologue is not None and not is_few:  # each task computes all rows
        return ()
    if is_few:
        possible = list(itertools.product(_heights(case), _FEW_VECTORS))
    elif _used(case, 1) < _LEAST_USE or case.columns.kernel > _MOST_KERNEL:
        return ()
    elif _walk(case) is Walk.EVERY:
        possible = [tile for tile in _TILES[registers] if tile[0] <= case.positions]
    else:
        widths = even_widths(case.columns.results, _WIDTHS)
        possible = [tile for tile in itertools.product(widths, _VECTORS) if _fits_line(case.columns, tile, registers)]
    used = [(rows, vectors) for rows, vectors in possible if _used(case, vectors) >= least]
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


def _tiles_of_task(case: VectorCase, tiling: Tiling) -> float:
    """The tiles of a task, those that are cut off as parts of one."""
    rows, blocks = tiling.rows, tiling.blocks
    if _walk(case) is not Walk.LINES:
        full, rest = divmod(case.positions, rows)
        share = -(-full // blocks)
        return max(share, full - (blocks - 1) * share + (_step(rest, tiling) / _step(rows, tiling) if rest else 0.0))
    if case.rows.results > 1:
        return -(-case.rows.results // blocks) * case.columns.results / rows
    return max(1.0, case.columns.results / rows / blocks)


def _step(rows: int, tiling: Tiling) -> float:
    """About the vector instructions of a step of a tile of so many rows."""
    return max(rows * tiling.vectors, rows + tiling.vectors, 8 / tiling.ways)


def _singles_of_task(case: VectorCase, tiling: Tiling) -> int:
    """The results of a task that are computed one by one."""
    if _walk(case) is not Walk.LINES or has_written_edges(case.columns, tiling.rows):
        return 0
    return sum(edges(case.columns, tiling.rows)) * tiling.rows * -(-case.rows.results // tiling.blocks)
