"""Products of matrices and convolutions of 1 x 1 with packed weights and large register tiles, in fp32.

MetaSchedule's sketches keep the sums in memory between parts of a reduction, and tile the rows by a divisor of their
number.  Here the whole sum of a tile is in registers, and a tile has the rows that fill them.  A sum of thousands of
products may be taken in a few parts (`product_tiles`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.reading import Joined, joined
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.product_tiles import Tiling, make_tiles
from kintune.compiler.programs.stages import with_stages
from kintune.compiler.programs.vector_variants import lanes_and_registers, vector_variant
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["TiledProduct"]

_TILES = {
    32: ((6, 4), (7, 4), (14, 2), (12, 2), (9, 3), (8, 3), (5, 4), (4, 4), (8, 2), (16, 1), (8, 1), (5, 5)),
    16: ((6, 2), (4, 3), (5, 2), (4, 2), (3, 4), (12, 1), (8, 1)),
}
"""Register tiles of rows by vectors, by the number of vector registers."""

_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_DEPTHS = (2, 3, 4, 6, 8)
_LEAST_DEEP = 3072  # products of a sum that may be taken in parts ...
_LEAST_DEPTH = 256  # ... of at least so many
_DEEP = "deep"  # ends the name of a variant that takes sums in parts
_LEAST_FLOPS = 1e6  # of a product that is worth a kernel of its own
_LEAST_USE = 0.2  # of the columns, which are filled up to whole vectors
_MOST_FILLED = 0.9  # of that use, for tiles whose vectors do not divide those of the columns
_FIRST = 32  # candidates of the rule

_BYTES_A_CYCLE = 24.0  # of a core, from its second cache
_COLD_BYTES_A_CYCLE = 6.0  # from memory
_TASK_CYCLES = 500.0
_OWN = 0.75  # of the second cache, for the data and the panel of a depth
_FAR = 1.1  # times as long where they do not fit there
_WAY = 4096  # bytes of a way of the first cache
_OF_WAYS = 0.75  # of the ways of a set, for the rows of a tile
_EVICTED = 1.6  # times as long where rows evict each other


class _Size(NamedTuple):
    """The numbers of rows and columns of a product, and of what is summed; read from the workload once."""

    positions: int
    filters: int
    channels: int

    def vectors(self, lanes: int) -> int:
        """The vectors of all columns, the last of which may be filled up with zeros."""
        return -(-self.filters // lanes)

    def panels(self, tiling: Tiling, lanes: int) -> int:
        """The panels of all columns, the last of which may be filled up with zeros."""
        return -(-self.filters // (tiling.vectors * lanes))

    def is_whole(self, tiling: Tiling, lanes: int) -> bool:
        """Whether each part has as many panels, and columns fill them if the sum is taken in parts."""
        is_filled = self.filters % (tiling.vectors * lanes) == 0
        return self.panels(tiling, lanes) % tiling.parts == 0 and (tiling.depths == 1 or is_filled)


class TiledProduct:
    """Writes a product with constant weights; its variants are lanes and registers, as in "16x32".

    The decisions are the register tile, blocks of the rows, and parts of the panels (`product_tiles.Tiling`).  The
    variant "16x32deep" takes sums in parts; how many is a fourth decision.
    """

    name = "tiled"
    version = 2
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """One variant for a large enough product with at most an epilogue, if a register tile fits it.

        There is a second one where the sum is long enough to be taken in parts.
        """
        variant = vector_variant(target)
        matched = _matched(module) if variant else None
        if matched is None or matched.found.flops < _LEAST_FLOPS:
            return ()
        size = _size(matched.found)
        if not _tiles(size, variant):
            return ()
        target_type = (matched.found.result if matched.epilogue is None else matched.epilogue.target).dtype
        is_deep = bool(_depths(size, _lanes(variant))) and str(target_type) == "float32"
        return (variant, variant + _DEEP) if is_deep else (variant,)

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...] | None:
        """The choices of tile, blocks and parts, and of depths.

        Raises:
            BuildError: the workload is no such product, or there is no such variant of it.
        """
        return _choices(_size(_found(module).found), variant).axes()

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """The workload with the program in the place of its product.

        Raises:
            BuildError: the workload is no such product, the decisions are not its own, or parts are not whole.
        """
        matched = _found(module)
        size = _size(matched.found)
        tiling = _tiling(*_choices(size, variant).picked(decisions))
        lanes = _lanes(variant)
        if not size.is_whole(tiling, lanes):
            raise BuildError(f"{tiling.parts} parts of {tiling.vectors} vectors do not divide {size.filters} columns")
        stages = make_tiles(matched.found, lanes, tiling, matched.epilogue)
        return with_stages(matched.module, matched.found, stages, matched.epilogue)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """The decisions of the least estimated times."""
        size, lanes = _size(_found(module).found), _lanes(variant)

        def cost(*values: Any) -> float | None:
            tiling = _tiling(*values)
            return _estimated_cycles(size, tiling, lanes, machine) if size.is_whole(tiling, lanes) else None

        return _choices(size, variant).cheapest(_FIRST, cost)


def _estimated_cycles(size: _Size, tiling: Tiling, lanes: int, machine: Processor) -> float:
    """The estimated cycles of the core that has most tasks."""
    if tiling.depths == 1:
        return _cycles_of_depth(size, tiling, lanes, machine, size.channels)
    part = size._replace(channels=size.channels // tiling.depths)
    rows, columns = tiling.groups(size.positions) * tiling.rows, size.filters / tiling.parts
    kept = 4 * part.channels * (rows + tiling.vectors * lanes)
    far = 1.0 if kept <= _OWN * machine.caches[1] else _FAR
    turns = -(-tiling.blocks * tiling.parts // machine.threads)
    moved = turns * 2 * (tiling.depths - 1) * 4 * rows * columns / _BYTES_A_CYCLE
    return tiling.depths * far * _cycles_of_depth(part, tiling, lanes, machine, size.channels) + moved


def _cycles_of_depth(size: _Size, tiling: Tiling, lanes: int, machine: Processor, pitch: int) -> float:
    """The estimated cycles of one depth, which sums `size.channels` products; rows of data lie `pitch` values apart."""
    turns = -(-tiling.blocks * tiling.parts // machine.threads)
    panels = size.panels(tiling, lanes) // tiling.parts
    bytes_of_panel = size.channels * tiling.vectors * lanes * 4
    products = size.channels * max(tiling.rows * tiling.vectors / 2, (tiling.rows + tiling.vectors) / 2)
    if tiling.rows * math.gcd(4 * pitch, _WAY) / _WAY > _OF_WAYS * machine.caches[0] / _WAY:
        products *= _EVICTED
    fits = bytes_of_panel <= 0.6 * machine.caches[0]
    tile = max(products, 0.0 if fits else bytes_of_panel / _BYTES_A_CYCLE) + 3.0 * tiling.rows * tiling.vectors
    first = max(0.0, bytes_of_panel / _COLD_BYTES_A_CYCLE - tile)  # the first tile of a panel waits for memory
    return turns * (panels * (tiling.groups(size.positions) * tile + first) + _TASK_CYCLES)


def _matched(module: tvm.IRModule) -> Joined | None:
    """The workload's product, where what follows can be computed in vectors along its columns."""
    matched = joined(module)
    if matched is None or not _is_product(matched.found):
        return None
    return matched if matched.epilogue is None or matched.epilogue.is_vectorised else None


