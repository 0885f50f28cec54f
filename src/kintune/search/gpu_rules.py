"""First candidates for GPUs, by rule.

The rule describes fast dense kernels on GPUs: a block of some hundred threads, each of which keeps a tile of sums in
registers; the threads share a piece of both operands and step through the reduction together (Volkov and Demmel,
"Benchmarking GPUs to Tune Dense Linear Algebra", SC 2008).  Like `kintune.search.rules` it depends only on a sketch's
axes and steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kintune.core.candidate import Candidate, Choice, Decision, Sketch, Tile
from kintune.search.bounds import admits, divisors

__all__ = ["gpu_rule_candidates"]

_BLOCKS = 128  # a GPU of many multiprocessors has about as many (H100: 132, A100: 108)
_CONTIGUOUS = 16  # threads along the contiguous axis, where there are others
_PIPELINED = b"software_pipeline"  # in the trace of a sketch that copies to shared memory ahead of its use
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
    """Return at most `limit` distinct candidates for one workload, the most promising first; deterministic.

    Tiles that leave multiprocessors without a block come last, those that leave the most without one at the very end.
    """
    plain_first = sorted(sketches, key=lambda sketch: _PIPELINED in sketch.trace)
    filled = [(sketch, _fill(sketch, shape)) for shape in _shapes() for sketch in plain_first]
    admitted = [(sketch, each) for sketch, each in filled if admits(sketch, each.decisions)]
    admitted.sort(key=lambda pair: _missing_doublings(*pair))  # stable: else in the order of shapes
    return list(dict.fromkeys(candidate for _, candidate in admitted))[:limit]


def _shapes() -> Iterator[_Shape]:
    tiles = ((4, 4), (8, 4), (2, 4), (4, 2), (8, 8), (1, 4), (2, 2), (4, 1), (1, 1))
    for fetch, unroll, virtual, piece, threads, (rows, columns) in itertools.product(
        (4, 1), (64, 512, 16), (1, 2), (16, 8, 32), (256, 128, 64), tiles
    ):
        yield _Shape(threads, rows, columns, virtual, piece, fetch, unroll)


def _missing_doublings(sketch: Sketch, candidate: Candidate) -> int:
    """Return how often the blocks of a candidate would have to double until all multiprocessors have one."""
    tiles = sketch.spatial
    blocks = math.prod(candidate.decisions[i][0] for i in tiles) if tiles else _BLOCKS
    return max(0, math.ceil(math.log2(_BLOCKS / blocks)))


def _fill(sketch: Sketch, shape: _Shape) -> Candidate:
    spatial = sketch.spatial
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
        limit = wanted
        if i == last != row:  # both operands are read in pieces, unless the other axes have too little for that
            limit = min(wanted, max(_CONTIGUOUS, wanted // math.prod(rest[:last])))
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
