"""Depthwise convolutions with register tiles of results along a row, in fp32.

MetaSchedule's sketches copy the data with zeros around it first, and sum into memory.  Here nothing is copied, all
products of a result are summed in registers, and what follows the convolution is computed there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import tvm

from kintune.compiler.kernels.contraction import DEPTHWISE, Reach
from kintune.compiler.kernels.cost import Loop, Tasks, cycles_of_tasks
from kintune.compiler.kernels.image_tiles import (
    edges,
    even_widths,
    has_written_edges,
    is_contended,
    is_shared,
    tiles_of,
)
from kintune.compiler.kernels.instructions import LINE_BYTES, WORD_BYTES
from kintune.compiler.kernels.reading import Joined, joined
from kintune.compiler.kernels.stages import Stages
from kintune.compiler.programs.depthwise_loops import Tiling, convolve_depthwise, strips_of
from kintune.compiler.programs.tiling_program import SumProgram
from kintune.compiler.programs.vector_variants import VectorCase, vector_variant
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["DepthwiseConvolution"]

_COLUMNS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_VECTORS = (1, 2, 3, 4)
_BLOCKS = (1, 2, 4, 7, 8, 14, 16, 28, 32)
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_MOST_PRODUCTS = 320  # that are written out for a row of the kernel
_LEAST_FLOPS = 2e4  # of a convolution that is worth a kernel of its own

_INSIDE = 0.6  # of the first cache, for rows that are read again


class DepthwiseConvolution(SumProgram[VectorCase, Tiling]):
    """Writes a depthwise convolution with constant weights; its variants are lanes and registers, as in "16x32"."""

    name = "depthwise"
    version = 3
    tiling = Tiling

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """One variant for a large enough convolution with at most an epilogue, if a register tile fits its rows."""
        variant = vector_variant(target)
        matched = _matched(module) if variant else None
        if matched is None or matched.found.flops < _LEAST_FLOPS:
            return ()
        return (variant,) if _tiles(self.case(module, variant)) else ()

    def case(self, module: tvm.IRModule, variant: str) -> VectorCase:
        """The workload, and how a variant computes it."""
        matched = _found(module)
        reaches = matched.found.rows, matched.found.columns
        return VectorCase.of(matched, reaches, variant, "depthwise convolutions")

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """The positions of the parameters that may be of bf16; none of them is rounded in any case.

        Raises:
            BuildError: the workload is no such convolution.
        """
        return frozenset() if rounded else _found(module).keepable

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """The products with zeros around the data, which are left out."""
        found = _found(module).found
        down, across = (
            sum(len(tile.products) for tile in tiles_of(reach, reach.results)) for reach in (found.rows, found.columns)
        )
        return found.flops - 2.0 * found.images * found.filters * down * across

    def lists(self, case: VectorCase) -> Mapping[str, Sequence[Any]]:
        """The register tiles, numbers of blocks of rows and of parts of the channels, and the two orders.

        Raises:
            BuildError: no register tile fits.
        """
        tiles = _tiles(case)
        if not tiles:
            raise BuildError(f"no register tile fits rows of {case.columns.results} results")
        most = max(strips_of(case.channels, vectors * case.lanes).number for _, vectors in tiles)
        return {
            "columns vectors": tiles,
            "blocks": tuple(blocks for blocks in _BLOCKS if blocks <= case.rows.results),
            "parts": tuple(parts for parts in _PARTS if parts <= most),
            "tall": (0, 1),
        }

    def fits(self, case: VectorCase, tiling: Tiling) -> bool:
        """Whether each block has rows and each part has strips."""
        strips = strips_of(case.channels, tiling.vectors * case.lanes).number
        return is_shared(case.rows.results, tiling.blocks) and is_shared(strips, tiling.parts)

    def cost(self, case: VectorCase, tiling: Tiling, machine: Processor) -> float:
        """The estimated cycles of the core that has most tasks."""
        rows, columns, channels = case.rows, case.columns, case.channels
        strips = strips_of(channels, tiling.vectors * case.lanes)
        own_rows, own = -(-rows.results // tiling.blocks), -(-strips.number // tiling.parts)
        times = own_rows * min(own, channels / strips.width)  # that a row of a strip is computed
        pixel = WORD_BYTES * strips.width
        line = float(columns.size * pixel)
        is_inside = rows.kernel * line * (1 if tiling.tall else own) <= _INSIDE * machine.caches[0]
        again = min(rows.stride, rows.kernel) if is_inside else rows.kernel
        if tiling.tall or not is_inside:  # whole cache lines are fetched, and are gone when the next strip reads them
            line *= max(1.0, LINE_BYTES / pixel)
        read = times * again * line
        loops = _loops_of_row(rows.kernel, columns, tiling.columns, tiling.vectors)
        contended = own_rows * columns.results if is_contended(tiling.parts, strips.width * own, channels) else 0
        number = case.images * tiling.blocks * tiling.parts
        tasks = Tasks(number, loops, times, contended=contended)
        return cycles_of_tasks(tasks._replace(own=read) if tiling.tall else tasks._replace(order=read), machine)

    def stages(self, case: VectorCase, tiling: Tiling, kept: frozenset[int]) -> Stages:
        """What computes the convolution, and what follows it."""
        return convolve_depthwise(case, tiling)

    def opened(self, case: VectorCase, greatest: VectorCase) -> VectorCase:
        """The workload, to be written for any image, if kernels meet the borders in the same way."""
        return case.opened(greatest) or super().opened(case, greatest)


@lru_cache(256)
def _loops_of_row(height: int, reach: Reach, width: int, vectors: int) -> tuple[Loop, ...]:
    """What computes a row of one strip; the kernel has `height` rows."""
    places = {
        tile: {t * reach.stride + j * reach.dilation for t, j in tile.products} for tile in tiles_of(reach, width)
    }
    kinds = Counter((len(tile.products), len(read) + reach.kernel) for tile, read in places.items())
    products = [
        Loop(n * height, multiplied * vectors, loaded * vectors, waits=reach.kernel, starts=n)
        for (multiplied, loaded), n in kinds.items()
    ]
    return (*products, Loop(reach.results * vectors, products=2, stores=1))


def _matched(module: tvm.IRModule) -> Joined | None:
    """The workload's convolution, where what follows can be computed in vectors along its channels."""
    matched = joined(module, kinds=(DEPTHWISE,))
    return matched if matched is None or matched.epilogue is None or matched.epilogue.is_vectorised else None


def _found(module: tvm.IRModule) -> Joined:
    matched = _matched(module)
    if matched is None:
        raise BuildError("the workload is no depthwise convolution with constant weights")
    return matched


def _tiles(case: VectorCase) -> tuple[tuple[int, int], ...]:
    """The register tiles, columns by vectors, of which sums and a row of weights fit the registers.

    All tiles of a row are as wide as each other, as far as that can be.
    """
    results, kernel = case.columns.results, case.columns.kernel
    widths = even_widths(results, _COLUMNS)
    most = -(-case.channels // case.lanes)
    found = []
    for vectors in (each for each in _VECTORS if each <= most):
        for columns in widths:
            fits = columns * vectors + min(kernel, 4) + 1 <= case.registers
            is_short = columns * vectors * kernel <= _MOST_PRODUCTS
            has_tiles = sum(edges(case.columns, columns)) < len(tiles_of(case.columns, columns))
            if fits and is_short and (has_tiles or has_written_edges(case.columns, columns)):
                found.append((columns, vectors))
    return tuple(found)
