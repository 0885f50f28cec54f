"""Determinants of small square matrices."""

from __future__ import annotations

from tvm import relax

from kintune.models.converters.node import Convert, Node
from kintune.models.expressions import dtype_of, shape_of

__all__ = ["CONVERTERS"]

_LARGEST = 4  # rows up to which a determinant is written out


def _determinant(node: Node) -> relax.Expr:
    data = node.required(0)
    *batch, rows, columns = shape_of(data)
    if rows != columns or not 1 <= rows <= _LARGEST:
        raise ValueError(
            f"the determinant of {rows}x{columns} elements is not supported: at most {_LARGEST}x{_LARGEST}"
        )
    whole = node.emit(relax.op.reshape(data, [-1, rows, rows]))
    flat = [[_element(node, whole, row, column) for column in range(rows)] for row in range(rows)]
    return relax.op.reshape(_expanded(node, flat, 0, tuple(range(rows))), batch)


def _element(node: Node, matrices: relax.Expr, row: int, column: int) -> relax.Expr:
    part = relax.op.strided_slice(matrices, [1, 2], [row, column], [row + 1, column + 1], [1, 1])
    return node.emit(relax.op.reshape(node.emit(part), [-1]))


def _expanded(node: Node, elements: list[list[relax.Expr]], row: int, columns: tuple[int, ...]) -> relax.Expr:
    """The determinant of the rows from `row` on and of these columns, along their first row."""
    if len(columns) == 1:
        return elements[row][columns[0]]
    total = relax.const(0, dtype_of(elements[0][0]))
    for index, column in enumerate(columns):
        minor = _expanded(node, elements, row + 1, columns[:index] + columns[index + 1 :])
        term = node.emit(relax.op.multiply(elements[row][column], minor))
        total = node.emit((relax.op.subtract if index % 2 else relax.op.add)(total, term))
    return total


CONVERTERS: dict[str, Convert] = {"Det": _determinant}
"""Operator -> what converts it."""
