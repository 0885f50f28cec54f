"""Modified Bessel functions of the first kind, of orders 0 and 1, as they are and times exp(-|x|).

Up to 8 they are summed by their power series, whose terms have one sign (M. Abramowitz and I. A. Stegun, Handbook of
Mathematical Functions, 1964, 9.6.10).  From there on, Chebyshev polynomials of 1 / x approximate sqrt(x) exp(-x) I(x),
as in C. W. Clenshaw, Chebyshev series for mathematical functions (1962).  Their coefficients are computed here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from kintune.models.formulas import Real, choose, polynomial
from kintune.models.torch_converters.translation import Converter, function_of

__all__ = ["CONVERTERS"]

_LIMIT = 8.0  # between small and large numbers
_ASYMPTOTIC = 40.0  # from here on, the asymptotic series is exact (9.7.1)
_DEGREE = 40
"""Degree of the polynomials before what an element type does not hold is cut off."""

_TERMS = {"float32": 17, "float64": 28}
"""The terms of the power series that an element type can tell."""

_Array = NDArray[np.float64]


def _power_series(order: int, terms: int) -> list[float]:
    """Coefficients of powers of x * x / 4, the highest first, of I(x), divided by x where the order is 1."""
    return [0.5**order / (math.factorial(k) * math.factorial(k + order)) for k in reversed(range(terms))]


def _asymptotic_series(order: int, x: _Array) -> _Array:
    """sqrt(x) exp(-x) I(x) for x of at least `_ASYMPTOTIC`."""
    term = np.full_like(x, 1 / np.sqrt(2 * np.pi))
    total = np.zeros_like(x)
    for k in range(1, 20):
        total += term
        term = -term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
    return total


def _large(order: int, place: _Array) -> _Array:
    """What is approximated from `_LIMIT` (which is 1) to infinity (which is -1)."""
    x = 2 * _LIMIT / (place + 1)
    near = np.minimum(x, _ASYMPTOTIC)
    by_powers = np.polyval(_power_series(order, 80), near * near / 4) * near**order * np.sqrt(near) * np.exp(-near)
    return np.where(x < _ASYMPTOTIC, by_powers, _asymptotic_series(order, np.maximum(x, _ASYMPTOTIC)))


@functools.cache
def _coefficients(order: int, dtype: str) -> tuple[float, ...]:
    """Coefficients of Chebyshev polynomials, the lowest degree first, as many as an element type can tell."""
    function: Any = functools.partial(_large, order)
    found: _Array = chebyshev.chebinterpolate(function, _DEGREE)
    rest = np.cumsum(np.abs(found)[::-1])[::-1]
    return tuple(float(each) for each in found[rest > np.finfo(dtype).eps * found[0] / 8])


def _sum(coefficients: tuple[float, ...], x: Real) -> Real:
    """A sum of Chebyshev polynomials, by Clenshaw's recurrence."""
    doubled = x + x
    later, latest = x.constant(0), x.constant(coefficients[-1])
    for coefficient in coefficients[-2:0:-1]:
        later, latest = latest, doubled * latest - later + coefficient
    return x * latest - later + coefficients[0]


def _bessel(order: int, *, scaled: bool) -> Callable[[Real], Real]:
    """I(x), times exp(-|x|) if it is scaled."""

    def formula(x: Real) -> Real:
        size = abs(x)
        small = polynomial(_power_series(order, _TERMS[x.dtype]), x * x * 0.25)
        large = _sum(_coefficients(order, x.dtype), 2 * _LIMIT / size - 1.0) / size.sqrt()
        if scaled:
            small = small * (-size).exp()
        else:
            large = large * size.exp()
        if order:
            small, large = small * x, choose(x < 0.0, -large, large)
        return choose(size > _LIMIT, large, small)

    return formula


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("i0.default", "special_modified_bessel_i0.default"), function_of(_bessel(0, scaled=False))),
    **dict.fromkeys(
        ("special_i1.default", "special_modified_bessel_i1.default"), function_of(_bessel(1, scaled=False))
    ),
    "special_i0e.default": function_of(_bessel(0, scaled=True)),
    "special_i1e.default": function_of(_bessel(1, scaled=True)),
}
"""Operator of aten -> its converter."""
