"""Makes the kernels of products and convolutions of floats, with a note of what they compute (`Operator`).

The kernels are those that TVM makes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax, te, topi

from kintune.compiler.graph.rewriting import Rewriter, layouts_of, operator_of, pass_of, static_shape
from kintune.compiler.kernels.contraction import SUMS, Operator

__all__ = ["DescribeSums"]

_LAYOUTS = ("NHWC", "HWIO", "NHWC")
_TYPE = "float32"

_Compute = Callable[[te.Tensor, te.Tensor], te.Tensor]


class _DescribeSums(Rewriter):
    """A pass that makes functions of products with a matrix, and of convolutions, also depthwise ones."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        maker = _MAKERS.get(operator_of(call))
        shapes = [static_shape(each) for each in call.args[:2]] if maker else []
        if maker is None or None in shapes or any(str(each.ty.dtype) != _TYPE for each in (*call.args[:2], call)):
            return call
        compute = maker(call, *shapes)
        hint = operator_of(call).rpartition(".")[-1]
        return call if compute is None else self.builder_.call_te(compute, *call.args, primfunc_name_hint=hint)


DescribeSums = partial(pass_of, _DescribeSums)


def _convolution(call: relax.Call, data: tuple[int, ...], weights: tuple[int, ...]) -> _Compute | None:
    a = call.attrs
    groups = int(a.groups)
    if layouts_of(call) != _LAYOUTS or len(data) != 4:
        return None
    if groups > 1 and not groups == data[-1] == weights[-1]:
        return None
    strides, dilations, pads = (tuple(map(int, each)) for each in (a.strides, a.dilation, a.padding))
    known = Operator(True, strides, dilations, pads, **({"groups": groups} if groups > 1 else {}))  # type: ignore[arg-type]

    def convolved(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        made = topi.nn.conv(x, w, strides, pads, dilations, groups, *_LAYOUTS[:2]).op
        attributes = {**dict(made.attrs), SUMS: known.text}
        return te._ffi_api.ComputeOp(made.name, made.tag, attributes, made.axis, made.body).output(0)

    return convolved


def _product(call: relax.Call, data: tuple[int, ...], weights: tuple[int, ...]) -> _Compute | None:
    if len(data) < 2 or len(weights) != 2 or 0 in data:
        return None

    def multiplied(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, x.shape[-1]), name="k")

        def element(*at: Any) -> Any:
            place = (*at[:-1], k)
            return te.sum(x[place] * w[k, at[-1]], axis=k)

        return te.compute([*x.shape[:-1], w.shape[1]], element, name="matmul", attrs={SUMS: Operator().text})

    return multiplied


_MAKERS: dict[str, Callable[..., _Compute | None]] = {"relax.nn.conv2d": _convolution, "relax.matmul": _product}
