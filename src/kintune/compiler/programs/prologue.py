"""Rows that a task computes for itself in place of copying them: what a prologue, such as a norm, makes of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm

from kintune.compiler.kernels.blocks import loads_in
from kintune.compiler.kernels.contraction import Contraction
from kintune.compiler.kernels.images import Image
from kintune.compiler.kernels.loops import buffer, index, loop, replaced, sequence, unravelled
from kintune.compiler.kernels.rows import Lines, TaskRows, Units
from kintune.compiler.kernels.tiled_rows import TiledRows
from kintune.compiler.programs.row_passes import Pass, read_rows
from kintune.compiler.programs.rows import row_statement
from kintune.errors import BuildError

__all__ = ["COPIED", "compute_all_rows", "computed_rows", "has_rows", "read_by", "row_writer"]

COPIED = 4.0
"""Times the bytes of a row that are moved until a norm of it is stored: it is read twice or three times."""


def has_rows(found: Contraction) -> bool:
    """Whether a sum has no prologue, or one that computes a matrix row by row, elements that lie side by side."""
    if found.prologue is None:
        return True
    rows = read_rows(found.prologue) if found.is_matrix else None
    return rows is not None and rows.column_extents == (found.channels,) and row_statement(rows) is not None


def read_by(found: Contraction) -> list[Any]:
    """The buffers that the prologue of a sum reads."""
    read = {load.source for load in loads_in(found.prologue.body)}
    return [each for each in found.prologue.params[:-1] if each in read]


def row_writer(found: Contraction, target: Any) -> Callable[[Any, Any], Any]:
    """A function of `row` and `start` that gives the statement which computes a row of the data, by its number.

    Its elements are stored in the buffer `target`, of one axis, from `start` on.

    Raises:
        BuildError: the prologue does not compute rows.
    """
    rows = read_rows(found.prologue)
    if rows is None or not has_rows(found):
        raise BuildError("the data of the sums is computed otherwise than row by row")

    def written(row: Any, start: Any) -> Any:
        (column,) = rows.columns

        def moved(each: Pass) -> Pass:
            place = start + column if each.columns else start  # a row of one element has no loop
            return each if each.target is None else each._replace(target=target, indices=(place,))

        statement = row_statement(rows._replace(passes=tuple(map(moved, rows.passes))))
        return replaced(statement, dict(zip(rows.rows, unravelled(row, rows.row_extents), strict=True)))

    return written


def computed_rows(found: Contraction, depth: int, units: int) -> TaskRows:
    """The rows of a matrix with a prologue, `units` a task, each with zeros behind its channels up to `depth` values.

    Raises:
        BuildError: the prologue does not compute rows.
    """
    channels = found.channels
    target = buffer("rows", (units * depth,), "float32", "global")
    written = row_writer(found, target)

    def copy(_: Any, row: Any, start: Any, __: Any) -> Any:
        def zero(at: Any) -> Any:
            return tvm.tirx.BufferStore(target, tvm.tirx.const(0.0, "float32"), [start + index(channels) + at])

        return sequence([written(row, start), *([loop("z", depth - channels, zero)] if depth > channels else [])])

    lines = Lines(Image.of_matrix(found.positions, channels, depth), 1, found.positions, depth)
    made = TaskRows(Units(lines, found.extents, 1, units), found.data, target, copy)
    made.reads = read_by(found)
    return made


def compute_all_rows(found: Contraction, rows: TiledRows) -> None:
    """Let each task compute all rows of a matrix with a prologue before its tiles.

    Raises:
        BuildError: the prologue does not compute rows.
    """
    rows.data = buffer("rows", (found.positions * found.channels,), "float32", "global")
    written = row_writer(found, rows.data)
    rows.begun = [loop("row", found.positions, lambda row: written(row, row * index(found.channels)))]
    rows.reads, rows.buffers = read_by(found), [rows.data]
