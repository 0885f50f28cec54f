"""The transforms of Winograd's convolution, F(m x m, 3 x 3): their matrices, and their shortest arithmetic.

The convolution of a tile of m + 2 values with 3 weights is A^T [(G g) * (B^T d)] (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", arXiv 1509.09308).  In two dimensions each transform is applied to columns and to rows.

Each row of G is scaled so that its sum is 1, and the columns of A by the inverse: then equal weights are transformed to
equal values.  Measurements rely on that, since they fill weights with one value (`kintune.measure.arguments`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

__all__ = ["INPUT", "KERNEL", "OUTPUT", "WEIGHTS", "input_transform", "output_transform"]

KERNEL = 3
"""Weights in each dimension."""

Matrix = tuple[tuple[Fraction, ...], ...]
Let = Callable[[Any], Any]


def _matrix(rows: str) -> Matrix:
    return tuple(tuple(Fraction(entry) for entry in row.split()) for row in rows.split(","))


WEIGHTS: dict[int, Matrix] = {
    2: _matrix("1 0 0, 1/3 1/3 1/3, 1 -1 1, 0 0 1"),
    4: _matrix("1 0 0, 1/3 1/3 1/3, 1 -1 1, 1/7 2/7 4/7, 1/3 -2/3 4/3, 0 0 1"),
}
"""G by m: m + 2 rows of 3."""

INPUT: dict[int, Matrix] = {
    2: _matrix("1 0 -1 0, 0 1 1 0, 0 -1 1 0, 0 1 0 -1"),
    4: _matrix("4 0 -5 0 1 0, 0 -4 -4 1 1 0, 0 4 -4 -1 1 0, 0 -2 -1 2 1 0, 0 2 -1 -2 1 0, 0 4 0 -5 0 1"),
}
"""B^T by m: m + 2 rows of m + 2."""

OUTPUT: dict[int, Matrix] = {
    2: _matrix("1 3/2 1/2 0, 0 3/2 -1/2 -1"),
    4: _matrix(
        "1/4 -1/2 -1/6 7/24 1/8 0, 0 -1/2 1/6 7/12 -1/4 0, 0 -1/2 -1/6 7/6 1/2 0, 0 -1/2 1/6 7/3 -1 1",
    ),
}
"""A^T by m: m rows of m + 2."""


def input_transform(m: int, d: Sequence[Any], let: Let) -> list[Any]:
    """B^T d for m + 2 values.

    The values may be numbers or expressions.  `let` is called with each intermediate value, and returns what is used in
    its place, such as a variable.
    """
    if m == 2:
        return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
    even, odd = let(d[4] - 4.0 * d[2]), let(d[3] - 4.0 * d[1])
    near, step = let(d[4] - d[2]), let(d[3] - d[1])
    return [
        4.0 * d[0] + (d[4] - 5.0 * d[2]),
        even + odd,
        even - odd,
        near + 2.0 * step,
        near - 2.0 * step,
        4.0 * d[1] + (d[5] - 5.0 * d[3]),
    ]


def output_transform(m: int, p: Sequence[Any], let: Let) -> list[Any]:
    """A^T p for m + 2 products, as `input_transform` does it."""
    if m == 2:
        one, other = let(1.5 * p[1]), let(0.5 * p[2])
        return [p[0] + (one + other), (one - other) - p[3]]
    one, other = let(-0.5 * p[1]), let(float(Fraction(-1, 6)) * p[2])
    even, odd = let(one + other), let(one - other)
    two, minus_two = let(float(Fraction(7, 24)) * p[3]), let(0.125 * p[4])
    outer, step = let(two + minus_two), let(two - minus_two)
    return [0.25 * p[0] + even + outer, odd + 2.0 * step, even + 4.0 * outer, (odd + 8.0 * step) + p[5]]
