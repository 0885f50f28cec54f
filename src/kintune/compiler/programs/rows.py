"""Writes a function that is passes over rows (see `row_passes`) so that each row is read from memory once.

Rows are distributed over threads, and all passes over a row follow one another while it lies in the cache.  Sums and
other reductions run in many independent accumulators, since a compiler may not reorder them by itself.  Halves of the
accumulators are combined until one is left.  Values that are costly and used by two passes are kept for the row.

Where the elements of a row do not lie side by side but those of neighbouring rows do, neighbouring rows are computed
together (see `row_lanes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tvm
from tvm import relax, tirx

from kintune.compiler.kernels.loops import as_root, buffer, index, loop, nested, over_rows, sequence
from kintune.compiler.programs.row_lanes import by_lanes
from kintune.compiler.programs.row_passes import Binding, Pass, Rows, read_rows
from kintune.compiler.programs.row_text import calls_functions, lane_loop, stores, strides_of, written
from kintune.compiler.programs.wrapping import without_wrapping
from kintune.compiler.tir import names_called

__all__ = ["LANES", "row_statement", "write_rows"]

LANES = 64
"""Accumulators of a reduction, and rows that are computed together."""

_COSTLY = frozenset(f"tirx.{name}" for name in ("erf", "exp", "log", "pow", "sigmoid", "tanh"))
_COSTLY_LANES = 16
"""Accumulators of a reduction over values of functions such as exp: the arithmetic of a vector fills the registers."""

_VECTORIZED = tirx.ForKind.VECTORIZED
_KEPT = 256 << 10
"""Bytes of a row that are kept at most; beyond them it is computed again."""

_LEAST_LENGTH = 64
"""Columns from which on the number of a row may be divided into indices; see `over_rows`."""


def write_rows(function: tvm.tirx.PrimFunc, lanes: int = LANES, *, is_open: bool = False) -> tvm.tirx.PrimFunc | None:
    """The function written in passes over rows; None where it is no such function, and where it is a mere reshape.

    A reshape has to stay recognisable, since a network then needs no kernel for it.  Reductions run in at most `lanes`
    accumulators, a power of two.  If it `is_open` how many rows there are, they are computed one after another.
    """
    rows = read_rows(function)
    if rows is None or relax.analysis.has_reshape_pattern(function):
        return None
    body = _by_rows(rows, lanes, is_open)
    if body is None and not is_open:
        body = by_lanes(rows, lanes)
    return None if body is None else function.with_body(as_root(without_wrapping(body)))


def _by_rows(rows: Rows, lanes: int, is_open: bool) -> Any:
    """One row after another; None where the elements of a row do not lie side by side."""
    body = row_statement(rows, lanes)
    long = math.prod(rows.column_extents) >= _LEAST_LENGTH
    return None if body is None else over_rows(rows.rows, rows.row_extents, body, numbered=long, is_open=is_open)


def row_statement(rows: Rows, lanes: int = LANES) -> Any:
    """The statement that computes one row, by the variables of the rows; None where its elements do not lie side by
    side.
    """
    reducing = [each for each in rows.passes if each.combine is not None]
    if any(not _runs_along(each, rows.columns, rows.column_extents) for each in reducing):
        return None
    passes, kept = _with_kept(rows)
    statements: list[Any] = [tirx.AllocBuffer(each) for each in kept]
    writer = _Writer(rows, lanes)
    for each in passes:
        statements += writer.statements(each)
    return sequence(statements)


class _Writer:
    """Writes the passes over one row, in order."""

    def __init__(self, rows: Rows, lanes: int) -> None:
        self._rows, self._lanes = rows, lanes
        self._results: dict[Any, Any] = {}

    def statements(self, each: Pass) -> list[Any]:
        if not each.columns:
            return self._of_row(each)
        return self._for_elements(each) if each.combine is None else self._reduction(each)

    def _of_row(self, each: Pass) -> list[Any]:
        named = each._replace(bindings=(*each.bindings, Binding(each.result, each.value)), value=each.result)
        found = written(named, self._results)
        self._results[each.result] = found.value
        return [*map(tirx.AllocBuffer, found.buffers), *found.statements, *stores(each, found.value, {})]

    def _for_elements(self, each: Pass) -> list[Any]:
        flat = _Flat(each, self._rows)
        buffers: list[Any] = []

        def at(place: Any) -> Any:
            values = flat.values(place)
            found = written(each, {**self._results, **values})
            buffers.extend(found.buffers)
            return sequence([*found.statements, *stores(each, found.value, values)])

        loops = flat.loops(flat.length, at)
        return [*map(tirx.AllocBuffer, buffers), loops]

    def _reduction(self, each: Pass) -> list[Any]:
        flat = _Flat(each, self._rows)
        lanes = _lanes_for(each, flat.length, self._lanes)
        sums = buffer(f"{each.result.name}_lanes", (lanes,), str(each.value.ty))
        buffers = [sums]

        def step(lane: Any, place: Any) -> Any:
            found = written(each, {**self._results, **flat.values(place)}, lane, lanes)
            buffers.extend(found.buffers)
            more = each.combine(tirx.BufferLoad(sums, [lane]), found.value)
            return sequence([*found.statements, tirx.BufferStore(sums, more, [lane])])

        def part(number: Any) -> Any:
            return loop("lane", lanes, lambda lane: step(lane, number * lanes + lane), lane_loop(each))

        whole, rest = divmod(flat.length, lanes)
        loops = [flat.loops(whole, part)]
        if rest:
            first = index(whole * lanes)
            loops.append(flat.loops(1, lambda _: loop("lane", rest, lambda lane: step(lane, first + lane))))
        made = tirx.Var(str(each.result.name), each.result.ty)
        self._results[each.result] = made
        return [
            *map(tirx.AllocBuffer, buffers),
            loop("lane", lanes, lambda lane: tirx.BufferStore(sums, each.initial, [lane]), _VECTORIZED),
            *loops,
            *_halved(sums, lanes, each.combine),
            tirx.Bind(made, tirx.BufferLoad(sums, [index(0)])),
            *stores(each, made, {}),
        ]


def _lanes_for(each: Pass, length: int, most: int) -> int:
    """The number of accumulators: so that each takes a few steps, and few where a step calls functions."""
    values = [each.value, *(binding.value for binding in each.bindings if binding.variable is not None)]
    costly = any(map(calls_functions, values))
    wanted = min(most, _COSTLY_LANES if costly else max(_COSTLY_LANES, length // 4))
    return min(1 << (wanted.bit_length() - 1), 1 << (length.bit_length() - 1))


def _halved(sums: Any, lanes: int, combine: Callable[[Any, Any], Any]) -> Iterator[Any]:
    half = lanes // 2
    while half:

        def fold(lane: Any, half: int = half) -> Any:
            other = tirx.BufferLoad(sums, [lane + half])
            return tirx.BufferStore(sums, combine(tirx.BufferLoad(sums, [lane]), other), [lane])

        yield loop("lane", half, fold, _VECTORIZED)
        half //= 2


class _Flat:
    """A pass over a row, whose last axes are one loop of `length` steps if they are contiguous."""

    def __init__(self, each: Pass, rows: Rows) -> None:
        first = _first_flat(each, rows.columns, rows.column_extents)
        self._outer, self._outer_extents = rows.columns[:first], rows.column_extents[:first]
        self._flat = rows.columns[first:]
        long = [place for place, extent in enumerate(rows.column_extents) if extent != 1 and place >= first]
        self._last = rows.columns[long[-1]] if long else None
        self.length = math.prod(rows.column_extents[first:])

    def loops(self, count: int, body: Callable[[Any], Any]) -> Any:
        """`body` of each number below `count`, for each place on the outer axes."""
        return nested(self._outer, self._outer_extents, loop("column", count, body))

    def values(self, at: Any) -> dict[Any, Any]:
        """The columns at the element `at` of the loop."""
        values = dict.fromkeys(self._flat, index(0))
        return values if self._last is None else {**values, self._last: at}


def _first_flat(each: Pass, columns: Sequence[Any], extents: Sequence[int]) -> int:
    """The first of the last axes that one loop can replace: all accesses are contiguous along them, or do not move."""
    strides = strides_of(each, columns)
    first = max(len(columns) - 1, 0)
    while strides is not None and first > 0:
        places = [place for place in range(first - 1, len(columns)) if extents[place] != 1]
        steps = [math.prod(extents[place + 1 :]) for place in places]
        for found in strides:
            have = [found[place] for place in places]
            if have != steps and any(have):
                return first
        first -= 1
    return first


def _runs_along(each: Pass, columns: Sequence[Any], extents: Sequence[int]) -> bool:
    """Whether what a pass reads is contiguous along the last axis of the columns, or does not move along it."""
    strides = strides_of(each._replace(target=None), columns, bare=True)
    last = next((place for place in reversed(range(len(extents))) if extents[place] != 1), None)
    return last is None or (strides is not None and all(found[last] in (0, 1) for found in strides))


def _with_kept(rows: Rows) -> tuple[list[Pass], list[Any]]:
    """The passes, in which costly values that several passes need are stored for the row, and their buffers."""
    length = math.prod(rows.column_extents)
    place: Any = index(0)
    for column, extent in zip(rows.columns, rows.column_extents, strict=True):
        place = place * index(extent) + column
    passes, kept = list[Pass](), dict[Any, Any]()
    for number, each in enumerate(rows.passes):
        later = {binding.key for other in rows.passes[number + 1 :] for binding in other.bindings if other.columns}
        bindings: list[Binding] = []
        for binding in each.bindings if each.columns else ():
            kind = str(binding.value.ty)
            if binding.key in kept:
                bindings.append(binding._replace(value=tirx.BufferLoad(kept[binding.key], [place])))
                continue
            bindings.append(binding)
            size = length * tvm.DataType(kind).bits // 8
            if binding.key in later and size <= _KEPT and names_called(binding.value) & _COSTLY:
                kept[binding.key] = made = buffer(f"{binding.variable.name}_row", (length,), kind)
                bindings.append(Binding(None, tirx.BufferStore(made, binding.variable, [place])))
        passes.append(each._replace(bindings=tuple(bindings)) if each.columns else each)
    return passes, list(kept.values())
