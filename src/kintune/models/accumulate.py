"""Sums of half-precision products in float32, as the other runtimes form them.

A float16 or bfloat16 product that is also summed in its own type loses a digit over a few hundred terms.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

__all__ = ["accumulate_in_float32"]

_HALVES = frozenset({"float16", "bfloat16"})
_CONVOLUTION = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
_TRANSPOSED = (*_CONVOLUTION, "output_padding")
_SUMMING: dict[str, tuple[Any, tuple[str, ...]]] = {
    "relax.matmul": (relax.op.matmul, ()),
    "relax.nn.conv1d": (relax.op.nn.conv1d, _CONVOLUTION),
    "relax.nn.conv2d": (relax.op.nn.conv2d, _CONVOLUTION),
    "relax.nn.conv3d": (relax.op.nn.conv3d, _CONVOLUTION),
    "relax.nn.conv1d_transpose": (relax.op.nn.conv1d_transpose, _TRANSPOSED),
    "relax.nn.conv2d_transpose": (relax.op.nn.conv2d_transpose, _TRANSPOSED),
}
"""Operator name -> its function, and the attributes that are handed on."""


def accumulate_in_float32(module: tvm.IRModule) -> tvm.IRModule:
    """The module with every half-precision matrix product and convolution summed in float32 and rounded once."""
    mutator = _Accumulate()
    summed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    summed["main"] = mutator.visit_expr(module["main"])
    return summed


@relax.expr_functor.mutator
class _Accumulate(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> Any:
        call = self.visit_expr_post_order(call)
        operator, attributes = _SUMMING.get(getattr(call.op, "name", ""), (None, ()))
        if operator is None or str(call.ty.dtype) not in _HALVES:
            return call
        kept = {name: getattr(call.attrs, name) for name in attributes}
        summed = self.builder_.emit(operator(*call.args, **kept, out_dtype="float32"))
        return relax.op.astype(summed, str(call.ty.dtype))
