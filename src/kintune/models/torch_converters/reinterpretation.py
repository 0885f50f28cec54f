"""Tensors whose bytes are read as elements of another type, and the bit that is the sign."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import tvm
from tvm import relax, te, tirx

from kintune.models.expressions import dtype_of, is_float, shape_of
from kintune.models.torch_converters.translation import Converter, Expression, Translation

__all__ = ["CONVERTERS"]

_UPPER_HALF = "bfloat16"
_OPAQUE = 8  # TVM's operator pattern kOpaque: the kernel is fused with nothing


def _view_as(t: Translation, a: SimpleNamespace) -> Expression:
    """A tensor read as another type; an element is a part of one of another size, or is made of several neighbours."""
    value, dtype = a.self, t.result.dtype
    if dtype_of(value) == "bool":
        value = t.cast(value, "uint8")
    stored = "uint8" if dtype == "bool" else dtype
    if dtype_of(value) == stored:
        return t.finish(value)
    shape = t.result.shape or (1,)
    value = t.reshape(value, shape_of(value) or (1,))
    types = (dtype_of(value), stored)
    attributes = {"op_pattern": _OPAQUE} if _UPPER_HALF in types else None
    kernel = t.builder.call_te(
        _reading(*types, shape), _as_single(t, value), primfunc_name_hint="reinterpret", primfunc_attrs=attributes
    )
    read = t.emit(kernel)
    return t.finish(t.reshape(read, t.result.shape))


def _as_single(t: Translation, value: Expression) -> Expression:
    """`value`, in single precision if it is of bfloat16, whose bits are the upper ones."""
    return t.cast(value, "float32") if dtype_of(value) == _UPPER_HALF else value


def _reading(source: str, dtype: str, shape: tuple[int, ...]) -> Callable[[te.Tensor], te.Tensor]:
    """What computes a tensor of this shape and type; the first byte of an element is the lowest one.

    It reads, and makes, float32 in place of bfloat16.
    """
    given, wanted = (int(tvm.DataType(each).bits) for each in (source, dtype))

    def stored(value: te.Tensor, *place: Any) -> Any:
        element = value[place]
        if source == _UPPER_HALF:
            return _rounded(tirx.reinterpret("uint32", element)).astype("uint16")
        return element if source == f"uint{given}" else tirx.reinterpret(f"uint{given}", element)

    def part(value: te.Tensor, *place: Any) -> Any:
        each = given // wanted
        whole = stored(value, *place[:-1], tirx.floordiv(place[-1], each))
        shift = (tirx.floormod(place[-1], each) * wanted).astype(f"uint{given}")
        return tirx.shift_right(whole, shift).astype(f"uint{wanted}")

    def joined(value: te.Tensor, *place: Any) -> Any:
        each = wanted // given
        total: Any = tirx.const(0, f"uint{wanted}")
        for at in range(each):
            bits = stored(value, *place[:-1], place[-1] * each + at).astype(f"uint{wanted}")
            total = tirx.bitwise_or(total, tirx.shift_left(bits, tirx.const(at * given, f"uint{wanted}")))
        return total

    bits_of = stored if given == wanted else part if given > wanted else joined

    def read(value: te.Tensor) -> te.Tensor:
        def at(*place: Any) -> Any:
            bits = bits_of(value, *place)
            if dtype == _UPPER_HALF:
                whole = tirx.shift_left(bits.astype("uint32"), tirx.const(wanted, "uint32"))
                return tirx.reinterpret("float32", whole)
            return bits if dtype == f"uint{wanted}" else tirx.reinterpret(dtype, bits)

        return te.compute(shape, at, name="reinterpreted")

    return read


def _rounded(single: Any) -> Any:
    """The bits of a number of bfloat16 from those of single precision.

    The kernel before may have left out that the number was rounded: the compiler computes such numbers in float32.
    """
    half, one = (tirx.const(number, "uint32") for number in (16, 1))
    last = tirx.bitwise_and(tirx.shift_right(single, half), one)
    return tirx.shift_right(single + last + tirx.const(0x7FFF, "uint32"), half)


def _is_negative(t: Translation, value: Expression) -> Expression:
    """Where the sign bit is set, also of zeros."""
    dtype, shape = dtype_of(value), shape_of(value)
    if is_float(dtype):
        value = t.reshape(t.wide(value), shape or (1,))
        bits = f"int{tvm.DataType(dtype_of(value)).bits}"
        reading = _reading(dtype_of(value), bits, shape_of(value))
        value = t.reshape(t.emit(t.builder.call_te(reading, value, primfunc_name_hint="reinterpret")), shape)
    value = t.cast(value, "int8") if dtype == "bool" else value
    return t.emit(relax.op.less(value, t.const(0, dtype_of(value))))


def _sign_bit(t: Translation, a: SimpleNamespace) -> Expression:
    return _is_negative(t, a.self)


def _with_sign(t: Translation, a: SimpleNamespace) -> Expression:
    """The magnitude of a tensor with the sign of another one, or of a number."""
    positive = t.emit(relax.op.abs(t.wide(t.cast(a.self, t.result.dtype))))
    negative = t.emit(relax.op.negative(positive))
    if isinstance(a.other, bool | int | float):
        return t.finish(negative if math.copysign(1, a.other) < 0 else positive)
    return t.finish(t.emit(relax.op.where(_is_negative(t, a.other), negative, positive)))


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("view.dtype", "view_copy.dtype"), _view_as),
    "signbit.default": _sign_bit,
    **dict.fromkeys(("copysign.Tensor", "copysign.Scalar"), _with_sign),
}
"""Operator of aten -> its converter."""
