"""Winograd's convolution, F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3): less arithmetic than the direct one.

Weights are transformed when the network is built, data and products when it runs.  What follows the convolution is
computed where the last transform has its values, if it is elementwise.  There are two programs.  Both write all loops,
so that a block of tiles stays in the cache from its data to its results.  `BlockedWinograd` multiplies in fp32,
`NarrowWinograd` in bf16.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tvm

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.cost import Calls, Loop, Tasks, cycles_of_tasks
from kintune.compiler.kernels.instructions import PAIRS, WORD_BYTES, Instruction, best, fused, is_available
from kintune.compiler.kernels.reading import Joined, joined
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.programs.kept_parameters import is_plain
from kintune.compiler.programs.panel_sum import BF16
from kintune.compiler.programs.tiling_program import SumProgram
from kintune.compiler.programs.winograd_blocked import Blocking, make_blocks, product_kernel
from kintune.compiler.programs.winograd_narrow import NARROW, make_narrow_blocks
from kintune.compiler.programs.winograd_tiles import Geometry
from kintune.compiler.programs.winograd_transforms import KERNEL
from kintune.errors import BuildError
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["BlockedWinograd", "NarrowWinograd"]

OPERATIONS = {2: (32, 24), 4: (144, 120)}
"""Operations of the transforms of one tile of data, and of one tile of results, by size of tiles."""

_MOVED = 72  # loads and stores of a transform, with the values that do not fit into registers
_OWN = 0.75  # of the second cache, for a block
_PASSES = 3.0  # over what is transformed where it does not stay there: fetched to be written, written, and read
_SIZES = (4, 2)
_LANES = (16, 8, 4)
_SHARE = 0.8  # of the direct convolution's arithmetic, above which a variant is not offered
_BEHIND = 1.4  # times the estimate of the fastest size, above which a size is not offered
_SLOWER = 4.0  # an operation of a transform takes this many times as long as one of a product

_NARROW_SIZE = 2
_FUSED = fused(NARROW.lanes, NARROW.registers)
_NARROW_SLOWER = 8.0  # as `_SLOWER`, where products are of bf16

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)
_VECTORS = (1, 2, 3, 4)
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_MOST_VALUES = 1 << 23  # of a block of tiles and its products
_PARTS = (1, 2, 4, 8)


class _Case(NamedTuple):
    """A workload, and the geometry of a variant; with the `greatest`, it is written for any tiles up to these."""

    sums: Joined
    g: Geometry
    greatest: Geometry | None = None


class _Blocked(SumProgram[_Case, Blocking]):
    """What the programs have in common: the blockings are those of `winograd_blocked`."""

    tiling = Blocking
    multiplies = _FUSED

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The workload, and the geometry of a variant."""
        sums = _required(module)
        return _Case(sums, _of_variant(sums.found, variant))

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """Return how many FLOPs fewer one run takes than the direct convolution.

        Raises:
            BuildError: the workload has no such convolution, or there is no such variant of it.
        """
        (_, found, _), g, _ = self.case(module, variant)
        data, results = OPERATIONS[g.m]
        transforms = data * g.channels + results * g.filters
        return found.flops - int(g.tiles) * (2.0 * g.places * g.channels * g.filters + transforms)

    def lists(self, case: _Case) -> Mapping[str, Sequence[int]]:
        """Rows, vectors, blocks and parts."""
        return _values(case.g)

    def fits(self, case: _Case, tiling: Blocking) -> bool:
        """Whether the parts are whole panels."""
        return case.g.filters % (tiling.vectors * case.g.lanes * tiling.parts) == 0

    def cost(self, case: _Case, tiling: Blocking, machine: Processor) -> float | None:
        """The estimated cycles; None where the sums do not fit the registers, or a block has no tiles."""
        return _cycles(case.g, tiling, machine, self.multiplies)

    def stages(self, case: _Case, tiling: Blocking, kept: frozenset[int]) -> Stages:
        """What transforms, multiplies and transforms back, and what follows."""
        return make_blocks(case.sums.found, case.g, tiling, case.sums.epilogue, case.greatest)


class BlockedWinograd(_Blocked):
    """The program that multiplies in fp32.

    A variant is the size of a tile and the channels that are computed at once, such as "4x16".
    """

    name = "winograd_blocked"
    version = 5

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return a variant for each size of tiles that needs clearly less arithmetic than the direct convolution.

        The fastest is the first; sizes that are estimated to be much slower are left out.
        """
        sums, can = _matched(module), capabilities(target)
        machine = Processor.of(can.extensions, can.threads)
        lanes = machine.lanes
        if sums is None or lanes not in _LANES:
            return ()
        geometries = {size: _geometry(sums.found, size, lanes) for size in _SIZES}
        cycles = {size: _least_cycles(g, machine) for size, g in geometries.items() if _share(g, sums.found) <= _SHARE}
        least = min(cycles.values(), default=0.0)
        kept = [size for size in sorted(cycles, key=cycles.__getitem__) if cycles[size] <= _BEHIND * least]
        return tuple(f"{size}x{lanes}" for size in kept)

    def opened(self, case: _Case, greatest: _Case) -> _Case:
        """The workload, to be written for any image, if borders are as wide."""
        before = [(each.sums.found.rows.before, each.sums.found.columns.before) for each in (case, greatest)]
        if before[0] != before[1]:
            return super().opened(case, greatest)
        return case._replace(greatest=greatest.g)


class NarrowWinograd(_Blocked):
    """The program that multiplies in bf16, in vectors.

    Tiles are of 2 x 2 results.  Those of 4 x 4 would be off by 2 % where a direct convolution in bf16 is off by 0.2 %,
    and these by 0.3 % (normal data and weights, norm of the difference over norm of the result).
    """

    name = "winograd_narrow"
    version = 2
    precision = BF16
    multiplies = NARROW

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return the one variant, where it computes clearly less than a direct convolution.

        There is none where the CPU multiplies tiles of bf16: so fast that the transforms would cost more.
        """
        if not is_available(NARROW, target) or best(PAIRS, target, tiles=True) is not None:
            return ()
        if (sums := _matched(module)) is None:
            return ()
        share = _share(_geometry(sums.found, _NARROW_SIZE, NARROW.lanes), sums.found, _NARROW_SLOWER)
        return (f"{_NARROW_SIZE}x{NARROW.lanes}",) if share <= _SHARE else ()

    def instructions(self, variant: str) -> tuple[str, ...]:
        """Return the extensions that kernels need, beyond those which any kernel may use."""
        return NARROW.extensions

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """Return the positions of the parameters that may be of bf16: data, what is stored, and what is read with it.

        None is rounded in any case: data is transformed before that.

        Raises:
            BuildError: the workload has no such convolution.
        """
        sums = _required(module)
        return frozenset(at for at in sums.keepable if not rounded and is_plain(sums.module["main"], at))

    def stages(self, case: _Case, tiling: Blocking, kept: frozenset[int]) -> Stages:
        """What transforms, multiplies in bf16 and transforms back, and what follows."""
        return make_narrow_blocks(case.sums.found, case.g, tiling, case.sums.epilogue)


