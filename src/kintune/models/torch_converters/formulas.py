"""Formulas of real functions, written with Python's operators, and their conversion."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from tvm import relax

from kintune.models.expressions import dtype_of
from kintune.models.torch_converters.translation import Converter, Expression, Translation

__all__ = ["Real", "choose", "function_of", "polynomial"]


class Real:
    """A tensor of floating-point numbers, or a condition on one.  Operators emit those of Relax.

    Numbers become constants of the tensor's element type, and a comparison makes a condition for `choose`.
    """

    def __init__(self, t: Translation, value: Expression) -> None:
        self.t = t
        self.value = value
        self.dtype = dtype_of(value)

    def apply(self, operator: Callable[..., Any], *others: Real | float) -> Real:
        """A Relax operator applied to this tensor and to others."""
        return Real(self.t, self.t.emit(operator(self.value, *map(self._operand, others))))

    def constant(self, number: float) -> Real:
        """A number as a tensor of the same element type."""
        return Real(self.t, self.t.const(float(number), self.dtype))

    def _operand(self, other: Real | float) -> Expression:
        return other.value if isinstance(other, Real) else self.constant(other).value

    def __add__(self, other: Real | float) -> Real:
        return self.apply(relax.op.add, other)

    def __sub__(self, other: Real | float) -> Real:
        return self.apply(relax.op.subtract, other)

    def __mul__(self, other: Real | float) -> Real:
        return self.apply(relax.op.multiply, other)

    def __truediv__(self, other: Real | float) -> Real:
        return self.apply(relax.op.divide, other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: float) -> Real:
        return self.constant(other) - self

    def __rtruediv__(self, other: float) -> Real:
        return self.constant(other) / self

    def __neg__(self) -> Real:
        return self.apply(relax.op.negative)

    def __abs__(self) -> Real:
        return self.apply(relax.op.abs)

    def __lt__(self, other: Real | float) -> Real:
        return self.apply(relax.op.less, other)

    def __le__(self, other: Real | float) -> Real:
        return self.apply(relax.op.less_equal, other)

    def __gt__(self, other: Real | float) -> Real:
        return self.apply(relax.op.greater, other)

    def __ge__(self, other: Real | float) -> Real:
        return self.apply(relax.op.greater_equal, other)

    def equals(self, other: Real | float) -> Real:
        """Where the elements are equal."""
        return self.apply(relax.op.equal, other)

    def exp(self) -> Real:
        """The exponential function."""
        return self.apply(relax.op.exp)

    def log(self) -> Real:
        """The natural logarithm."""
        return self.apply(relax.op.log)

    def sqrt(self) -> Real:
        """The square root."""
        return self.apply(relax.op.sqrt)

    def floor(self) -> Real:
        """The largest integer that is not above."""
        return self.apply(relax.op.floor)

    def to_nearest(self) -> Real:
        """The distance from the nearest integer, which is subtracted: a number from -0.5 to 0.5."""
        return self - self.apply(relax.op.round)


def choose(condition: Real, yes: Real | float, no: Real | float) -> Real:
    """The elements of `yes` where `condition` holds, and of `no` elsewhere; one of them is a tensor."""
    like = yes if isinstance(yes, Real) else no
    assert isinstance(like, Real)
    chosen = [part if isinstance(part, Real) else like.constant(part) for part in (yes, no)]
    return condition.apply(relax.op.where, *chosen)


def polynomial(coefficients: Sequence[float], x: Real) -> Real:
    """The polynomial in x, by Horner's scheme; the coefficient of the highest power comes first."""
    return functools.reduce(
        lambda total, coefficient: total * x + coefficient, coefficients[1:], x.constant(coefficients[0])
    )


def function_of(formula: Callable[[Real], Real]) -> Converter:
    """A converter of a function of one tensor; half precision is computed in float32, integers in the result's type."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        return t.finish(formula(Real(t, t.wide(t.cast(a.self, t.result.dtype)))).value)

    return convert
