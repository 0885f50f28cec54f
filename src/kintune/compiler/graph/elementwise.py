"""Elementary functions as arithmetic that vectorises.

The compiler makes a call of the C library for each element of an `exp`, `erf`, `tanh` or `sigmoid`: for a layer of BERT
with its error function, two fifths of the time.  Here they become polynomials, which are computed for whole vectors.
Infinities, and what is not a number, come out as they should; `benchmarks/elementary.py` fits the coefficients and
prints the largest errors, some 1e-7.

The exponential is reduced to a power of two and a remainder as in Cody and Waite, "Software Manual for the Elementary
Functions" (1980), chapter 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import tvm
from tvm import tirx

__all__ = ["use_vector_functions"]

_TYPE = "float32"
_RULES = ("llvm.FLowerIntrinsic", "default.FLowerIntrinsic")  # the compiler's own, the first one there is
_LEVEL = 100  # above the compiler's own rules

_EXP = (
    1.0, 1.0, 0.49999991059303284, 0.16666419804096222, 0.04166822507977486, 0.008374815806746483,
    0.0013836821308359504,
)  # fmt: skip
_LARGEST, _SMALLEST = 88.72283172607422, -87.33654022216797  # of which the exponential is a normal number
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4

_ERF = (
    0.36073681712150574, -0.18010911345481873, 0.13408227264881134, -0.10915932059288025, 0.09063805639743805,
    -0.07425139844417572, 0.05812297761440277, -0.04225587099790573, 0.030552111566066742, -0.023070864379405975,
    0.01284931879490614, -0.003389945952221751, 0.00298604229465127, -0.004401788115501404, 0.0017727607628330588,
)  # fmt: skip
_ERF_LIMIT = 3.92

_TANH = (
    1.0, -0.3333325982093811, 0.13331127166748047, -0.05372105911374092, 0.02059096284210682, -0.005659963935613632,
)  # fmt: skip
_TANH_LIMIT = 0.625


@cache
def use_vector_functions() -> None:
    """From now on, this process compiles the elementary functions of float32 to vector arithmetic."""
    for name, function in _FUNCTIONS.items():
        tvm.ir.Op.get(name).set_attr("TVectorizable", value=True, plevel=_LEVEL)
        tirx.register_intrin_lowering(name, target="llvm", f=_rule(name, function), level=_LEVEL)


def _rule(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """How a call is lowered: other types than float32, and vectors of it, as the compiler would."""
    usual = next(filter(None, map(tvm.ir.Op.get(name).get_attr, _RULES)))

    def lower(call: Any) -> Any:
        (x,) = call.args
        scalar, _, _ = str(call.ty).partition("x")
        if scalar != _TYPE:
            return usual(call)
        return _let("x", x, function)

    return lower


def _exp(x: Any) -> Any:
    clipped = _clipped(x, _SMALLEST, _LARGEST)
    value = _let("clipped", clipped, lambda c: _let("power", _power_of(c), lambda n: _exp_of_parts(c, n)))
    return tirx.Select(x > _like(x, _LARGEST), _like(x, math.inf), value)


def _power_of(x: Any) -> Any:
    return tirx.floor(x * _like(x, 1 / math.log(2)) + _like(x, 0.5))


def _exp_of_parts(x: Any, power: Any) -> Any:
    """e^x, where `power` is the nearest power of two; half of it at first, since the whole may need one power more."""
    rest = x - power * _like(x, _LN2_HIGH) - power * _like(x, _LN2_LOW)
    whole = str(x.ty).replace("float", "int")
    exponent = (tirx.Cast(whole, power) + _constant(whole, 126)) << _constant(whole, 23)
    half = _let("rest", rest, lambda r: _horner(_EXP, r)) * tirx.reinterpret(str(x.ty), exponent)
    return half * _like(x, 2.0)


def _erf(x: Any) -> Any:
    def odd(c: Any) -> Any:
        return _let("s", c * c * _like(c, 2 / _ERF_LIMIT**2) - _like(c, 1.0), lambda s: c * _horner(_ERF, s))

    return _clipped(_let("clipped", _clipped(x, -_ERF_LIMIT, _ERF_LIMIT), odd), -1.0, 1.0)


def _tanh(x: Any) -> Any:
    small = _let("square", x * x, lambda square: x * _horner(_TANH, square))
    size = tirx.Select(x < _like(x, 0.0), _like(x, 0.0) - x, x)
    large = _like(x, 1.0) - _like(x, 2.0) / (_let("doubled", size + size, _exp) + _like(x, 1.0))
    signed = _let("large", large, lambda value: tirx.Select(x < _like(x, 0.0), _like(x, 0.0) - value, value))
    return tirx.Select(size < _like(x, _TANH_LIMIT), small, signed)


_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "tirx.exp": _exp,
    "tirx.erf": _erf,
    "tirx.tanh": _tanh,
}
"""A sigmoid becomes an exponential by a rule of the compiler's."""


def _clipped(x: Any, low: float, high: float) -> Any:
    """`x` between bounds; what is not a number stays that, since a comparison with it is false and it comes second."""
    return tirx.max(_like(x, low), tirx.min(_like(x, high), x))


def _let(name: str, value: Any, body: Callable[[Any], Any]) -> Any:
    """`body` of a variable that stands for `value`; it may occur once, since a variable is bound but once."""
    variable = tirx.Var(name, str(value.ty))
    return tirx.Let(variable, value, body(variable))


def _horner(coefficients: Sequence[float], at: Any) -> Any:
    value: Any = _like(at, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * at + _like(at, coefficient)
    return value


def _like(x: Any, value: float) -> Any:
    """A constant of the type of `x`."""
    return _constant(str(x.ty), value)


def _constant(kind: str, value: float) -> Any:
    scalar, _, lanes = kind.partition("x")
    constant = tirx.const(value, scalar)
    return tirx.Broadcast(constant, int(lanes)) if lanes else constant
