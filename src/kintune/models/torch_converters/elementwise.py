"""Element-wise functions: arithmetic, comparisons, logic, elementary functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from tvm import relax

from kintune.models.expressions import HALVES, constant_of, dtype_of, is_float, is_integer, shape_of
from kintune.models.formulas import Real, choose, expm1, log1p
from kintune.models.torch_converters.translation import Converter, Expression, Translation, function_of, torch_type

__all__ = ["CONVERTERS", "NUMBERS", "bounded", "operands"]

NUMBERS = (bool, int, float)
"""The types of numbers among the arguments of an operator."""


def common_type(*values: Any) -> str:
    """The element type to which PyTorch promotes two `values`; a tensor has precedence over a number."""

    def example(value: Any) -> Any:
        if isinstance(value, NUMBERS):
            return value
        return torch.empty((1,) * len(shape_of(value)), dtype=torch_type(dtype_of(value)))

    first, second = (example(value) for value in values)
    return str(torch.result_type(first, second)).removeprefix("torch.")


def operands(t: Translation, *values: Any, dtype: str) -> list[Expression]:
    """Tensors and numbers as tensors of one element type."""
    return [t.const(value, dtype) if isinstance(value, NUMBERS) else t.cast(value, dtype) for value in values]


def rounded_operands(t: Translation, *values: Any, dtype: str) -> list[Real]:
    """As `operands`, but values are rounded to `dtype` and then cast to float32 if that is of half precision."""
    return [Real(t, t.wide(value)) for value in operands(t, *values, dtype=dtype)]


def _computed_in(dtype: str, *values: Any) -> str:
    """The type to add and multiply in: float32 for half precision if one of the numbers is not exact in it."""
    if dtype in HALVES and any(
        isinstance(value, float) and float(torch.tensor(value, dtype=torch_type(dtype))) != value for value in values
    ):
        return "float32"
    return dtype


def _unary(operator: Callable[..., Any], wide: bool = True) -> Converter:
    """A converter of a function of one tensor; integers are cast to the result's type if that is floating-point."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        value = t.cast(a.self, t.result.dtype) if is_float(t.result.dtype) else a.self
        return t.finish(t.emit(operator(t.wide(value) if wide else value)))

    return convert


def _rounding(operator: Callable[..., Any]) -> Converter:
    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        if not is_float(dtype_of(a.self)):
            return a.self
        return t.finish(t.emit(operator(t.wide(a.self))))

    return convert


