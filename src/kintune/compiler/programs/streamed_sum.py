"""Products and convolutions with few positions, in fp32, whose time is that of reading their weights.

MetaSchedule's sketches tile positions and filters by divisors of their numbers, and sum into memory.  Here all
positions are in the register tile, if they fit, so that each weight is read once; places of the kernel that meet
nothing but zeros at all positions are not read at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.reading import Joined, joined
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.stages import with_stages
from kintune.compiler.programs.streamed_loops import Streaming, live_part, stream_sum
from kintune.compiler.programs.vector_variants import lanes_and_registers, vector_variant
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["MOST_POSITIONS", "StreamedSum"]

MOST_POSITIONS = 16
"""The most positions of a sum whose time is that of reading its weights from the last cache."""

_MOST_ROWS_OF_PRODUCT = 3  # where vectors divide the filters, the tiled program has tiles of four rows and more
_VECTORS = (1, 2, 3, 4, 6, 8)
_WAYS = (1, 2, 4)
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_AHEAD = (0, 2048, 8192)
_MOST_ROWS = 24  # of a register tile
_LEAST_WEIGHTS = 4096  # of a sum that is worth a kernel of its own
_LEAST_USE = 0.6  # of the panels' columns, the share that is not zeros of padding
_FIRST = 32  # candidates of the rule

_NEAR_BYTES, _FAR_BYTES, _FETCHED_BYTES = 40.0, 8.0, 8.5
"""Bytes a cycle and core: from the second cache, from the shared one, and from that with prefetches."""

_ASKING = 1.2  # times as long, where weights are prefetched that are near anyway

_NEAR, _OWN = 0.6, 0.7  # of the first and second cache, for weights
_LATENCY = 4.0  # cycles of a sum
_LAUNCH_CYCLES = 1500.0  # until other threads have begun
_TASK_CYCLES = 100.0
_STORED_CYCLES = 4.0  # for a vector of sums


class _Size(NamedTuple):
    """The numbers of positions and filters of a sum, and of values that each result is the sum of."""

    positions: int
    filters: int
    depth: int


class StreamedSum:
    """Writes a sum of products with constant weights; its variants are lanes and registers, as in "16x32".

    The decisions are the register tile, the independent sums of a result, the parts of the panels, and the distance at
    which weights are prefetched (`streamed_loops.Streaming`).
    """

    name = "streamed"
    version = 2
    patterns: tuple[str, ...] = ()

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """One variant for a sum of few positions with at most an epilogue, if a register tile fits it."""
        variant = vector_variant(target)
        matched = joined(module) if variant else None
        if matched is None or not _is_worth(matched.found, _registers(variant)[0]):
            return ()
        return (variant,) if _tiles(_size(matched.found), variant) else ()

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...] | None:
        """The choices of tile, ways, parts and distance.

        Raises:
            BuildError: the workload is no such sum, or there is no such variant of it.
        """
        return _choices(_size(_found(module).found), variant).axes()

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """The workload with the program in the place of its sum.

        Raises:
            BuildError: the workload is no such sum, or the decisions are not its own or make no program.
        """
        matched = _found(module)
        size = _size(matched.found)
        streaming = _streaming(*_choices(size, variant).picked(decisions))
        lanes, registers = _registers(variant)
        if not _fits(streaming, registers):
            raise BuildError(f"{streaming.ways} sums of {streaming.rows} x {streaming.vectors} vectors do not fit")
        if not _is_shared(size, streaming, lanes):
            raise BuildError(
                f"{streaming.parts} parts of panels of {streaming.vectors} vectors do not fit {size.filters} filters"
            )
        stages = stream_sum(matched.found, lanes, streaming, matched.epilogue)
        return with_stages(matched.module, matched.found, stages, matched.epilogue)

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """The products with zeros around the data that are left out at all positions."""
        found = _found(module).found
        size = _size(found)
        return found.flops - 2.0 * size.positions * size.filters * size.depth

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """The decisions of the least estimated times."""
        size, (lanes, registers) = _size(_found(module).found), _registers(variant)

        def cost(*values: Any) -> float | None:
            streaming = _streaming(*values)
            is_whole = _fits(streaming, registers) and _is_shared(size, streaming, lanes)
            return _estimated_cycles(size, streaming, lanes, machine) if is_whole else None

        return _choices(size, variant).cheapest(_FIRST, cost)


def _estimated_cycles(size: _Size, streaming: Streaming, lanes: int, machine: Processor) -> float:
    """The estimated cycles of the core that has most tasks."""
    rows, vectors, ways, parts, ahead = streaming
    width = vectors * lanes
    panels = -(-size.filters // width)
    own = -(-panels // parts)
    tasks = -(-parts // machine.threads)
    groups = -(-size.positions // rows)
    panel_bytes = 4.0 * size.depth * width
    weights = panel_bytes * panels / min(parts, machine.threads)
    is_near = weights <= _OWN * machine.caches[1]
    first = _NEAR_BYTES if is_near else _FETCHED_BYTES if ahead else _FAR_BYTES
    # a weight that is used once need not be loaded to a register first; a prefetch takes a load's slot
    loads = (rows * vectors if rows == 1 else rows) + vectors + (vectors if ahead else 0)
    each = max(rows * vectors / 2, loads / 2, _LATENCY / ways)
    again = 0.0 if panel_bytes <= _NEAR * machine.caches[0] else 4.0 * width / _NEAR_BYTES
    sums = size.depth * (max(each, 4.0 * width / first) + (groups - 1) * max(each, again))
    stored = groups * rows * vectors * (_STORED_CYCLES + ways)
    cycles = tasks * (own * (sums + stored) + _TASK_CYCLES) + (_LAUNCH_CYCLES if parts > 1 else 0.0)
    return cycles * (_ASKING if ahead and is_near else 1.0)


def _found(module: tvm.IRModule) -> Joined:
    matched = joined(module)
    if matched is None:
        raise BuildError("the workload is no sum of products with constant weights")
    return matched


def _choices(size: _Size, variant: str) -> ChoiceLists:
    """The register tiles, ways, parts and distances.

    Raises:
        BuildError: there is no such variant, or no register tile fits.
    """
    tiles = _tiles(size, variant)
    if not tiles:
        raise BuildError(f"no register tile of {variant} fits {size.positions} positions by {size.filters} filters")
    lanes, registers = _registers(variant)
    least = min(rows * vectors for rows, vectors in tiles)
    most = max(-(-size.filters // (vectors * lanes)) for _, vectors in tiles)
    values = {
        "rows vectors": tiles,
        "ways": tuple(ways for ways in _WAYS if ways == 1 or (ways * least <= registers and ways <= size.depth)),
        "parts": tuple(parts for parts in _PARTS if parts <= most),
        "ahead": _AHEAD,
    }
    return ChoiceLists(StreamedSum.name, values)


def _tiles(size: _Size, variant: str) -> tuple[tuple[int, int], ...]:
    """The register tiles, positions by vectors, that fit the registers and leave few of the columns to zeros.

    Raises:
        BuildError: there is no such variant.
    """
    lanes, registers = _registers(variant)
    heights = sorted({-(-size.positions // groups) for groups in range(1, size.positions + 1)}, reverse=True)
    found = []
    for rows, vectors in itertools.product(heights, _VECTORS):
        width = vectors * lanes
        used = size.filters / (-(-size.filters // width) * width)
        if rows <= _MOST_ROWS and used >= _LEAST_USE and _fits(Streaming(rows, vectors, 1, 1, 0), registers):
            found.append((rows, vectors))
    return tuple(found)


def _fits(streaming: Streaming, registers: int) -> bool:
    """Whether the sums of a tile are in registers, with a row of weights where several positions use it."""
    weights = streaming.vectors if streaming.rows > 1 else 0
    return streaming.rows * streaming.vectors * streaming.ways + weights <= registers - (not weights)


def _is_shared(size: _Size, streaming: Streaming, lanes: int) -> bool:
    """Whether each of the parts has panels."""
    panels = -(-size.filters // (streaming.vectors * lanes))
    return -(-panels // -(-panels // streaming.parts)) == streaming.parts


def _streaming(tile: tuple[int, int], ways: int, parts: int, ahead: int) -> Streaming:
    return Streaming(*tile, ways, parts, ahead)


def _registers(variant: str) -> tuple[int, int]:
    return lanes_and_registers(variant, "sums with few positions")


def _size(found: Contraction) -> _Size:
    kernel = live_part(found.rows).reach.kernel * live_part(found.columns).reach.kernel
    return _Size(found.positions, found.filters, kernel * found.channels)


def _is_worth(found: Contraction, lanes: int) -> bool:
    """Whether reading the weights limits the speed of the sum, and the tiled program does not do that as fast."""
    size = _size(found)
    if size.positions > MOST_POSITIONS or size.filters * size.depth < _LEAST_WEIGHTS:
        return False
    return not found.is_direct or size.positions <= _MOST_ROWS_OF_PRODUCT or size.filters % lanes != 0