def _matched(module: tvm.IRModule) -> Joined | None:
    """A workload that is a convolution of 3 x 3 with stride 1, and what can be computed tile by tile with it."""
    sums = joined(module)
    if sums is None or (sums.epilogue is not None and not sums.epilogue.is_vectorised):
        return None
    reaches = (sums.found.rows, sums.found.columns)
    is_plain = all((each.kernel, each.stride, each.dilation) == (KERNEL, 1, 1) for each in reaches)
    return sums if is_plain else None


def _required(module: tvm.IRModule) -> Joined:
    found = _matched(module)
    if found is None:
        raise BuildError("no convolution that Winograd's transforms compute")
    return found


def _values(g: Geometry) -> dict[str, tuple[int, ...]]:
    """Rows, vectors, blocks and parts."""
    most = g.filters // g.lanes
    enough = -(-g.places * g.tiles * (g.channels + g.filters) // _MOST_VALUES)
    return {
        "rows": tuple(rows for rows in _ROWS if rows <= g.tiles),
        "vectors": tuple(vectors for vectors in _VECTORS if most % vectors == 0),
        "blocks": tuple(blocks for blocks in _BLOCKS if enough <= blocks <= g.tiles) or _BLOCKS[-1:],
        "parts": tuple(parts for parts in _PARTS if most % parts == 0),
    }


def _least_cycles(g: Geometry, machine: Processor) -> float:
    blockings = itertools.starmap(Blocking, itertools.product(*_values(g).values()))
    return min(each for each in (_cycles(g, b, machine) for b in blockings) if each is not None)


def _cycles(g: Geometry, b: Blocking, machine: Processor, multiplies: Instruction = _FUSED) -> float | None:
    """The estimated cycles of the core that has the most tasks, with products by this instruction.

    None where the sums and one row of weights are not in registers, or the parts are no whole panels.
    """
    panels, width = g.filters // (b.vectors * g.lanes), -(-g.lanes // machine.lanes)
    in_registers = (b.rows + 1) * b.vectors * width + 1 <= machine.registers
    if not in_registers or panels % b.parts or b.blocks * b.rows > g.tiles + b.rows:
        return None
    tiles, filters = -(-g.tiles // (b.blocks * b.rows)) * b.rows, g.filters // b.parts
    size, steps = WORD_BYTES // multiplies.step, -(-g.channels // multiplies.step)
    kernel = product_kernel(g, b)._replace(instruction=multiplies, vectors=b.vectors * width, steps=steps)
    data, results = ((each + _MOVED) for each in OPERATIONS[g.m])
    transforms = Loop(tiles / machine.lanes, data * g.channels + results * filters)
    weights, own = size * g.places * g.channels * filters, g.places * tiles * (size * g.channels + 4 * filters)
    far, shared = weights / b.blocks, weights * (1 - 1 / b.blocks)  # one of a part's tasks reads weights from memory
    shared += _PASSES * own if own > _OWN * machine.caches[1] else 0.0
    products = Calls(kernel, g.places * tiles / b.rows * panels / b.parts)
    return cycles_of_tasks(Tasks(b.blocks * b.parts, (products, transforms), shared=shared, far=far), machine)


def _geometry(convolution: Contraction, size: int, lanes: int) -> Geometry:
    high, wide = -(-convolution.rows.results // size), -(-convolution.columns.results // size)
    vectors = -(-convolution.filters // lanes)
    return Geometry(size, lanes, convolution.images, high, wide, convolution.channels, vectors * lanes)


def _share(g: Geometry, convolution: Contraction, slower: float = _SLOWER) -> float:
    """The arithmetic over that of the direct convolution; an operation of a transform counts `slower` times."""
    data, results = OPERATIONS[g.m]
    transforms = slower * (data * g.channels + results * g.filters)
    return int(g.tiles) * (2 * g.places * g.channels * g.filters + transforms) / convolution.flops


def _of_variant(found: Contraction, variant: str) -> Geometry:
    size, _, lanes = variant.partition("x")
    if not (size.isdecimal() and lanes.isdecimal() and int(size) in _SIZES and int(lanes) in _LANES):
        raise BuildError(f"Winograd's convolution has no variant {variant}")
    return _geometry(found, int(size), int(lanes))
