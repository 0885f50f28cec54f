"""The logarithm of the gamma function, and its derivatives.

Formulas are those of M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions (1964), chapter 6.  From 8 on,
Stirling's series (6.1.40) is accurate.  Below, the recurrence (6.1.15) leads to a number between 1.5 and 2.5, where the
power series around 2 converges fast (6.1.33, with the recurrence).  No step there subtracts numbers of one size, except
next to the zeros of the derivatives.  Negative numbers are mirrored (6.1.17).

Derivatives from the third on are sums of powers (6.4.10), the rest of which is that of Euler and Maclaurin (23.1.30).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from kintune.models.formulas import Real, choose, polynomial, whole_power
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation, function_of

__all__ = ["CONVERTERS"]

_FAR = 8  # from here on, Stirling's series
_MIDDLE = 2  # around which the power series is
_LARGEST_ORDER = 20  # of a derivative
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""The Bernoulli numbers 2, 4, 6 ..."""


class _Terms(NamedTuple):
    """How many terms of each series an element type needs."""

    power: int
    stirling: int


_TERMS = {"float32": _Terms(16, 4), "float64": _Terms(30, len(_BERNOULLI))}


def _zeta_minus_one(order: int, terms: int = 40) -> float:
    """The Riemann zeta function of an integer above 1, minus 1, by the formula of Euler and Maclaurin (23.2.3)."""
    summed = math.fsum(float(n) ** -order for n in range(2, terms))
    rest = float(terms) ** (1 - order) * (1 / (order - 1) + 1 / (2 * terms) + order / (12 * terms**2))
    third = math.prod(range(order, order + 3)) / 720
    fifth = math.prod(range(order, order + 5)) / 30240
    return summed + rest - third * float(terms) ** (-order - 3) + fifth * float(terms) ** (-order - 5)


def _power_series(derivative: int, dtype: str) -> list[float]:
    """Coefficients of powers of z, the highest first, of a derivative of the logarithm of gamma(2 + z).

    That of order 0 has no constant term.
    """
    lowest_first = [0.0, 1 - np.euler_gamma]
    lowest_first += [(-1) ** k * _zeta_minus_one(k) / k for k in range(2, _TERMS[dtype].power + 1)]
    for _ in range(derivative):
        lowest_first = [k * coefficient for k, coefficient in enumerate(lowest_first)][1:]
    return lowest_first[::-1]


class _Near(NamedTuple):
    """A number below `_FAR` (and some above): `x` is `whole + z`, where z is from -0.5 to 0.5."""

    x: Real
    whole: Real
    z: Real

    def above(self, term: Callable[[Real], Real], otherwise: float) -> list[Real]:
        """A term of each of the numbers x - 1, x - 2 ... that is not below 1.5; `otherwise` in place of the rest."""
        steps = range(1, _FAR - _MIDDLE + 1)
        return [choose(self.whole > down + _MIDDLE - 0.5, term(self.x - float(down)), otherwise) for down in steps]

    def by_size(self, lowest: Real, low: Real, other: Real) -> Real:
        """`lowest` below 0.5, `low` from there to 1.5, and `other` above."""
        return choose(self.whole < 0.5, lowest, choose(self.whole < 1.5, low, other))


def _near(x: Real) -> _Near:
    whole = (x + 0.5).floor()
    return _Near(x, whole, x - whole)


def _log_gamma(x: Real) -> Real:
    mirrored = choose(x < 0.0, 1.0 - x, x)
    value = choose(mirrored >= float(_FAR), _log_gamma_far(mirrored), _log_gamma_near(_near(mirrored)))
    off = abs(x.to_nearest())
    off = choose(off < 1e-20, off, abs(_sine(x)) / math.pi)  # products of denormal numbers lose their digits
    reflected = choose(off > 0.0, -off.log() - value, math.inf)
    return choose(x < 0.0, reflected, value)


def _sine(x: Real) -> Real:
    """The sine of pi x, up to its sign."""
    return (x.to_nearest() * math.pi).sin()


def _log_gamma_near(n: _Near) -> Real:
    series = n.z * polynomial(_power_series(0, n.x.dtype)[:-1], n.z)
    product = functools.reduce(operator.mul, n.above(lambda number: number, 1.0))
    logarithm = n.by_size(n.x * (n.x + 1.0), n.x, product).log()
    return series + choose(n.whole < 1.5, -logarithm, logarithm)


def _log_gamma_far(x: Real) -> Real:
    inverse = 1.0 / x
    terms = _BERNOULLI[: _TERMS[x.dtype].stirling]
    coefficients = [number / (2 * k * (2 * k - 1)) for k, number in enumerate(terms, 1)][::-1]
    rest = inverse * polynomial(coefficients, inverse * inverse)
    return (x - 0.5) * (x.log() - 1.0) + (rest + (math.log(2 * math.pi) / 2 - 0.5))


