"""Half precision: computes products, norms, sums and functions in float32, as other runtimes do, and rounds once.

A float16 or bfloat16 product that is summed in its own type loses a digit over a few hundred terms; so do norms, means
and softmax.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from kintune.models.expressions import HALVES

__all__ = ["accumulate_in_float32"]

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
"""Maps an operator's name to its function and the attributes that are passed to it."""

_WIDENED = frozenset(
    f"relax.{name}"
    for name in (
        *("nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.rms_norm", "nn.softmax", "nn.log_softmax"),
        *("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.gelu", "nn.gelu_tanh", "nn.silu"),
        *("sum", "mean", "variance", "std", "prod", "cumsum", "cumprod", "exp", "log", "erf", "tanh", "sigmoid"),
        *("sqrt", "rsqrt", "power", "sin", "cos"),
    )
)
"""Operators that are computed in float32 as a whole, and rounded once."""


def accumulate_in_float32(module: tvm.IRModule) -> tvm.IRModule:
    """The module with half-precision products, norms, sums and functions computed in float32 and rounded once."""
    mutator = _Accumulate()
    summed = tvm.IRModule(dict(module.functions_items()), attrs=module.attrs)
    summed["main"] = mutator.visit_expr(module["main"])
    return summed


@relax.expr_functor.mutator
class _Accumulate(relax.PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> Any:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        operator, attributes = _SUMMING.get(name, (None, ()))
        if name not in _WIDENED and operator is None:
            return call
        if str(call.ty.dtype) not in HALVES:
            return call
        if operator is None:
            return self._widened(call)
        kept = {name: getattr(call.attrs, name) for name in attributes}
        summed = self.builder_.emit(operator(*call.args, **kept, out_dtype="float32"))
        return relax.op.astype(summed, str(call.ty.dtype))

    def _widened(self, call: relax.Call) -> Any:
        """`call` on float32, rounded to its type."""
        arguments = [
            self.builder_.emit(relax.op.astype(argument, "float32"))
            if isinstance(argument.ty, relax.TensorType) and str(argument.ty.dtype) in HALVES
            else argument
            for argument in call.args
        ]
        wide = self.builder_.emit(relax.Call(call.op, arguments, call.attrs))
        return relax.op.astype(wide, str(call.ty.dtype))
