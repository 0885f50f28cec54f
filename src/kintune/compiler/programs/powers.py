"""The exponential function of numbers that are not positive, in a third fewer operations than for all numbers.

e^x is 2^y with y = x / log(2), which is cut into an integer and a remainder.  Adding 1.5 * 2^23 rounds y to the
integer, which then stands in the low bits of the sum.  Shifted, these are added to the exponent of a polynomial in the
remainder.  `benchmarks/elementary.py` fits the polynomial.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

__all__ = ["power_of_e"]

_POWERS = (
    1.0000001192092896, 0.6931469440460205, 0.24022120237350464, 0.05550713464617729, 0.009675540961325169,
    0.0013276441022753716,
)  # fmt: skip
_ROUNDING = 12582912.0
_MANTISSA = 23
_SMALLEST = -125.0
"""The least exponent of two that is used: powers below 2^-126 are no normal numbers, and 2^-125 is nothing beside 1."""


def power_of_e(x: Any) -> Any:
    """e^x for a float32 `x` that is not positive; 2^-125 where e^x is smaller than that, and NaN where x is NaN."""
    return _let("exponent", tirx.max(_number(_SMALLEST), x * _number(1 / math.log(2))), _two_to)


def _two_to(exponent: Any) -> Any:
    return _let("rounded", exponent + _number(_ROUNDING), lambda rounded: _joined(exponent, rounded))


def _joined(exponent: Any, rounded: Any) -> Any:
    rest = exponent - (rounded - _number(_ROUNDING))
    power = _let("rest", rest, _polynomial)
    bits = tirx.reinterpret("int32", power) + (tirx.reinterpret("int32", rounded) << tirx.const(_MANTISSA, "int32"))
    return tirx.reinterpret("float32", bits)


def _polynomial(rest: Any) -> Any:
    value: Any = _number(_POWERS[-1])
    for coefficient in _POWERS[-2::-1]:
        value = value * rest + _number(coefficient)
    return value


def _let(name: str, value: Any, body: Any) -> Any:
    variable = tirx.Var(name, "float32")
    return tirx.Let(variable, value, body(variable))


def _number(value: float) -> Any:
    return tirx.const(value, "float32")