def _test(operator: Callable[..., Any], otherwise: bool) -> Converter:
    """A converter of a test such as isnan; of integers its result is `otherwise`."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        if not is_float(dtype_of(a.self)):
            return t.full(t.result.shape, otherwise, "bool")
        return t.emit(operator(t.wide(a.self)))

    return convert


def _add(t: Translation, a: SimpleNamespace) -> Expression:
    return _sum(t, a.self, a.other, getattr(a, "alpha", 1))


def _sub(t: Translation, a: SimpleNamespace) -> Expression:
    return _sum(t, a.self, a.other, getattr(a, "alpha", 1), relax.op.subtract)


def _rsub(t: Translation, a: SimpleNamespace) -> Expression:
    return _sum(t, a.other, a.self, getattr(a, "alpha", 1), relax.op.subtract)


def _sum(t: Translation, left: Any, right: Any, alpha: Any, operator: Callable[..., Any] = relax.op.add) -> Expression:
    if t.result.dtype == "bool":
        return t.emit(relax.op.logical_or(*operands(t, left, right, dtype="bool")))
    dtype = _computed_in(t.result.dtype, left, right, alpha)
    if isinstance(right, NUMBERS):
        right, alpha = right * alpha, 1
    left, right = operands(t, left, right, dtype=dtype)
    if alpha != 1:
        right = t.emit(relax.op.multiply(right, t.const(alpha, dtype)))
    return t.finish(t.emit(operator(left, right)))


def _mul(t: Translation, a: SimpleNamespace) -> Expression:
    if t.result.dtype == "bool":
        return t.emit(relax.op.logical_and(*operands(t, a.self, a.other, dtype="bool")))
    left, right = operands(t, a.self, a.other, dtype=_computed_in(t.result.dtype, a.self, a.other))
    return t.finish(t.emit(relax.op.multiply(left, right)))


def _div(t: Translation, a: SimpleNamespace) -> Expression:
    mode = getattr(a, "rounding_mode", None)
    dtype = "float32" if t.result.dtype in HALVES else t.result.dtype
    left, right = (Real(t, value) for value in operands(t, a.self, a.other, dtype=dtype))
    if is_integer(dtype):
        left, right = _not_trapping(left, right)
        return (left.floor_divide(right) if mode == "floor" else left / right).value
    if mode == "floor":
        return t.finish(_floored_quotient(left, right).value)
    return t.finish(((left / right).trunc() if mode == "trunc" else left / right).value)


def _not_trapping(left: Real, right: Real) -> tuple[Real, Real]:
    """Operands of a division of integers that does not end the process.

    A divisor of 0 becomes 1.  Where the divisor is -1, both operands change their signs: the quotient of the least
    number of a type wraps around, and the remainder is 0.
    """
    if not is_integer(right.dtype) or constant_of(right.value) is not None:
        return left, right
    if not right.dtype.startswith("uint"):
        opposite = right.equal(-1)
        left, right = choose(opposite, 0 - left, left), choose(opposite, 1, right)
    return left, choose(right.equal(0), 1, right)


def _wrapped(remainder: Real, divisor: Real) -> Real:
    """Whether a remainder with the sign of the dividend has another sign than the divisor."""
    return remainder.not_equal(0) & ((remainder < 0) ^ (divisor < 0))


def _floored_quotient(left: Real, right: Real) -> Real:
    """The quotient rounded down, as PyTorch computes it: from the remainder, so that rounding cannot reach the next."""
    remainder = left.mod(right)
    quotient = (left - remainder) / right
    exact = choose(_wrapped(remainder, right), quotient - 1, quotient).round()
    return choose(right.equal(0), left / right, exact)


def _remainder(t: Translation, a: SimpleNamespace) -> Expression:
    """The remainder with the sign of the divisor; operands are rounded to the result's type first."""
    left, right = _not_trapping(*rounded_operands(t, a.self, a.other, dtype=t.result.dtype))
    if is_integer(left.dtype):
        return left.floor_mod(right).value
    remainder = left.mod(right)
    return t.finish(choose(_wrapped(remainder, right), remainder + right, remainder).value)


def _fmod(t: Translation, a: SimpleNamespace) -> Expression:
    """The remainder with the sign of the dividend; operands are rounded to the result's type first."""
    left, right = _not_trapping(*rounded_operands(t, a.self, a.other, dtype=t.result.dtype))
    return t.finish(left.mod(right).value)


def _compare(operator: Callable[..., Any]) -> Converter:
    """A converter of a comparison; both operands are cast to the type to which PyTorch promotes them."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        dtype = common_type(a.self, a.other)
        left, right = operands(t, a.self, a.other, dtype="int32" if dtype == "bool" else dtype)
        return t.emit(operator(left, right))

    return convert


def _pairwise(
    operator: Callable[..., Any], of_truth_values: Callable[..., Any] | None = None, dtype: str | None = None
) -> Converter:
    """A converter of an operator of two operands in the result's type or `dtype`; truth values may have another one."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        kind = dtype or t.result.dtype
        used = (of_truth_values if kind == "bool" else None) or operator
        return t.emit(used(*operands(t, a.self, a.other, dtype=kind)))

    return convert


def _logical_not(t: Translation, a: SimpleNamespace) -> Expression:
    return t.emit(relax.op.logical_not(t.cast(a.self, "bool")))


def _bitwise_not(t: Translation, a: SimpleNamespace) -> Expression:
    return t.emit((relax.op.logical_not if t.result.dtype == "bool" else relax.op.bitwise_not)(a.self))


def extreme(t: Translation, operator: Callable[..., Any], left: Expression, right: Expression) -> Expression:
    """The larger or smaller of two tensors; NaN where either is NaN.  TVM has none of truth values."""
    if dtype_of(left) == "bool":
        operator = relax.op.logical_or if operator is relax.op.maximum else relax.op.logical_and
    return t.emit(operator(left, right))


