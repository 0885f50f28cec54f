"""First candidates by rule instead of at random.

The rule describes fast dense kernels on CPUs: an innermost tile whose accumulators stay in vector registers during a
reduction (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 2008), whole tiles for
each core, and a reduction in one piece or in a few.  It depends only on a sketch's axes and steps, so it applies to any
workload.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from kintune.core.candidate import Candidate, Choice, Decision, Location, NamedChoice, Sketch, Tile
from kintune.search.bounds import bounds_of, divisors
from kintune.search.gpu_rules import gpu_rule_candidates
from kintune.search.processor import Processor
from kintune.search.streams import stream_candidates

__all__ = ["rule_candidates"]


class _Shape(msgspec.Struct, frozen=True):
    """One way to fill a sketch.

    `vectors` is the length of a row of the register tile, in vectors.  `unroll` is the limit of unrolling.
    `channels_outside` splits the channels over the cores instead of the rows.  `producer_inside` computes a producer
    (padding) inside the tile.  `square` lets the register tile span two axes.  `piece` is the longest piece of a
    reduction; 0 means that it stays whole.
    """

    vectors: int
    unroll: int
    channels_outside: bool
    producer_inside: bool
    square: bool
    piece: int = 0


_BASE = _Shape(vectors=2, unroll=64, channels_outside=False, producer_inside=False, square=False)


def rule_candidates(sketches: Sequence[Sketch], machine: Processor, limit: int) -> list[Candidate]:
    """Return at most `limit` distinct candidates for one workload, the most promising first; deterministic."""
    if any(map(bounds_of, sketches)):  # loops are bound to threads
        return gpu_rule_candidates(sketches, limit)
    ordered = sorted(sketches, key=_preference)
    found: dict[Candidate, None] = {}
    for candidate in _woven(stream_candidates(ordered, machine), _filled(ordered, machine)):
        if len(found) >= limit:
            break
        found.setdefault(candidate)
    return list(found)


def _woven(streams: Iterator[Candidate], others: Iterator[Candidate]) -> Iterator[Candidate]:
    """Yield three of `streams`, then one of `others`, and so on; then the rest of `others`."""
    while few := list(itertools.islice(streams, 3)):
        yield from few
        yield from itertools.islice(others, 1)
    yield from others


def _filled(sketches: Sequence[Sketch], machine: Processor) -> Iterator[Candidate]:
    """Yield every shape with every sketch; without tiles, both compute locations first, since one may be invalid."""
    if sketches and not sketches[0].spatial:
        for inside in (False, True):
            yield _fill(sketches[0], machine, msgspec.structs.replace(_BASE, producer_inside=inside))
    for shape in _shapes():
        for sketch in sketches:
            yield _fill(sketch, machine, shape)


def _preference(sketch: Sketch) -> tuple[bool, bool]:
    """Sort key: sketches without factored reductions first, then those whose consumer is computed at the tile."""
    return (b"RFactor" in sketch.trace, b"ReverseComputeAt" not in sketch.trace)


def _shapes() -> Iterator[_Shape]:
    yield _BASE
    yield msgspec.structs.replace(_BASE, channels_outside=True)
    yield msgspec.structs.replace(_BASE, producer_inside=True)
    for piece, vectors, unroll, outside, inside, square in itertools.product(
        (0, 64, 16), (2, 4, 1), (64, 512, 16), (False, True), (False, True), (False, True)
    ):
        yield _Shape(vectors, unroll, outside, inside, square, piece)


def _fill(sketch: Sketch, machine: Processor, shape: _Shape) -> Candidate:
    spatial = sketch.spatial
    tiles = _spatial_tiles([_tile(sketch, i) for i in spatial], machine, shape)
    decisions: list[Decision] = []
    for i, axis in enumerate(sketch.axes):
        if i in spatial:
            decisions.append(tiles[spatial.index(i)])
        elif isinstance(axis, Tile):
            decisions.append(_reduction_tile(axis, shape.piece if spatial else machine.lanes))
        elif isinstance(axis, Choice):
            decisions.append((_nearest(axis.values, shape.unroll),))
        elif isinstance(axis, NamedChoice):
            decisions.append(axis.values[0])
        else:
            decisions.append(_location(axis, len(spatial), shape))
    return Candidate(sketch.workload, sketch.digest, tuple(decisions))


def _tile(sketch: Sketch, index: int) -> Tile:
    axis = sketch.axes[index]
    if not isinstance(axis, Tile):
        raise TypeError(f"axis {index} of sketch {sketch.digest} is no tile")
    return axis


def _spatial_tiles(axes: Sequence[Tile], machine: Processor, shape: _Shape) -> list[Decision]:
    """Return the factors: register tile innermost, the rest outside.  The last axis is the contiguous one."""
    if not axes:
        return []
    last = len(axes) - 1
    inner = [1] * len(axes)
    inner[last] = _vector_tile(axes[last], machine, shape.vectors)
    rows = max(1, (machine.registers - 4) // -(-inner[last] // machine.lanes))
    for i in range(last - 1, -1, -1):
        limit = min(rows, axes[i].max_inner)
        if shape.square and i == last - 1 and rows >= 4:
            limit = max(1, rows // 2)
        inner[i] = max(d for d in divisors(axes[i].extent) if d <= limit)
        rows //= inner[i]
    tiles: list[Decision] = []
    for i, axis in enumerate(axes):
        rest = axis.extent // inner[i]
        outermost = (i == last) == shape.channels_outside
        middle = (1,) * (axis.parts - 3)
        tiles.append((rest, 1, *middle, inner[i]) if outermost else (1, rest, *middle, inner[i]))
    return tiles


def _vector_tile(axis: Tile, machine: Processor, vectors: int) -> int:
    """Return the width of the register tile: a power of two, since compilers scalarise other widths."""
    limit = min(axis.max_inner, vectors * machine.lanes)
    return max(d for d in divisors(axis.extent) if d <= limit and d & (d - 1) == 0)


def _reduction_tile(axis: Tile, piece: int) -> Decision:
    """Return the factors of a reduction in pieces of at most `piece` iterations; 0 leaves it whole."""
    limit = piece or axis.extent
    inner = max(d for d in divisors(axis.extent) if d <= limit)
    return (*(1,) * (axis.parts - 2), axis.extent // inner, inner)


def _location(axis: Location, spatial: int, shape: _Shape) -> Decision:
    """Return where a producer is computed: at the root, or inside the tile loops (after the second spatial level).

    Without tiles (softmax, norms), the base shape computes it inside the first two loops, where it stays in the cache.
    """
    if spatial:
        return (min(axis.choices - 1, 2 * spatial - 1),) if shape.producer_inside else (-1,)
    return (-1,) if shape.producer_inside else (min(axis.choices - 1, 1),)


def _nearest(values: Sequence[int], wanted: int) -> int:
    return min(range(len(values)), key=lambda i: abs(values[i] - wanted))