def _is_product(found: Contraction) -> bool:
    """Whether each row of the result depends on one row of the data."""
    return all(
        reach.kernel == 1 and reach.before == 0 and (reach.results - 1) * reach.stride < reach.size
        for reach in (found.rows, found.columns)
    )


def _found(module: tvm.IRModule) -> Joined:
    matched = _matched(module)
    if matched is None:
        raise BuildError("the workload is no product with constant weights")
    return matched


def _choices(size: _Size, variant: str) -> ChoiceLists:
    """The register tiles that fit, numbers of blocks of rows, and numbers of parts of the columns.

    Raises:
        BuildError: there is no such variant, or no register tile fits.
    """
    tiles = _tiles(size, variant)
    if not tiles:
        raise BuildError(f"no register tile of {variant} fits {size.positions} rows by {size.filters} columns")
    least = min(rows for rows, _ in tiles)
    vectors = size.vectors(_lanes(variant))
    numbers = [vectors, *sorted({-(-vectors // width) for _, width in tiles})]
    values = {
        "rows vectors": tiles,
        "blocks": tuple(blocks for blocks in _BLOCKS if blocks == 1 or blocks * least <= size.positions),
        "parts": tuple(dict.fromkeys(parts for number in numbers for parts in _PARTS if number % parts == 0)),
        **({"depths": _depths(size, _lanes(variant))} if variant.endswith(_DEEP) else {}),
    }
    return ChoiceLists(TiledProduct.name, values)


def _tiles(size: _Size, variant: str) -> tuple[tuple[int, int], ...]:
    """The register tiles for so many columns; none where these would be mostly zeros, filled up to whole vectors.

    Tiles whose vectors divide those of the columns are the first.

    Raises:
        BuildError: there is no such variant.
    """
    lanes, registers = lanes_and_registers(variant.removesuffix(_DEEP), "products")
    vectors = size.vectors(lanes)
    if size.filters < _LEAST_USE * vectors * lanes:
        return ()
    known = [tile for tile in _TILES[registers] if tile[0] <= size.positions]
    dividing = [tile for tile in known if vectors % tile[1] == 0]
    filled = [
        tile for tile in known if vectors % tile[1] and vectors >= _MOST_FILLED * -(-vectors // tile[1]) * tile[1]
    ]
    return (*dividing, *filled)


def _depths(size: _Size, lanes: int) -> tuple[int, ...]:
    """The numbers of parts that a sum may be taken in; none if it is short, or the columns are no whole vectors."""
    if size.channels < _LEAST_DEEP or size.filters % lanes:
        return ()
    return tuple(n for n in _DEPTHS if size.channels % n == 0 and size.channels // n >= _LEAST_DEPTH)


def _tiling(tile: tuple[int, int], blocks: int, parts: int, depths: int = 1) -> Tiling:
    return Tiling(*tile, blocks, parts, depths)


def _size(found: Contraction) -> _Size:
    return _Size(found.positions, found.filters, found.channels)


def _lanes(variant: str) -> int:
    return int(variant.partition("x")[0])
