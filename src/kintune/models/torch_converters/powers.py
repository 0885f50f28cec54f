"""Powers: products for constant integer exponents, exact ones of integers, and the C library for the rest."""

from __future__ import annotations

from types import SimpleNamespace

from tvm import relax

from kintune.models.expressions import HALVES, is_float, is_integer
from kintune.models.formulas import Real, whole_power
from kintune.models.integer_power import integer_power
from kintune.models.torch_converters.elementwise import NUMBERS, operands
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["CONVERTERS"]


def _pow(t: Translation, a: SimpleNamespace) -> Expression:
    base, exponent, dtype = a.self, a.exponent, t.result.dtype
    if dtype == "bool":
        raise NotConvertible("a power of booleans")
    if isinstance(exponent, NUMBERS):
        x = Real(t, t.wide(t.cast(base, dtype)))
        if float(exponent).is_integer() and 0 <= exponent <= 64:
            return t.finish(whole_power(x, int(exponent)).value)
        if is_float(dtype):
            if abs(exponent) == 0.5:
                return t.finish((x.sqrt() if exponent > 0 else x.rsqrt()).value)
            if exponent in (-1, -2):
                return t.finish((1 / whole_power(x, -int(exponent))).value)
    if is_integer(dtype):
        return t.emit(integer_power(t.builder, *operands(t, base, exponent, dtype=dtype)))
    left, right = operands(t, base, exponent, dtype="float32" if dtype in HALVES else dtype)
    return t.finish(t.emit(relax.op.power(left, right)))


CONVERTERS: dict[str, Converter] = {f"pow.{kind}": _pow for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")}
"""Operator of aten -> its converter."""
