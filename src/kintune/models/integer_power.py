"""Powers of integers by repeated squaring: exact, where a floating-point number has too few digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx

from kintune.models.expressions import dtype_of, elementwise

__all__ = ["integer_power"]

_BITS = 8  # of an exponent: with a larger one, only the powers of -1, 0 and 1 have at most 64 bits


def integer_power(builder: relax.BlockBuilder, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """A call, not bound yet, that computes integer powers of two tensors of one type, which broadcast.

    With a negative exponent, powers of -1 and 1 are exact, and others 0, as in PyTorch.
    """
    dtype = dtype_of(base)
    return elementwise(builder, lambda x, n: _power(x, n, dtype), "integer_power", base, exponent)


def _power(base: Any, exponent: Any, dtype: str) -> Any:
    one, zero, limits = tirx.const(1, dtype), tirx.const(0, dtype), np.iinfo(dtype)
    largest, odd, bounded = (1 << _BITS) - 1, exponent & one, exponent
    if limits.max > largest:  # those beyond become one that is as odd or even
        bounded = tirx.Select(exponent > tirx.const(largest, dtype), tirx.const(largest - 1, dtype) + odd, exponent)
    if limits.min < 0:
        minus, is_negative = tirx.const(-1, dtype), exponent < zero
        inverse = tirx.Select(base == one, one, tirx.Select(base == minus, minus, zero))
        base = tirx.Select(is_negative, inverse, base)
        bounded = tirx.Select(is_negative, tirx.const(2, dtype) + odd, bounded)
    square = tirx.Var("base", dtype)
    return tirx.Let(square, base, _by_bits(one, square, bounded, 0))


def _by_bits(result: Any, square: Any, exponent: Any, bit: int) -> Any:
    """`result` times the power of `square` that the bits of the exponent from this one on stand for."""
    dtype = str(exponent.ty)
    one = tirx.const(1, dtype)
    is_set = ((exponent >> tirx.const(bit, dtype)) & one) == one
    times = tirx.Select(is_set, result * square, result)
    if bit + 1 == _BITS:
        return times
    new_result, new_square = tirx.Var("result", dtype), tirx.Var("square", dtype)
    rest = tirx.Let(new_square, square * square, _by_bits(new_result, new_square, exponent, bit + 1))
    return tirx.Let(new_result, times, rest)
