"""Linear algebra of square matrices: determinants, inverses, systems of equations, Cholesky factors.

Leading dimensions are a batch.  A matrix that cannot be inverted, or is not positive definite, is no error here: the
result has infinities and values that are no numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from kintune.models.elimination import (
    cholesky,
    determinant,
    diagonal,
    factorised,
    sign_of_exchanges,
    solution,
    triangular_solution,
)
from kintune.models.expressions import dtype_of, shape_of
from kintune.models.formulas import Real, choose
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


class _Factors(NamedTuple):
    """Matrices (batch, n, n) by elimination; see `factorised`."""

    both: Expression
    order: Expression
    pivot: Expression

    @classmethod
    def of(cls, t: Translation, matrix: Expression) -> _Factors:
        """The factors of matrices (..., n, n)."""
        return cls(*factorised(t, _batched(t, matrix)))

    def diagonal(self, t: Translation) -> Expression:
        """The pivots by which rows were divided, (batch, n)."""
        return diagonal(t, self.both)

    def sign(self, t: Translation) -> Expression:
        """The sign of the permutation of rows, (batch)."""
        return sign_of_exchanges(t, self.pivot, dtype_of(self.both))

    def spread(self, t: Translation, own: Sequence[int], batch: Sequence[int]) -> _Factors:
        """The factors of matrices with leading dimensions `own`, repeated for those of `batch`."""
        if tuple(own) == tuple(batch):
            return self
        spread = []
        for value in self:
            _, *rest = shape_of(value)
            repeated = t.expand(t.reshape(value, [*own, *rest]), [*batch, *rest])
            spread.append(t.reshape(repeated, [math.prod(batch), *rest]))
        return _Factors(*spread)

    def solution(self, t: Translation, right: Expression) -> Expression:
        """The solution for right sides (batch, n, m)."""
        return solution(t, self.both, self.order, right)


def _batched(t: Translation, value: Expression) -> Expression:
    """Matrices with one leading dimension."""
    *batch, rows, columns = shape_of(value)
    if 0 in shape_of(value):
        raise NotConvertible("matrices without elements")
    return t.reshape(value, [math.prod(batch), rows, columns])


def _transposed(t: Translation, value: Expression) -> Expression:
    rank = len(shape_of(value))
    return t.permute(value, [*range(rank - 2), rank - 1, rank - 2])


def _identity(t: Translation, shape: Sequence[int], dtype: str) -> Expression:
    return t.expand(t.const(np.eye(shape[-1]), dtype), shape)


def _first_failure(t: Translation, fails: Expression, shape: Sequence[int]) -> Expression:
    """The number, from 1, of the first column (batch, n) where a factorisation fails; 0 where there is none."""
    n = shape_of(fails)[1]
    first = choose(Real(t, fails), Real(t, t.const(np.arange(1, n + 1), "int32")), n + 1).min(axis=[1])
    return t.reshape(choose(first > n, 0, first).value, shape)


def _singular(t: Translation, factors: _Factors, shape: Sequence[int]) -> Expression:
    return _first_failure(t, Real(t, factors.diagonal(t)).equal(0).value, shape)


def _used(t: Translation, *results: Callable[[Sequence[int]], Expression] | None) -> tuple[Any, ...]:
    """The results that are read, each made for the shape that PyTorch states; for None there is no converter."""
    made: list[Any] = []
    for number, (result, stated) in enumerate(zip(results, t.results, strict=True)):
        if number not in t.used:
            made.append(None)
        elif result is None or stated is None:
            raise NotConvertible("the factors of its matrix as results")
        else:
            made.append(result(stated.shape))
    return tuple(made)


def _determinant(t: Translation, a: SimpleNamespace) -> Any:
    return _used(t, lambda s: t.reshape(determinant(t, _batched(t, a.A)), s), None, None)


def _log_determinant(t: Translation, a: SimpleNamespace) -> Any:
    """The sign of the determinant, and the logarithm of its absolute value."""
    factors = _Factors.of(t, a.A)

    def sign(shape: Sequence[int]) -> Expression:
        signs = Real(t, factors.diagonal(t)).sign().prod(axis=[1])
        return t.reshape((signs * Real(t, factors.sign(t))).value, shape)

    def logarithm(shape: Sequence[int]) -> Expression:
        return t.reshape(abs(Real(t, factors.diagonal(t))).log().sum(axis=[1]).value, shape)

    return _used(t, sign, logarithm, None, None)


def _inverse(t: Translation, a: SimpleNamespace) -> Any:
    factors = _Factors.of(t, a.A)
    identity = _identity(t, shape_of(factors.both), dtype_of(factors.both))
    return _used(t, lambda s: t.reshape(factors.solution(t, identity), s), lambda s: _singular(t, factors, s))


def _solve(t: Translation, a: SimpleNamespace) -> Any:
    """The X for which A X = B, or X A = B if not `left`; B may be a batch of vectors."""
    matrix, right = a.A, a.B
    stated = t.results[0]
    assert stated is not None
    if is_vector := len(shape_of(right)) == 1 or shape_of(right) == shape_of(matrix)[:-1]:
        right = t.reshape(right, [*shape_of(right), 1])
    if not a.left:
        matrix, right = _transposed(t, matrix), _transposed(t, right)
    *_, n, m = shape_of(right)
    batch = stated.shape[: -1 if is_vector else -2]
    factors = _Factors.of(t, matrix)
    right = _batched(t, t.expand(right, [*batch, n, m]))

    def solution(shape: Sequence[int]) -> Expression:
        found = factors.spread(t, shape_of(matrix)[:-2], batch).solution(t, right)
        return t.reshape(found if a.left else _transposed(t, found), shape)

    return _used(t, solution, None, None, lambda s: _singular(t, factors, s))


def _triangular(
    t: Translation, matrix: Expression, right: Expression, *, upper: bool, unit: bool = False
) -> Expression:
    """The solution of triangular systems; the leading dimensions of both are broadcast."""
    batch = np.broadcast_shapes(shape_of(matrix)[:-2], shape_of(right)[:-2])
    n, m = shape_of(right)[-2:]
    triangle = _batched(t, t.expand(matrix, [*batch, n, n]))
    sides = _batched(t, t.expand(right, [*batch, n, m]))
    solution = triangular_solution(t, triangle, sides, upper=upper, unit=unit)
    return t.reshape(solution, [*batch, n, m])


def _solve_triangular(t: Translation, a: SimpleNamespace) -> Expression:
    if a.left:
        return _triangular(t, a.self, a.B, upper=a.upper, unit=a.unitriangular)
    matrix, right = _transposed(t, a.self), _transposed(t, a.B)
    return _transposed(t, _triangular(t, matrix, right, upper=not a.upper, unit=a.unitriangular))


def _triangular_solve(t: Translation, a: SimpleNamespace) -> Any:
    """The older form of the same, which also returns a copy of the matrix."""
    matrix = _transposed(t, a.A) if a.transpose else a.A
    upper = bool(a.upper) != bool(a.transpose)
    return (_triangular(t, matrix, a.self, upper=upper, unit=a.unitriangular), a.A)


def _cholesky_factor(t: Translation, matrix: Expression, *, upper: bool) -> Expression:
    read = _transposed(t, matrix) if upper else matrix
    lower = t.reshape(cholesky(t, _batched(t, read)), shape_of(matrix))
    return _transposed(t, lower) if upper else lower


def _cholesky(t: Translation, a: SimpleNamespace) -> Expression:
    return _cholesky_factor(t, a.self, upper=a.upper)


def _checked_cholesky(t: Translation, a: SimpleNamespace) -> Any:
    """The factor, and the number of the first pivot that is not positive."""
    factor = _cholesky_factor(t, a.self, upper=a.upper)

    def failure(shape: Sequence[int]) -> Expression:
        pivots = diagonal(t, _batched(t, factor))
        return _first_failure(t, (Real(t, pivots) > 0).logical_not().value, shape)

    return _used(t, lambda s: t.reshape(factor, s), failure)


def _cholesky_solve(t: Translation, a: SimpleNamespace) -> Expression:
    """The solution of systems by the Cholesky factors of their matrices."""
    return _solved_by_cholesky(t, a.input2, a.self, upper=a.upper)


def _cholesky_inverse(t: Translation, a: SimpleNamespace) -> Expression:
    identity = _identity(t, shape_of(a.self), dtype_of(a.self))
    return _solved_by_cholesky(t, a.self, identity, upper=a.upper)


def _solved_by_cholesky(t: Translation, factor: Expression, right: Expression, *, upper: bool) -> Expression:
    other = _transposed(t, factor)
    lower, over = (other, factor) if upper else (factor, other)
    return _triangular(t, over, _triangular(t, lower, right, upper=False), upper=True)


CONVERTERS: dict[str, Converter] = {
    "_linalg_det.default": _determinant,
    "_linalg_slogdet.default": _log_determinant,
    "linalg_inv_ex.default": _inverse,
    "_linalg_solve_ex.default": _solve,
    "linalg_solve_triangular.default": _solve_triangular,
    "triangular_solve.default": _triangular_solve,
    "cholesky.default": _cholesky,
    "linalg_cholesky_ex.default": _checked_cholesky,
    "cholesky_solve.default": _cholesky_solve,
    "cholesky_inverse.default": _cholesky_inverse,
}
"""Operator of aten -> its converter."""
