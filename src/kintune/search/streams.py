"""First candidates for matrix products whose extents allow no good register tile, such as a prime number of rows.

A tile divides its extent, so the tile of 197 rows has 1 or 197 rows.  Two forms are still fast, since the compiler
vectorises their innermost loops.  In the form "panel", a panel of a few iterations of the reduction and some vectors of
columns stays in registers while all rows stream past it.  In the form "row", some columns of one row stay in registers
during the whole reduction.  Both forms were found by search on such products.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from kintune.core.candidate import Candidate, Choice, Decision, Sketch, Tile
from kintune.search.bounds import divisors
from kintune.search.processor import Processor

__all__ = ["needs_streams", "stream_candidates"]

_ROWS = 16  # fewer rows need no such form
_FEW = 4  # a register tile with fewer rows is not good
_MOST = 1024  # columns at a time, at most, where no whole vectors divide them
_SKETCHES = 2  # sketches that the forms are tried with; one may compute the consumer at a bad place


class _Form(msgspec.Struct, frozen=True):
    """What stays in registers: `vectors` of columns, and in a panel `piece` iterations of the reduction."""

    kept: Literal["panel", "row"]
    vectors: int
    piece: int = 1


_FORMS = (_Form("panel", 3, 4), _Form("row", 4), _Form("panel", 4, 4), _Form("panel", 2, 8), _Form("row", 6))


def needs_streams(sketch: Sketch, processor: Processor) -> bool:
    """Return whether the sketch tiles a matrix product that has no good register tile."""
    spatial = sketch.spatial
    if len(spatial) < 2 or len([axis for axis in _reductions(sketch) if axis.extent > 1]) != 1:
        return False
    rows = _rows(sketch)
    if rows is None or _tile(sketch, rows).extent < _ROWS:
        return False
    few = max(d for d in divisors(_tile(sketch, rows).extent) if d < processor.registers // 2) < _FEW
    columns = _tile(sketch, spatial[-1])
    return few or max(d for d in divisors(columns.extent) if d <= processor.lanes) < processor.lanes // 2


def stream_candidates(sketches: Sequence[Sketch], processor: Processor) -> Iterator[Candidate]:
    """Yield candidates of the first sketches that need them, the most promising first."""
    fitting = [sketch for sketch in sketches if needs_streams(sketch, processor)][:_SKETCHES]
    for form in _FORMS:
        for sketch in fitting:
            yield _fill(sketch, processor, form)


def _fill(sketch: Sketch, processor: Processor, form: _Form) -> Candidate:
    rows, last = _rows(sketch), sketch.spatial[-1]
    decisions: list[Decision] = []
    for i, axis in enumerate(sketch.axes):
        if isinstance(axis, Tile) and axis.spatial:
            between = (1,) * (axis.parts - 4)
            if i == last:
                width = _width(axis, processor, form.vectors)
                rest = axis.extent // width
                outer = (1, rest) if form.kept == "panel" else (rest, 1)
                decisions.append((*outer, *between, width, 1))
            elif i == rows:
                loops = (1, 1, *between, axis.extent, 1) if form.kept == "panel" else (1, axis.extent, *between, 1, 1)
                decisions.append(loops)
            else:
                decisions.append((axis.extent, 1, *between, 1, 1))
        elif isinstance(axis, Tile):
            piece = max(d for d in divisors(axis.extent) if d <= form.piece)
            decisions.append((*(1,) * (axis.parts - 2), axis.extent // piece, piece))
        elif isinstance(axis, Choice):
            decisions.append((min(range(len(axis.values)), key=lambda n: abs(axis.values[n] - 16)),))
        else:
            decisions.append((-1,))
    return Candidate(sketch.workload, sketch.digest, tuple(decisions))


def _width(axis: Tile, processor: Processor, vectors: int) -> int:
    """Return the columns at a time: whole vectors if they divide, else at least one vector, else up to `_MOST`."""
    fitting = [d for d in divisors(axis.extent) if d <= vectors * processor.lanes]
    whole = [d for d in fitting if d % processor.lanes == 0]
    if whole or fitting[-1] >= processor.lanes:
        return max(whole or fitting)
    return max(d for d in divisors(axis.extent) if d <= _MOST)


def _rows(sketch: Sketch) -> int | None:
    """Return the axis of the rows: the last one before the columns that has more than one iteration."""
    return next((i for i in reversed(sketch.spatial[:-1]) if _tile(sketch, i).extent > 1), None)


def _reductions(sketch: Sketch) -> list[Tile]:
    return [axis for axis in sketch.axes if isinstance(axis, Tile) and not axis.spatial]


def _tile(sketch: Sketch, index: int) -> Tile:
    axis = sketch.axes[index]
    assert isinstance(axis, Tile)
    return axis
