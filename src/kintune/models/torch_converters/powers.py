"""Powers: products for constant integer exponents, exact ones of integers, and the C library for the rest."""

from __future__ import annotations

from types import SimpleNamespace

from tvm import relax

from kintune.models.expressions import HALVES, dtype_of, is_float, is_integer, shape_of
from kintune.models.integer_power import integer_power
from kintune.models.torch_converters.elementwise import NUMBERS, operands
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def _pow(t: Translation, a: SimpleNamespace) -> Expression:
    base, exponent, dtype = a.self, a.exponent, t.result.dtype
    if dtype == "bool":
        raise NotConvertible("a power of booleans")
    if isinstance(exponent, NUMBERS):
        value = t.wide(t.cast(base, dtype))
        if float(exponent).is_integer() and 0 <= exponent <= 64:
            return t.finish(_whole_power(t, value, int(exponent)))
        if is_float(dtype):
            special = {0.5: (relax.op.sqrt,), -0.5: (relax.op.rsqrt,)}.get(float(exponent))
            if special:
                return t.finish(t.emit(special[0](value)))
            if exponent in (-1, -2):
                one = t.const(1, dtype_of(value))
                return t.finish(t.emit(relax.op.divide(one, _whole_power(t, value, -int(exponent)))))
    if is_integer(dtype):
        return t.emit(integer_power(t.builder, *operands(t, base, exponent, dtype=dtype)))
    left, right = operands(t, base, exponent, dtype="float32" if dtype in HALVES else dtype)
    return t.finish(t.emit(relax.op.power(left, right)))


def _whole_power(t: Translation, value: Expression, exponent: int) -> Expression:
    """The power by repeated squaring; `exponent` is not negative."""
    result = None
    while exponent:
        if exponent & 1:
            result = value if result is None else t.emit(relax.op.multiply(result, value))
        exponent >>= 1
        if exponent:
            value = t.emit(relax.op.multiply(value, value))
    return result if result is not None else t.full(shape_of(value), 1, dtype_of(value))


CONVERTERS: dict[str, Converter] = {f"pow.{kind}": _pow for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")}
"""Operator of aten -> its converter."""