def _extreme(operator: Callable[..., Any]) -> Converter:
    return lambda t, a: extreme(t, operator, *operands(t, a.self, a.other, dtype=t.result.dtype))


def _extreme_number(operator: Callable[..., Any]) -> Converter:
    """A converter of the larger or smaller of two tensors; NaN where both are."""

    def convert(t: Translation, a: SimpleNamespace) -> Expression:
        result = _extreme(operator)(t, a)
        if not is_float(t.result.dtype):
            return result
        left, right = operands(t, a.self, a.other, dtype=t.result.dtype)
        for one, other in ((left, right), (right, left)):
            result = t.emit(relax.op.where(t.emit(relax.op.isnan(t.wide(one))), other, result))
        return result

    return convert


def _clamp(t: Translation, a: SimpleNamespace) -> Expression:
    """Clamps to bounds that are numbers or tensors; where they cross, the result is the upper one."""
    dtype = t.result.dtype
    value = t.cast(a.self, dtype)
    for bound, operator in (
        (getattr(a, "min", None), relax.op.maximum),
        (getattr(a, "max", None), relax.op.minimum),
    ):
        if bound is None:
            continue
        if isinstance(bound, NUMBERS):
            value = bounded(t, operator, value, bound)
        else:
            value = extreme(t, operator, value, t.cast(bound, dtype))
    return value


def bounded(t: Translation, operator: Callable[..., Any], value: Expression, bound: float) -> Expression:
    """The maximum or minimum of `value` and a number; NaN stays NaN, since `value` is the second operand."""
    dtype = dtype_of(value)
    if is_integer(dtype):
        if not math.isfinite(bound):
            unbounded = (bound > 0) == (operator is relax.op.minimum)
            return value if unbounded else t.full(shape_of(value), torch.iinfo(torch_type(dtype)).max, dtype)
        limits = torch.iinfo(torch_type(dtype))
        bound = min(max(int(bound), limits.min), limits.max)
    elif math.isinf(bound) and (bound > 0) == (operator is relax.op.minimum):
        return value
    return t.emit(operator(t.const(bound, dtype), value))


def _round(t: Translation, a: SimpleNamespace) -> Expression:
    if not is_float(dtype_of(a.self)):
        return a.self
    x, decimals = Real(t, t.wide(a.self)), getattr(a, "decimals", 0)
    scale = 10.0 ** abs(decimals)
    return t.finish(((x / scale).round() * scale if decimals < 0 else (x * scale).round() / scale).value)


def _sign(t: Translation, a: SimpleNamespace) -> Expression:
    if t.result.dtype == "bool":
        return a.self
    return t.finish(t.emit(relax.op.sign(t.wide(a.self))))


def _where(t: Translation, a: SimpleNamespace) -> Expression:
    return t.emit(relax.op.where(t.cast(a.condition, "bool"), *operands(t, a.self, a.other, dtype=t.result.dtype)))


def _masked_fill(t: Translation, a: SimpleNamespace) -> Expression:
    return t.emit(relax.op.where(a.mask, *operands(t, a.value, a.self, dtype=t.result.dtype)))


def _atan2(t: Translation, a: SimpleNamespace) -> Expression:
    left, right = (t.wide(value) for value in operands(t, a.self, a.other, dtype=t.result.dtype))
    return t.finish(t.emit(relax.op.atan2(left, right)))


def _hypot(t: Translation, a: SimpleNamespace) -> Expression:
    """Scaled by the larger side, so that no square overflows."""
    left, right = (abs(Real(t, t.wide(value))) for value in operands(t, a.self, a.other, dtype=t.result.dtype))
    long, short = left.maximum(right), left.minimum(right)
    ratio = short / long  # NaN of two zeros and of two infinities
    return t.finish(choose(short.equal(long), long * math.sqrt(2), long * (ratio * ratio + 1).sqrt()).value)


def _to_copy(t: Translation, a: SimpleNamespace) -> Expression:
    """A copy, perhaps of another type; one that was cast to bfloat16 and is cast back is rounded explicitly."""
    if t.result.dtype == "float32" and (rounded := t.shortened.restored(t.builder, a.self)) is not None:
        return t.emit(rounded)
    result = t.finish(a.self)
    t.shortened.cast(a.self, result)
    return result