def _digamma(x: Real) -> Real:
    mirrored = choose(x < 0.0, 1.0 - x, x)
    value = choose(mirrored >= float(_FAR), _digamma_far(mirrored), _digamma_near(_near(mirrored)))
    off = x.to_nearest()
    cotangent = math.pi / (off * math.pi).tan()
    return choose(x < 0.0, choose(off.equal(0.0), math.nan, value - cotangent), value)


def _digamma_near(n: _Near) -> Real:
    series = polynomial(_power_series(1, n.x.dtype), n.z)
    inverse = 1.0 / n.x
    total = functools.reduce(operator.add, n.above(lambda number: 1.0 / number, 0.0))
    return series + n.by_size(-(inverse + 1.0 / (n.x + 1.0)), -inverse, total)


def _digamma_far(x: Real) -> Real:
    inverse = 1.0 / x
    square = inverse * inverse
    terms = _BERNOULLI[: _TERMS[x.dtype].stirling]
    coefficients = [number / (2 * k) for k, number in enumerate(terms, 1)][::-1]
    return x.log() - (inverse * 0.5 + square * polynomial(coefficients, square))


def _trigamma(x: Real) -> Real:
    is_low = x < 0.5
    mirrored = choose(is_low, 1.0 - x, x)
    value = choose(mirrored >= float(_FAR), _trigamma_far(mirrored), _trigamma_near(_near(mirrored)))
    quotient = math.pi / _sine(x)
    return choose(is_low, quotient * quotient - value, value)


def _trigamma_near(n: _Near) -> Real:
    series = polynomial(_power_series(2, n.x.dtype), n.z)

    def square(number: Real) -> Real:
        inverse = 1.0 / number
        return inverse * inverse

    total = functools.reduce(operator.add, n.above(square, 0.0))
    return series + n.by_size(square(n.x) + square(n.x + 1.0), square(n.x), -total)


def _trigamma_far(x: Real) -> Real:
    inverse = 1.0 / x
    square = inverse * inverse
    coefficients = _BERNOULLI[: _TERMS[x.dtype].stirling][::-1]
    return inverse * (1.0 + inverse * 0.5 + square * polynomial(coefficients, square))


def _derivative(order: int, x: Real) -> Real:
    """The derivative of the digamma function of an order above 1; as in PyTorch, there is none at infinity."""
    is_low, sign = x <= 0.0, -((-1.0) ** order)
    value = sign * math.factorial(order) * _sum_of_powers(order + 1, choose(is_low, 1.0 - x, x))
    cotangent = np.polynomial.Polynomial([0, 1])
    for _ in range(order):  # of the cotangent, by powers of it
        cotangent = -np.polynomial.Polynomial([1, 0, 1]) * cotangent.deriv()
    coefficients = [float(each) * math.pi ** (order + 1) for each in cotangent.coef[::-1]]
    reflected = -sign * value - polynomial(coefficients, 1.0 / (x.to_nearest() * math.pi).tan())
    return choose(is_low, choose(x.equal(x.floor()), sign * math.inf, reflected), choose(x < math.inf, value, math.nan))


def _sum_of_powers(s: int, x: Real) -> Real:
    """The zeta function of Hurwitz, of a positive number: the sum of (x + k) ** -s for all k."""

    near = functools.reduce(
        operator.add, (whole_power(1.0 / (x + float(k)), s) for k in range(1, _FAR)), whole_power(1.0 / x, s)
    )
    inverse = 1.0 / (x + float(_FAR))
    terms = _BERNOULLI[: _TERMS[x.dtype].stirling]
    coefficients = [
        number * math.perm(s + 2 * k - 2, 2 * k - 1) / math.factorial(2 * k) for k, number in enumerate(terms, 1)
    ]
    rest = 0.5 + inverse * polynomial(coefficients[::-1], inverse * inverse)
    return near + whole_power(inverse, s - 1) * (1 / (s - 1)) + whole_power(inverse, s) * rest


def _polygamma(t: Translation, a: SimpleNamespace) -> Expression:
    """A derivative of the digamma function."""
    if a.n > _LARGEST_ORDER:
        raise NotConvertible(f"a derivative of the digamma function of an order above {_LARGEST_ORDER}")
    formula = (_digamma, _trigamma)[a.n] if a.n < 2 else functools.partial(_derivative, a.n)
    return function_of(formula)(t, a)


CONVERTERS: dict[str, Converter] = {
    "lgamma.default": function_of(_log_gamma),
    "digamma.default": function_of(_digamma),
    "polygamma.default": _polygamma,
}
"""Operator of aten -> its converter."""
