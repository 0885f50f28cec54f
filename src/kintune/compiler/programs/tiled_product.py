"""Products of matrices and convolutions of 1 x 1 with packed weights and large register tiles, in fp32.

MetaSchedule's sketches keep a tile of the sums in memory between parts of the reduction, and choose its size among the
divisors of the extents.  Here the whole sum of a tile is in registers, and a tile has the rows that fill them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tvm

from kintune.compiler.programs.epilogue import Epilogue, joined
from kintune.compiler.programs.product_tiles import Blocking, make_tiles
from kintune.compiler.programs.stages import with_stages
from kintune.compiler.programs.weighted_sum import WeightedSum, find_weighted_sum
from kintune.core.candidate import Axis, Choice, Decision
from kintune.errors import BuildError
from kintune.runtime.target import extensions_of
from kintune.search.processor import Processor

__all__ = ["TiledProduct"]

_TILES = {32: ((6, 4), (7, 4), (14, 2), (12, 2), (9, 3), (8, 3), (5, 4), (4, 4)), 16: ((6, 2), (5, 2), (4, 2), (3, 4))}
"""Register tiles of rows by vectors, by the number of vector registers."""

_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_PARTS = (1, 2, 4, 8, 16)
_DEPTHS = (0, 64, 128, 256, 512)
_LEAST_FLOPS = 1e6
_MOST_WASTE = 0.15
_FIRST = 32


class _Matched(NamedTuple):
    module: tvm.IRModule
    found: WeightedSum
    epilogue: Epilogue | None


class TiledProduct:
    """Writes a product with constant weights; its variants are lanes and registers, as in "16x32".

    The decisions are the register tile, blocks of rows, parts of the panels, and the depth of a part of the sum.
    """

    name = "tiled"
    version = 1
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """One, where vectors of the target divide the columns and nothing is left beside the product."""
        if target.kind.name != "llvm":
            return ()
        machine = Processor.of(extensions_of(target), 1)
        matched = _matched(module)
        if machine.registers not in _TILES or matched is None or matched.found.flops < _LEAST_FLOPS:
            return ()
        variant = f"{machine.lanes}x{machine.registers}"
        return (variant,) if _tiles(matched.found, variant) else ()

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...] | None:
        """The choices of tile, blocks, parts and depth.

        Raises:
            BuildError: the workload is no such product.
        """
        choices = _choices(_found(module), variant)
        return tuple(Choice(tuple(range(len(values))), (1.0 / len(values),) * len(values)) for values in choices)

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """The workload with the program in the place of its product.

        Raises:
            BuildError: the workload is no such product, the decisions are not its own, or parts are not whole.
        """
        matched = _matched(module)
        if matched is None:
            raise BuildError("no product with constant weights")
        found, choices = matched.found, _choices(matched.found, variant)
        if len(decisions) != len(choices):
            raise BuildError(f"{self.name} has {len(choices)} decisions, not {len(decisions)}")
        (rows, vectors), blocks, parts, depth = (values[at] for values, (at,) in zip(choices, decisions, strict=True))
        lanes = _lanes(variant)
        if found.filters % (vectors * lanes * parts):
            raise BuildError(f"{parts} parts of {vectors} vectors do not divide {found.filters} columns")
        stages = make_tiles(found, lanes, Blocking(rows, vectors, blocks, parts, depth), matched.epilogue)
        return with_stages(matched.module, found, stages, matched.epilogue)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """The decisions of the least estimated times."""
        found = _found(module)
        tiles, blocks, parts, depths = _choices(found, variant)
        lanes = _lanes(variant)
        ranked = []
        for t, (rows, vectors) in enumerate(tiles):
            for b, block in enumerate(blocks):
                for p, part in enumerate(parts):
                    if found.filters % (vectors * lanes * part):
                        continue
                    for d, depth in enumerate(depths):
                        blocking = Blocking(rows, vectors, block, part, depth)
                        ranked.append((_cycles(found, blocking, lanes, machine), ((t,), (b,), (p,), (d,))))
        return [decisions for _, decisions in sorted(ranked)[:_FIRST]]


def _cycles(found: WeightedSum, b: Blocking, lanes: int, machine: Processor) -> float:
    """The estimated cycles of the core with the most tasks."""
    tasks = b.blocks * b.parts
    turns = -(-tasks // machine.threads)
    groups = -(-found.positions // (b.blocks * b.rows))
    panels = found.filters // (b.vectors * lanes * b.parts)
    depth = b.depth or found.channels
    cuts = -(-found.channels // depth)
    tile = found.channels * max(b.rows * b.vectors / 2, (b.rows + b.vectors) / 2)
    inside = depth * b.vectors * lanes * 4 <= 0.6 * machine.caches[0]
    from_second = 0.0 if inside else found.channels * b.vectors * lanes * 4 / _BYTES
    waiting = 2.0 * b.rows * b.vectors * cuts if cuts > 1 else 0.0
    weights = panels * found.channels * b.vectors * lanes * 4
    return turns * (groups * panels * (max(tile, from_second) + 2 * b.rows * b.vectors + waiting) + weights / 8 + 500)


_BYTES = 24.0


def _matched(module: tvm.IRModule) -> _Matched | None:
    """The workload with what follows in one block, its product, and that block; None where more is left."""
    found = find_weighted_sum(module)
    if found is None or not _is_product(found):
        return None
    if len(found.nests) == len(found.replaced):
        return _Matched(module, found, None)
    follows = joined(module, found.name)
    if follows is None or not follows[1].is_vectorised:
        return None
    found = find_weighted_sum(follows[0])
    if found is None or not _is_product(found) or len(found.nests) != len(found.replaced) + 1:
        return None
    return _Matched(follows[0], found, follows[1])


def _is_product(found: WeightedSum) -> bool:
    """Whether each row of the result is of one row of the data."""
    single = all(reach.kernel == 1 and reach.before == 0 for reach in (found.rows, found.columns))
    return single and len(found.replaced) == 1


def _found(module: tvm.IRModule) -> WeightedSum:
    matched = _matched(module)
    if matched is None:
        raise BuildError("no product with constant weights")
    return matched.found


def _lanes(variant: str) -> int:
    return int(variant.partition("x")[0])


def _tiles(found: WeightedSum, variant: str) -> tuple[tuple[int, int], ...]:
    lanes, _, registers = variant.partition("x")
    fitting = [t for t in _TILES[int(registers)] if found.filters % (t[1] * int(lanes)) == 0]
    return tuple(tile for tile in fitting if tile[0] <= found.positions)


def _choices(found: WeightedSum, variant: str) -> tuple[tuple, ...]:  # type: ignore[type-arg]
    """The values of tile, blocks, parts and depth."""
    tiles = _tiles(found, variant)
    least = min(rows for rows, _ in tiles)
    vectors = found.filters // _lanes(variant)
    return (
        tiles,
        tuple(blocks for blocks in _BLOCKS if blocks * least <= found.positions),
        tuple(parts for parts in _PARTS if vectors % parts == 0),
        tuple(depth for depth in _DEPTHS if depth < found.channels),
    )
