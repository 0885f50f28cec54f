"""Quantising as other runtimes do it: by a division, whose result is rounded once.

The compiler turns a division by a number into a product with its inverse, which is rounded: what lies between two steps
of the result, as half of all exact ties do, falls on the wrong side.  So the step's bits are given as an integer that
is read as a number, which is no number to the compiler's rules of arithmetic, and costs nothing.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.transform.legalize_ops.common import _try_convert_to_scalar_const

__all__ = ["divide_exactly"]

_LEVEL = 100  # above the compiler's own rules
_RULE = "FLegalize"
_BITS = {"float32": ("<f", "<i", "int32"), "float64": ("<d", "<q", "int64")}


@cache
def divide_exactly() -> None:
    """From now on, this process legalises quantising to integers as a division by the step."""
    usual = tvm.ir.Op.get("relax.quantize").get_attr(_RULE)

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        data, step, zero = call.args
        wanted = str(call.attrs.out_dtype)
        if "int" not in wanted or str(data.ty.dtype) not in _BITS or str(step.ty.dtype) != str(data.ty.dtype):
            return usual(builder, call)
        axis = int(call.attrs.axis) % int(data.ty.ndim) if int(data.ty.ndim) else 0

        def quantise(x: te.Tensor, by: Any, offset: Any) -> te.Tensor:
            def compute(*indices: Any) -> Any:
                steps = tirx.round(x[indices] / _opaque(_at(by, indices, axis)))
                moved = steps + _at(offset, indices, axis).astype(x.dtype)
                low, high = (tirx.Cast(x.dtype, bound(wanted)) for bound in (tirx.min_value, tirx.max_value))
                return tirx.max(low, tirx.min(high, moved)).astype(wanted)

            return te.compute(x.shape, compute, name="quantized")

        operands = (_try_convert_to_scalar_const(step), _try_convert_to_scalar_const(zero))
        return builder.call_te(quantise, data, *operands, primfunc_name_hint="quantize")

    tvm.ir.register_op_attr("relax.quantize", _RULE, legalise, level=_LEVEL)


def _at(parameter: Any, indices: tuple[Any, ...], axis: int) -> Any:
    """A step or zero point of the element: a number, a tensor of one element, or one along the axis."""
    if not isinstance(parameter, te.Tensor):
        return parameter
    if all(int(extent) == 1 for extent in parameter.shape):
        return parameter[(0,) * len(parameter.shape)]
    return parameter[indices[axis]]


def _opaque(value: Any) -> Any:
    """The number, which the compiler does not know; anything else as it is."""
    if not isinstance(value, tirx.FloatImm):
        return value
    kind = str(value.ty)
    number, integer, name = _BITS[kind]
    (bits,) = struct.unpack(integer, struct.pack(number, float(value.value)))
    return tirx.reinterpret(kind, tirx.const(bits, name))
