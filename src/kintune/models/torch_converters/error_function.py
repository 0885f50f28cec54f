"""The complementary error function, accurate in its tail, where `1 - erf(x)` would cancel; also times exp(x * x).

The rational approximations are those of W. J. Cody, Rational Chebyshev approximations for the error function,
Mathematics of Computation 23 (1969), pages 631 to 637.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import SimpleNamespace

from tvm import relax

from kintune.models.expressions import dtype_of
from kintune.models.torch_converters.formulas import Real, choose, function_of
from kintune.models.torch_converters.translation import Converter, Expression, Translation

__all__ = ["CONVERTERS"]

_MIDDLE = 0.46875  # above this, the tail is approximated by `_MIDDLE_ABOVE` and `_MIDDLE_BELOW`
_FAR = 4.0  # above this, by `_FAR_ABOVE` and `_FAR_BELOW`
_NOTHING = 30.0  # above this, the function is 0 in all element types
_STEPS = 16.0  # the square of a small multiple of 1 / 16 is exact

_MIDDLE_ABOVE = (
    *(2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1),
    *(2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3),
    1.23033935479799725e3,
)
_MIDDLE_BELOW = (
    *(1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3),
    *(3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)
"""Numerator and denominator of exp(x * x) erfc(x): coefficients of powers of x, the highest first."""

_FAR_ABOVE = (
    *(1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1),
    *(1.60837851487422766e-2, 6.58749161529837803e-4),
)
_FAR_BELOW = (
    *(1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2),
    2.33520497626869185e-3,
)
"""Numerator and denominator of x * x (1 / sqrt(pi) - x exp(x * x) erfc(x)): powers of 1 / (x * x), highest first."""


def _erfc(t: Translation, a: SimpleNamespace) -> Expression:
    value = t.wide(t.cast(a.self, t.result.dtype))
    dtype = dtype_of(value)
    size = t.emit(relax.op.abs(value))
    near = t.emit(relax.op.subtract(t.const(1, dtype), t.emit(relax.op.erf(value))))
    tail = _tail(t, t.emit(relax.op.minimum(size, t.const(_NOTHING, dtype))))
    other = t.emit(relax.op.subtract(t.const(2, dtype), tail))
    tail = t.emit(relax.op.where(t.emit(relax.op.less(value, t.const(0, dtype))), other, tail))
    is_tail = t.emit(relax.op.greater(size, t.const(_MIDDLE, dtype)))
    return t.finish(t.emit(relax.op.where(is_tail, tail, near)))  # NaN is not in the tail, and stays NaN


def _scaled(x: Real) -> Real:
    """exp(x * x) erfc(x)."""
    size = abs(x)
    tail = choose(*(Real(x.t, part) for part in _scaled_tail(x.t, size.value)))
    near = (x * x).exp() * (1.0 - x.apply(relax.op.erf))
    twice = _growing(size.apply(relax.op.minimum, _NOTHING)) * 2.0
    return choose(size > _MIDDLE, choose(x < 0.0, twice - tail, tail), near)


def _growing(x: Real) -> Real:
    """exp(x * x), in the way of `_falling`."""
    near = (x * _STEPS).apply(relax.op.trunc) / _STEPS
    return (near * near).exp() * ((x - near) * (x + near)).exp()


def _tail(t: Translation, x: Expression) -> Expression:
    """erfc(x) for x of at least `_MIDDLE`."""
    is_far, far, middle = _scaled_tail(t, x)
    return t.emit(relax.op.multiply(_falling(t, x), t.emit(relax.op.where(is_far, far, middle))))


def _scaled_tail(t: Translation, x: Expression) -> tuple[Expression, Expression, Expression]:
    """exp(x * x) erfc(x) for x of at least `_MIDDLE`: whether x is above `_FAR`, its value if so, and if not."""
    dtype = dtype_of(x)
    middle = _quotient(t, _MIDDLE_ABOVE, _MIDDLE_BELOW, x)
    inverse = t.emit(relax.op.divide(t.const(1, dtype), x))
    squared = t.emit(relax.op.multiply(inverse, inverse))
    less = t.emit(relax.op.multiply(squared, _quotient(t, _FAR_ABOVE, _FAR_BELOW, squared)))
    rest = t.emit(relax.op.subtract(t.const(1 / math.sqrt(math.pi), dtype), less))
    far = t.emit(relax.op.multiply(inverse, rest))
    is_far = t.emit(relax.op.greater(x, t.const(_FAR, dtype)))
    return is_far, far, middle


def _falling(t: Translation, x: Expression) -> Expression:
    """exp(-x * x) as exp(-n * n) exp((n - x) (n + x)), where n is near x and its square is exact."""
    dtype = dtype_of(x)
    steps = t.const(_STEPS, dtype)
    near = t.emit(relax.op.divide(t.emit(relax.op.trunc(t.emit(relax.op.multiply(x, steps)))), steps))
    off = t.emit(relax.op.multiply(t.emit(relax.op.subtract(near, x)), t.emit(relax.op.add(near, x))))
    most = t.emit(relax.op.exp(t.emit(relax.op.negative(t.emit(relax.op.multiply(near, near))))))
    return t.emit(relax.op.multiply(most, t.emit(relax.op.exp(off))))


def _quotient(t: Translation, above: Sequence[float], below: Sequence[float], x: Expression) -> Expression:
    return t.emit(relax.op.divide(_polynomial(t, above, x), _polynomial(t, below, x)))


def _polynomial(t: Translation, coefficients: Sequence[float], x: Expression) -> Expression:
    """The polynomial in x, by Horner's scheme; the coefficient of the highest power comes first."""

    def step(total: Expression, coefficient: Expression) -> Expression:
        return t.emit(relax.op.add(t.emit(relax.op.multiply(total, x)), coefficient))

    return functools.reduce(step, (t.const(coefficient, dtype_of(x)) for coefficient in coefficients))


CONVERTERS: dict[str, Converter] = {"erfc.default": _erfc, "special_erfcx.default": function_of(_scaled)}
"""Operator of aten -> its converter."""
