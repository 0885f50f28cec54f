"""Formulas of real functions, written with Python's operators."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from kintune.models.emitter import Emitter
from kintune.models.expressions import dtype_of, shape_of

__all__ = [
    "Real",
    "choose",
    "expm1",
    "gelu",
    "gelu_curve",
    "log1p",
    "parametric_relu",
    "polynomial",
    "power",
    "quotient",
    "whole_power",
]


def _method(operator: Callable[..., Any]) -> Callable[[Real, Real | float], Real]:
    return lambda self, other: self.apply(operator, other)


class Real:
    """A tensor of numbers, or a condition on one.  Operators emit those of Relax, and so do methods of their names.

    Numbers become constants of the tensor's element type, and a comparison makes a condition for `choose`.
    """

    def __init__(self, t: Emitter, value: Any) -> None:
        self.t = t
        self.value = value
        self.dtype = dtype_of(value)

    def apply(self, operator: Callable[..., Any], *others: Real | float, **settings: Any) -> Real:
        """A Relax operator applied to this tensor and to others."""
        return Real(self.t, self.t.emit(operator(self.value, *map(self._operand, others), **settings)))

    def cast(self, dtype: str) -> Real:
        """With elements of another type."""
        return Real(self.t, self.t.cast(self.value, dtype))

    def constant(self, number: float) -> Real:
        """A number as a tensor of the same element type."""
        return Real(self.t, self.t.const(number, self.dtype))

    def _operand(self, other: Real | float) -> Any:
        return other.value if isinstance(other, Real) else self.constant(other).value

    def __getattr__(self, name: str) -> Callable[..., Real]:
        operator = getattr(relax.op, name, None) or getattr(relax.op.nn, name)
        return functools.partial(self.apply, operator)

    __add__ = __radd__ = _method(relax.op.add)
    __sub__ = _method(relax.op.subtract)
    __lt__ = _method(relax.op.less)
    __le__ = _method(relax.op.less_equal)
    __gt__ = _method(relax.op.greater)
    __ge__ = _method(relax.op.greater_equal)
    __and__ = _method(relax.op.logical_and)
    __or__ = _method(relax.op.logical_or)
    __xor__ = _method(relax.op.logical_xor)

    def __mul__(self, other: Real | float) -> Real:
        return self if isinstance(other, int | float) and other == 1 else self.apply(relax.op.multiply, other)

    def __truediv__(self, other: Real | float) -> Real:
        return self if isinstance(other, int | float) and other == 1 else self.apply(relax.op.divide, other)

    __rmul__ = __mul__

    def __rsub__(self, other: float) -> Real:
        return self.constant(other) - self

    def __rtruediv__(self, other: float) -> Real:
        return self.constant(other) / self

    def __neg__(self) -> Real:
        return self.apply(relax.op.negative)

    def __abs__(self) -> Real:
        return self.apply(relax.op.abs)

    def to_nearest(self) -> Real:
        """The distance from the nearest integer, which is subtracted: a number from -0.5 to 0.5."""
        return self - self.round()


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


def quotient(above: Sequence[float], below: Sequence[float], x: Real) -> Real:
    """The quotient of two polynomials in x."""
    return polynomial(above, x) / polynomial(below, x)


def power(x: Real, exponent: float) -> Real:
    """A power of numbers that are not negative."""
    if exponent in (1, 2):
        return whole_power(x, int(exponent))
    return x.sqrt() if exponent == 0.5 else x.power(exponent)


def whole_power(x: Real, exponent: int) -> Real:
    """The power by repeated squaring; `exponent` is not negative."""
    if exponent < 2:
        return x if exponent else Real(x.t, x.t.full(shape_of(x.value), 1, x.dtype))
    half = whole_power(x, exponent // 2)
    return half * half * x if exponent % 2 else half * half


def log1p(x: Real) -> Real:
    """log(1 + x), corrected for the rounding of 1 + x."""
    whole = x + 1
    logarithm = whole.log()
    corrected = logarithm * (x / (whole - 1))
    return choose(whole.equal(1), x, choose(x > 1e7, logarithm, corrected))


def expm1(x: Real) -> Real:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), without cancellation near zero."""
    return (x * 0.5).tanh() * (x.exp() + 1)


def gelu_curve(x: Real, approximation: str) -> Real:
    """The factor `2 * gelu(x) / x - 1`: the error function of `x / sqrt(2)`, or its "tanh" approximation."""
    if approximation == "tanh":
        return ((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).tanh()
    return (x * math.sqrt(0.5)).erf()


def gelu(x: Real, approximation: str) -> Real:
    """The product of x and the normal distribution of x, which may be approximated by "tanh"."""
    return x * 0.5 * (gelu_curve(x, approximation) + 1)


def parametric_relu(x: Real, slope: Any) -> Real:
    """`x`, times `slope`, which broadcasts, where it is not positive: zero times NaN is NaN."""
    shape, own = shape_of(x.value), shape_of(slope)
    rank = len(shape)
    wide = [i for i, size in enumerate(own) if size != 1]
    if len(wide) == 1 and len(own) <= rank:
        return x.prelu(Real(x.t, x.t.reshape(slope, [own[wide[0]]])), axis=wide[0] + rank - len(own))
    if not wide and rank and len(own) <= rank:
        axis = min(1, rank - 1)
        return x.prelu(Real(x.t, x.t.expand(x.t.reshape(slope, [1]), [shape[axis]])), axis=axis)
    return choose(x > 0, x, x * Real(x.t, slope))
