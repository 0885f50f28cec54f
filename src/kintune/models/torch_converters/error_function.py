"""The complementary error function, accurate in its tail, where `1 - erf(x)` would cancel; also times exp(x * x).

The rational approximations are those of W. J. Cody, Rational Chebyshev approximations for the error function,
Mathematics of Computation 23 (1969), pages 631 to 637.
"""

from __future__ import annotations

import math

from kintune.models.formulas import Real, choose, quotient
from kintune.models.torch_converters.translation import Converter, function_of

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


def _erfc(x: Real) -> Real:
    size = abs(x)
    far = size.minimum(_NOTHING)
    tail = _exponential(far, -1) * _scaled_tail(far)
    return choose(size > _MIDDLE, choose(x < 0, 2 - tail, tail), 1 - x.erf())  # NaN is not in the tail, and stays NaN


def _scaled(x: Real) -> Real:
    """exp(x * x) erfc(x)."""
    size = abs(x)
    tail = _scaled_tail(size)
    near = (x * x).exp() * (1.0 - x.erf())
    twice = _exponential(size.minimum(_NOTHING), 1) * 2.0
    return choose(size > _MIDDLE, choose(x < 0.0, twice - tail, tail), near)


def _scaled_tail(x: Real) -> Real:
    """exp(x * x) erfc(x) for x of at least `_MIDDLE`."""
    inverse = 1 / x
    squared = inverse * inverse
    far = inverse * (1 / math.sqrt(math.pi) - squared * quotient(_FAR_ABOVE, _FAR_BELOW, squared))
    return choose(x > _FAR, far, quotient(_MIDDLE_ABOVE, _MIDDLE_BELOW, x))


def _exponential(x: Real, sign: int) -> Real:
    """exp(sign x * x) as exp(sign n * n) exp(sign (x - n) (x + n)), where n is near x and its square is exact."""
    near = (x * _STEPS).trunc() / _STEPS
    return (near * near * sign).exp() * ((x - near) * (x + near) * sign).exp()


CONVERTERS: dict[str, Converter] = {"erfc.default": function_of(_erfc), "special_erfcx.default": function_of(_scaled)}
"""Operator of aten -> its converter."""