_COPIES: tuple[str, ...] = ("_to_copy.default", "clone.default", "alias.default", "detach.default", "detach_.default")
_COPIES += ("lift_fresh_copy.default", "contiguous.default", "to.dtype", "_unsafe_copy.default", "dropout.default")
_FUNCTIONS: tuple[str, ...] = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log")
_FUNCTIONS += ("rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh")
_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal"}
_COMPARISONS |= {"gt": "greater", "ge": "greater_equal"}

CONVERTERS: dict[str, Converter] = {
    **{f"{name}.default": _unary(getattr(relax.op, name)) for name in _FUNCTIONS},
    **{f"{name}.default": _rounding(getattr(relax.op, name)) for name in ("ceil", "floor", "trunc")},
    **{
        f"{name}.{kind}": _compare(getattr(relax.op, operator))
        for name, operator in _COMPARISONS.items()
        for kind in ("Tensor", "Scalar")
    },
    **{
        f"logical_{name}.default": _pairwise(getattr(relax.op, f"logical_{name}"), dtype="bool")
        for name in ("and", "or", "xor")
    },
    **{
        f"bitwise_{name}.{kind}": _pairwise(*(getattr(relax.op, f"{group}_{name}") for group in ("bitwise", "logical")))
        for name in ("and", "or", "xor")
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{f"{name}.{kind}": op for name, op in (("add", _add), ("sub", _sub)) for kind in ("Tensor", "Scalar")},
    **{f"rsub.{kind}": _rsub for kind in ("Tensor", "Scalar")},
    **{f"mul.{kind}": _mul for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}": _div for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"remainder.{kind}": _remainder for kind in ("Tensor", "Scalar", "Scalar_Tensor")},
    **{f"fmod.{kind}": _fmod for kind in ("Tensor", "Scalar")},
    **{
        f"bitwise_{side}_shift.{kind}": _pairwise(getattr(relax.op, f"{side}_shift"))
        for side in ("left", "right")
        for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{
        f"__{side[0]}shift__.{kind}": _pairwise(getattr(relax.op, f"{side}_shift"))
        for side in ("left", "right")
        for kind in ("Tensor", "Scalar")
    },
    **{f"clamp.{kind}": _clamp for kind in ("default", "Tensor")},
    **{f"where.{kind}": _where for kind in ("self", "ScalarSelf", "ScalarOther", "Scalar")},
    **{f"masked_fill.{kind}": _masked_fill for kind in ("Scalar", "Tensor")},
    **dict.fromkeys(_COPIES, _to_copy),
    "abs.default": _unary(relax.op.abs, wide=False),
    "neg.default": _unary(relax.op.negative, wide=False),
    "isnan.default": _test(relax.op.isnan, otherwise=False),
    "isinf.default": _test(relax.op.isinf, otherwise=False),
    "isfinite.default": _test(relax.op.isfinite, otherwise=True),
    "logical_not.default": _logical_not,
    "bitwise_not.default": _bitwise_not,
    "maximum.default": _extreme(relax.op.maximum),
    "minimum.default": _extreme(relax.op.minimum),
    "fmax.default": _extreme_number(relax.op.maximum),
    "fmin.default": _extreme_number(relax.op.minimum),
    "expm1.default": function_of(expm1),
    "log1p.default": function_of(log1p),
    "log2.default": function_of(lambda x: x.log() * (1 / math.log(2))),
    "log10.default": function_of(lambda x: x.log() * (1 / math.log(10))),
    "exp2.default": function_of(lambda x: x.constant(2).power(x)),
    "reciprocal.default": function_of(lambda x: 1 / x),
    "round.default": _round,
    "round.decimals": _round,
    "sign.default": _sign,
    "angle.default": function_of(lambda x: choose(x < 0.0, math.pi, choose(x >= 0.0, x.constant(0.0), x))),
    "atan2.default": _atan2,
    "hypot.default": _hypot,
}
"""Operator of aten -> its converter."""
