"""Writes passes over rows that compute neighbouring rows together, a row in each lane, if these are adjacent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from kintune.compiler.kernels.loops import INDEX, buffer, index, loop, nested, over_rows, sequence
from kintune.compiler.programs.row_passes import Pass, Rows
from kintune.compiler.programs.row_text import lane_loop, stores, strides_of, written

__all__ = ["by_lanes"]

_LEAST = 4
"""Rows that are computed together, at least."""


def by_lanes(rows: Rows, lanes: int) -> Any:
    """All passes, for `lanes` neighbouring rows together; None where these do not lie side by side."""
    if not rows.rows or rows.row_extents[-1] < _LEAST:
        return None
    row, extent = rows.rows[-1], rows.row_extents[-1]
    for each in rows.passes:
        strides = strides_of(each, [row])
        if strides is None or any(step not in (0, 1) for (step,) in strides):
            return None
    width = min(lanes, 1 << (extent.bit_length() - 1))
    whole, rest = divmod(extent, width)
    others, extents = rows.rows[:-1], rows.row_extents[:-1]
    part = tirx.Var("part", INDEX)
    main = _Together(rows, part * width, width, tirx.ForKind.VECTORIZED).body()
    loops = [over_rows((*others, part), (*extents, whole), main, numbered=False)]
    if rest:
        end = _Together(rows, index(whole * width), rest, tirx.ForKind.SERIAL).body()
        loops.append(over_rows(others, extents, end, numbered=False))
    return sequence(loops)


class _Together:
    """The passes for `width` rows from `first` on."""

    def __init__(self, rows: Rows, first: Any, width: int, kind: Any) -> None:
        self._rows, self._first, self._width, self._kind = rows, first, width, kind
        self._results: dict[Any, Any] = {}

    def body(self) -> Any:
        statements: list[Any] = []
        for each in self._rows.passes:
            statements += self._stored(each) if each.result is None else self._result(each)
        return sequence(statements)

    def _stored(self, each: Pass) -> list[Any]:
        return [self._over(each, lambda lane, value: stores(each, value, self._values(lane)))]

    def _result(self, each: Pass) -> list[Any]:
        """A result of each row: a buffer with one element a lane."""
        made = buffer(f"{each.result.name}_lanes", (self._width,), str(each.value.ty))

        def keep(lane: Any, value: Any) -> list[Any]:
            more = value if each.combine is None else each.combine(tirx.BufferLoad(made, [lane]), value)
            return [tirx.BufferStore(made, more, [lane])]

        statements = [tirx.AllocBuffer(made)]
        if each.combine is not None:
            statements.append(self._lanes(lambda lane: tirx.BufferStore(made, each.initial, [lane])))
        statements.append(self._over(each, keep))
        self._results[each.result] = made
        if each.target is not None:
            copied = self._lanes(lambda lane: sequence(stores(each, tirx.BufferLoad(made, [lane]), self._values(lane))))
            statements.append(copied)
        return statements

    def _over(self, each: Pass, keep: Callable[[Any, Any], Sequence[Any]]) -> Any:
        """The loops over columns and lanes that compute the value of a pass, and hand it to `keep`."""
        buffers: list[Any] = []

        def at(lane: Any) -> Any:
            found = written(each, self._values(lane), lane, self._width)
            buffers.extend(found.buffers)
            return sequence([*found.statements, *keep(lane, found.value)])

        extents = self._rows.column_extents if each.columns else ()
        kind = lane_loop(each) if self._lane_kind == tirx.ForKind.VECTORIZED else self._lane_kind
        loops = nested(each.columns, extents, loop("lane", self._width, at, kind))
        return sequence([*map(tirx.AllocBuffer, buffers), loops])

    def _lanes(self, body: Callable[[Any], Any]) -> Any:
        return loop("lane", self._width, body, self._lane_kind)

    @property
    def _lane_kind(self) -> Any:
        """The kind of a loop over lanes: serial where it may read truth values, of which TVM makes no vectors."""
        held = any(str(made.dtype) == "bool" for made in self._results.values())
        return tirx.ForKind.SERIAL if held else self._kind

    def _values(self, lane: Any) -> dict[Any, Any]:
        of_rows = {variable: tirx.BufferLoad(made, [lane]) for variable, made in self._results.items()}
        return {self._rows.rows[-1]: self._first + lane, **of_rows}
