"""Gives convolutions with narrow groups an axis of groups.

In TVM's own form, the number of a filter determines the group whose channels it reads: `f // width`.  A vector of
filters of several groups then gathers its channels one by one.  With a separate axis of groups, the filters of one
group are the innermost axis, and all filters of a vector read the same channel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import relax, te, tirx

from kintune.compiler.graph.rewriting import Rewriter, emit_as, layouts_of, operator_of, pass_of, static_shape
from kintune.compiler.kernels.contraction import SUMS, Operator
from kintune.compiler.kernels.loops import index
from kintune.compiler.tir import PATTERN, Fusion

__all__ = ["GROUPED", "SplitGroups", "grouped_convolution"]

GROUPED = "group_conv2d"
"""The prefix of the names of kernels that compute such a convolution."""

_LAYOUTS = ("NHWC", "HWIO", "NHWC")
_TILE = 64
"""Groups whose number of filters is a multiple of this fill whole tiles of vectors, and need no axis of groups."""


class _SplitGroups(Rewriter):
    """A pass that gives grouped convolutions of float32 (NHWC, HWIO) an axis of groups; depthwise ones have none."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        call = binding.value
        groups = _groups(call) if operator_of(call) == "relax.nn.conv2d" else 0
        if groups:
            made = emit_as(self.builder_, binding.var, self._convolution(call, groups))
            binding = relax.VarBinding(binding.var, relax.op.reshape(made, static_shape(call)))
        super().visit_var_binding_(binding)

    def _convolution(self, call: relax.Call, groups: int) -> relax.Expr:
        data, weight = map(self.visit_expr, call.args)
        operands = [
            self.builder_.emit(relax.op.reshape(each, (*shape[:-1], groups, shape[-1] // groups)))
            for each in (data, weight)
            if (shape := static_shape(each)) is not None
        ]
        a = call.attrs
        strides, padding, dilation = (list(map(int, values)) for values in (a.strides, a.padding, a.dilation))

        def convolved(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            return grouped_convolution(x, w, strides, padding, dilation)

        attributes = {PATTERN: Fusion.WITH_EPILOGUE}
        return self.builder_.call_te(convolved, *operands, primfunc_name_hint=GROUPED, primfunc_attrs=attributes)


SplitGroups = partial(pass_of, _SplitGroups)


def _groups(call: relax.Call) -> int:
    """The number of groups of a convolution that should get an axis of groups; 0 for others."""
    groups = int(call.attrs.groups)
    shapes = [static_shape(each) for each in (*call.args, call)]
    if groups < 2 or layouts_of(call) != _LAYOUTS or any(shape is None or 0 in shape for shape in shapes):
        return 0
    if {str(each.ty.dtype) for each in (*call.args, call)} != {"float32"}:
        return 0
    *_, depth, filters = shapes[1] or ()
    width = filters // groups
    return 0 if width % _TILE == 0 or depth == width == 1 else groups


def grouped_convolution(
    x: te.Tensor, w: te.Tensor, strides: list[int], padding: list[int], dilation: list[int]
) -> te.Tensor:
    """The convolution of [n, y, x, groups, channels] with weights [rows, columns, channels, groups, filters].

    The result is [n, y, x, groups, filters].  `padding` is (vertical, horizontal) or (top, left, bottom, right).
    """
    n, height, width, groups, _ = (int(extent) for extent in x.shape)
    rows, columns, depth, _, filters = (int(extent) for extent in w.shape)
    top, left, bottom, right = padding if len(padding) > 2 else padding * 2
    (down, across), (tall, wide) = strides, dilation
    padded = _bordered(x, (top, left, bottom, right)) if any(padding) else x
    high = (height + top + bottom - (rows - 1) * tall - 1) // down + 1
    long = (width + left + right - (columns - 1) * wide - 1) // across + 1
    i, j, c = (te.reduce_axis((index(0), index(e)), s) for e, s in zip((rows, columns, depth), "ijc", strict=True))

    def element(b: Any, y: Any, z: Any, g: Any, f: Any) -> Any:
        return te.sum(padded[b, y * down + i * tall, z * across + j * wide, g, c] * w[i, j, c, g, f], axis=[i, j, c])

    known = Operator(True, (down, across), (tall, wide), (top, left, bottom, right), groups=groups)
    shape = list(map(index, (n, high, long, groups, filters)))
    return te.compute(shape, element, name=GROUPED, attrs={SUMS: known.text})


def _bordered(x: te.Tensor, widths: tuple[int, int, int, int]) -> te.Tensor:
    """The data with zeros around its rows and columns."""
    top, left, bottom, right = widths
    n, height, width, groups, channels = (int(extent) for extent in x.shape)

    def element(b: Any, y: Any, z: Any, g: Any, c: Any) -> Any:
        inside = tirx.all(y >= top, y < height + top, z >= left, z < width + left)
        return tirx.if_then_else(inside, x[b, y - top, z - left, g, c], tirx.const(0.0, "float32"))

    shape = (n, height + top + bottom, width + left + right, groups, channels)
    return te.compute(list(map(index, shape)), element, name="pad_temp")
