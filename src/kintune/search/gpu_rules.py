"""First candidates for GPUs, by rule.

The rule describes fast dense kernels on GPUs: a block of some hundred threads, each of which keeps a tile of sums in
registers; the threads share a piece of both operands and step through the reduction together (Volkov and Demmel,
"Benchmarking GPUs to Tune Dense Linear Algebra", SC 2008).  Like `kintune.search.rules` it depends only on a sketch's
axes and steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kintune.core.candidate import Candidate, Choice, Decision, Sketch, Tile
from kintune.search.bounds import admits, divisors

__all__ = ["gpu_rule_candidates"]

_SMALL = 8  # a reduction of at most so many iterations (as of a kernel window) is not split


class _Shape(NamedTuple):
    """One way to fill a sketch.

    `threads` is the size of a block.  The register tile of a thread has `rows` by `columns` elements, the columns along
    the contiguous axis; `virtual` is the number of virtual threads along each.  `piece` is the largest part of the
    reduction that is in shared memory at once, `fetch` the length of vector loads, `unroll` the limit of unrolling.
    """

    threads: int
    rows: int
    columns: int
    virtual: int
    piece: int
    fetch: int
    unroll: int


def gpu_rule_candidates(sketches: Sequence[Sketch], limit: int) -> list[Candidate]:
    """Return at most `limit` distinct candidates for one workload, the most promising first; deterministic."""
    found: dict[Candidate, None] = {}
    for shape in _shapes():
        for sketch in sketches:
            candidate = _fill(sketch, shape)
            if admits(sketch, candidate.decisions):
                found.setdefault(candidate)
            if len(found) >= limit:
                return list(found)
    return list(found)


def _shapes() -> Iterator[_Shape]:
    tiles = ((4, 4), (8, 4), (2, 4), (4, 2), (8, 8), (1, 4), (2, 2), (4, 1), (1, 1))
    for (rows, columns), threads, piece, virtual, fetch, unroll in itertools.product(
        tiles, (256, 128, 64), (16, 8, 32), (1, 2), (4, 1), (64, 512, 16)
    ):
        yield _Shape(threads, rows, columns, virtual, piece, fetch, unroll)


def _fill(sketch: Sketch, shape: _Shape) -> Candidate:
    spatial = [i for i, axis in enumerate(sketch.axes) if isinstance(axis, Tile) and axis.parts > 3]
    tiles = _spatial_tiles([axis for i in spatial if isinstance(axis := sketch.axes[i], Tile)], shape)
    piece = shape.piece
    decisions: list[Decision] = []
    for i, axis in enumerate(sketch.axes):
        if i in spatial:
            decisions.append(tiles[spatial.index(i)])
        elif isinstance(axis, Tile):
            inner = axis.extent if axis.extent <= _SMALL else _largest(axis.extent, piece)
            decisions.append(
                (axis.extent // inner, *(1,) * (axis.parts - 2), inner) if axis.parts > 1 else (axis.extent,)
            )
        elif isinstance(axis, Choice):
            wanted = shape.fetch if max(axis.values) <= _SMALL else shape.unroll
            decisions.append((min(range(len(axis.values)), key=lambda j: abs(axis.values[j] - wanted)),))
        else:
            decisions.append((-1,))
    return Candidate(sketch.workload, sketch.digest, tuple(decisions))


def _spatial_tiles(axes: Sequence[Tile], shape: _Shape) -> list[Decision]:
    """Return the factors: blocks, virtual threads, threads, register tile.  The last axis is the contiguous one."""
    if not axes:
        return []
    last = len(axes) - 1
    row = max(range(last), key=lambda i: axes[i].extent, default=last)  # the first one of equal extents
    own = [1] * len(axes)
    own[last] = _largest(axes[last].extent, shape.columns)
    if row != last:
        own[row] = _largest(axes[row].extent, shape.rows)
    rest = [axis.extent // inner for axis, inner in zip(axes, own, strict=True)]
    virtual = [_largest(rest[i], shape.virtual) if i in (row, last) else 1 for i in range(len(axes))]
    rest = [extent // each for extent, each in zip(rest, virtual, strict=True)]
    threads = [1] * len(axes)
    wanted = shape.threads
    for i in sorted(range(len(axes)), key=lambda i: (i != last, i != row, -i)):
        # at most 16 threads along the contiguous axis, so that both operands are read in pieces
        limit = wanted if i != last or row == last else max(1, min(wanted, 16))
        threads[i] = _largest(rest[i], limit)
        wanted = max(1, wanted // threads[i])
    decisions: list[Decision] = []
    for i, axis in enumerate(axes):
        middle = (1,) * (axis.parts - 4)
        decisions.append((rest[i] // threads[i], virtual[i], threads[i], *middle, own[i]))
    return decisions


def _largest(extent: int, limit: int) -> int:
    """Return the largest divisor of `extent` that is at most `limit`."""
    return max(d for d in divisors(extent) if d <= limit)
