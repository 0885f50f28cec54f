"""Values that the compiler's analysis of integers must not look into."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from kintune.compiler.tir import nodes_in

__all__ = ["bindable"]


def bindable(value: Any) -> Any:
    """The value, in a form to which a variable may be bound: what chooses between floats is reinterpreted twice.

    TVM finds out in which interval a bound variable lies.  Of a float that is one of two it makes an interval, and of
    the product of this with another variable a comparison with an integer of the float's type, which does not exist.
    Reinterpretations are values of which it knows nothing; LLVM removes them.
    """
    scalar = str(value.ty).partition("x")[0]
    if scalar not in _BITS or not nodes_in(value, tirx.Select):
        return value
    bits = str(value.ty).replace(scalar, _BITS[scalar])
    return tirx.reinterpret(str(value.ty), tirx.reinterpret(bits, value))


_BITS = {"float16": "uint16", "float32": "uint32", "float64": "uint64"}
