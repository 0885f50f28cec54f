"""First candidates for products of matrices whose extents leave no register tile: a prime number of rows, say.

A tile divides its extent, so 197 rows come one by one or all at once.  Two forms are fast all the same, since a
compiler turns their innermost loops into vector arithmetic by itself.  In one, a few iterations of the reduction times
some vectors of columns stay in registers while all the rows stream past them; in the other, a row's columns stay in
registers while the reduction streams past.  Both were found by search on such products, and are where it begins now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from kintune.core.candidate import Candidate, Choice, Decision, Sketch, Tile
from kintune.search.bounds import divisors
from kintune.search.processor import Processor

__all__ = ["needs_streams", "stream_candidates"]

_ROWS = 16  # below so many, there is nothing to stream
_FEW = 4  # rows in a register tile that are too few
_MOST = 1024  # of an extent that is taken whole
_SKETCHES = 2  # with which the forms are tried: what follows may be computed at the wrong place in one of them


class _Form(msgspec.Struct, frozen=True):
    """What stays in registers: `vectors` of columns, and `piece` iterations of the reduction if `kept` says so."""

    kept: Literal["panel", "row"]
    vectors: int
    piece: int = 1


_FORMS = (_Form("panel", 3, 4), _Form("row", 4), _Form("panel", 4, 4), _Form("panel", 2, 8), _Form("row", 6))


def needs_streams(sketch: Sketch, machine: Processor) -> bool:
    """Whether the sketch tiles a product of matrices of which no register tile can be made."""
    spatial = _spatial(sketch)
    if len(spatial) < 2 or len([axis for axis in _reductions(sketch) if axis.extent > 1]) != 1:
        return False
    rows = _rows(sketch)
    if rows is None or _tile(sketch, rows).extent < _ROWS:
        return False
    few = max(d for d in divisors(_tile(sketch, rows).extent) if d < machine.registers // 2) < _FEW
    columns = _tile(sketch, spatial[-1])
    return few or max(d for d in divisors(columns.extent) if d <= machine.lanes) < machine.lanes // 2


def stream_candidates(sketches: Sequence[Sketch], machine: Processor) -> Iterator[Candidate]:
    """Candidates of those of the sketches that need it, the most promising first; `sketches` come by preference."""
    fitting = [sketch for sketch in sketches if needs_streams(sketch, machine)][:_SKETCHES]
    for form in _FORMS:
        for sketch in fitting:
            yield _fill(sketch, machine, form)


def _fill(sketch: Sketch, machine: Processor, form: _Form) -> Candidate:
    rows, last = _rows(sketch), _spatial(sketch)[-1]
    decisions: list[Decision] = []
    for i, axis in enumerate(sketch.axes):
        if isinstance(axis, Tile) and axis.parts > 3:
            between = (1,) * (axis.parts - 4)
            if i == last:
                width = _width(axis, machine, form.vectors)
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


def _width(axis: Tile, machine: Processor, vectors: int) -> int:
    """Columns at a time: whole vectors where they divide, else what comes close, else all (the compiler sees to it)."""
    fitting = [d for d in divisors(axis.extent) if d <= vectors * machine.lanes]
    whole = [d for d in fitting if d % machine.lanes == 0]
    if whole or fitting[-1] >= machine.lanes:
        return max(whole or fitting)
    return max(d for d in divisors(axis.extent) if d <= _MOST)


def _rows(sketch: Sketch) -> int | None:
    """The axis of the rows: the last one of more than one iteration that comes before the columns."""
    return next((i for i in reversed(_spatial(sketch)[:-1]) if _tile(sketch, i).extent > 1), None)


def _spatial(sketch: Sketch) -> list[int]:
    return [i for i, axis in enumerate(sketch.axes) if isinstance(axis, Tile) and axis.parts > 3]


def _reductions(sketch: Sketch) -> list[Tile]:
    return [axis for axis in sketch.axes if isinstance(axis, Tile) and axis.parts <= 3]


def _tile(sketch: Sketch, index: int) -> Tile:
    axis = sketch.axes[index]
    assert isinstance(axis, Tile)
    return axis
