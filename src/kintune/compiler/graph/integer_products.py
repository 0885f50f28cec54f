"""Makes functions of the convolutions and products whose data were cast from bytes.

The function reads the bytes, and the result of the cast is not stored.  The function of a convolution also pads its
data, so that padding needs no kernel.  An annotation of the block that computes the sums describes the product
(`kintune.compiler.programs.byte_pattern`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.quantised_operands import Bindings, Numbers
from kintune.compiler.graph.rewriting import operator_of, rewriting_pass, static_shape
from kintune.compiler.programs.byte_pattern import ANNOTATION, ByteProduct

__all__ = ["LowerByteProducts"]

_WITH_EPILOGUE = 4  # TVM's operator pattern kOutEWiseFusable: element-wise operators are fused behind it
_SUMS = "int32"
_BYTES = "uint8"
_LEAST, _MOST = -128, 127
_MOVES = ("relax.permute_dims", "relax.reshape")


def LowerByteProducts() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that makes a function of each convolution and product with constant weights whose data is cast bytes."""
    return rewriting_pass("LowerByteProducts", _LowerByteProducts)


class _Data(NamedTuple):
    """Bytes, and their padding: the widths (in front, behind) of each axis, and the value."""

    bytes: relax.Expr
    widths: tuple[tuple[int, int], ...]
    value: int


@mutator
class _LowerByteProducts(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._bindings = Bindings()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        self._bindings.learn(block)
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        name = operator_of(binding.value)
        made = None
        if name == "relax.nn.conv2d":
            made = self._convolution(binding.value)
        elif name == "relax.matmul":
            made = self._matmul(binding.value)
        super().visit_var_binding_(binding if made is None else relax.VarBinding(binding.var, made))

    def _data(self, expression: relax.Expr) -> _Data | None:
        """The bytes that the expression casts, and their padding; transposes after the cast are done before it."""
        value = self._bindings.value(expression)
        if operator_of(value) in _MOVES:
            inner = self._data(value.args[0])
            return None if inner is None else self._moved(inner, value)
        if operator_of(value) != "relax.astype":
            return None
        if (str(value.args[0].ty.dtype), str(value.ty.dtype)) != (_BYTES, _SUMS):
            return None
        shape = static_shape(value.args[0])
        if shape is None:
            return None
        padded = self._bindings.value(value.args[0])
        plain = operator_of(padded) != "relax.nn.pad" or str(padded.attrs.pad_mode) != "constant"
        sides = [] if plain else [int(width) for width in padded.attrs.pad_width]
        if plain or min(sides) < 0 or static_shape(padded.args[0]) is None:
            return _Data(self.visit_expr(value.args[0]), ((0, 0),) * len(shape), 0)
        pairs = tuple(zip(sides[::2], sides[1::2], strict=True))
        return _Data(self.visit_expr(padded.args[0]), pairs, int(float(padded.attrs.pad_value)))

    def _moved(self, data: _Data, call: relax.Call) -> _Data | None:
        """The data after a transpose, or after a reshape that inserts, removes or moves axes of one element alone."""
        if operator_of(call) == "relax.permute_dims":
            if call.attrs.axes is None:
                return None
            axes = [int(axis) for axis in call.attrs.axes]
            moved = self.builder_.emit(relax.op.permute_dims(data.bytes, axes))
            return _Data(moved, tuple(data.widths[axis] for axis in axes), data.value)
        extents, before, after = static_shape(data.bytes), static_shape(call.args[0]), static_shape(call)
        if extents is None or before is None or after is None or 0 in extents:
            return None
        kept = [axis for axis, extent in enumerate(before) if extent != 1]
        places = [place for place, extent in enumerate(after) if extent != 1]
        if [before[axis] for axis in kept] != [after[place] for place in places]:
            return None
        source = dict(zip(places, kept, strict=True))
        shape = [extents[source[place]] if place in source else 1 for place in range(len(after))]
        widths = [data.widths[source[place]] if place in source else (0, 0) for place in range(len(after))]
        return _Data(self.builder_.emit(relax.op.reshape(data.bytes, shape)), tuple(widths), data.value)

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        a, groups = call.attrs, int(call.attrs.groups)
        weights = self._bindings.constant(call.args[1])
        data = self._data(call.args[0])
        layouts = (str(a.data_layout), str(a.kernel_layout), str(a.out_layout))
        if data is None or weights is None or str(call.ty.dtype) != _SUMS or layouts != ("NHWC", "HWIO", "NHWC"):
            return None
        if any(map(int, a.padding)) or data.widths[0] != (0, 0) or data.widths[3] != (0, 0):
            return None
        stored = _as_bytes(weights)
        if stored is None:
            return None
        (top, bottom), (left, right) = data.widths[1:3]
        pair = [tuple(int(each) for each in values) for values in (a.strides, a.dilation)]
        product = ByteProduct(True, pair[0], pair[1], (top, left, bottom, right), data.value)  # type: ignore[arg-type]

        def convolved(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            return _convolved(x, w, product, groups)

        name = "conv2d" if groups == 1 else "group_conv2d"
        return self._call(convolved, data.bytes, stored, name)

    def _matmul(self, call: relax.Call) -> relax.Expr | None:
        weights = self._bindings.constant(call.args[1])
        data = self._data(call.args[0])
        if data is None or weights is None or weights.ndim != 2 or any(map(any, data.widths)):
            return None
        stored = _as_bytes(weights)
        if stored is None or str(call.ty.dtype) != _SUMS:
            return None
        return self._call(_multiplied, data.bytes, stored, "matmul")

    def _call(self, compute: Any, data: relax.Expr, weights: Numbers, name: str) -> relax.Expr:
        constant = relax.const(np.ascontiguousarray(weights), weights.dtype.name)
        attributes = {"op_pattern": _WITH_EPILOGUE}
        return self.builder_.call_te(compute, data, constant, primfunc_name_hint=name, primfunc_attrs=attributes)


def _as_bytes(weights: Numbers) -> Numbers | None:
    """The weights as int8; None where a weight is out of its range."""
    if weights.size and (int(weights.min()) < _LEAST or int(weights.max()) > _MOST):
        return None
    return weights.astype(np.int8)


def _convolved(x: te.Tensor, w: te.Tensor, product: ByteProduct, groups: int) -> te.Tensor:
    n, height, width, _ = (int(extent) for extent in x.shape)
    rows, columns, depth, filters = (int(extent) for extent in w.shape)
    (down, right), (tall, wide) = product.strides, product.dilations
    top, left, bottom, behind = product.pads
    padded = _bordered(x, product) if any(product.pads) else x
    extent = (height + top + bottom, width + left + behind)
    high = (extent[0] - (rows - 1) * tall - 1) // down + 1
    across = (extent[1] - (columns - 1) * wide - 1) // right + 1
    i, j, c = (te.reduce_axis((_long(0), _long(size)), name) for size, name in zip(w.shape[:3], "ijc", strict=True))
    each = filters // groups

    def element(b: Any, y: Any, z: Any, f: Any) -> Any:
        channel = c if groups == 1 else f if depth == 1 and each == 1 else f // each * depth + c
        place = padded[b, y * down + i * tall, z * right + j * wide, channel]
        return te.sum(place.astype(_SUMS) * w[i, j, c, f].astype(_SUMS), axis=[i, j, c])

    name = "conv2d_bytes" if groups == 1 else "group_conv2d_bytes"
    shape = [_long(size) for size in (n, high, across, filters)]
    marked = {ANNOTATION: product.text} if groups == 1 else {}
    return te.compute(shape, element, name=name, attrs=marked)


def _bordered(x: te.Tensor, product: ByteProduct) -> te.Tensor:
    """The data padded with the zero point."""
    n, height, width, channels = (int(extent) for extent in x.shape)
    top, left, bottom, right = product.pads
    point = tirx.const(product.point, str(x.dtype))

    def element(b: Any, y: Any, z: Any, c: Any) -> Any:
        inside = [
            *([y >= top] if top else []),
            *([y < height + top] if bottom else []),
            *([z >= left] if left else []),
            *([z < width + left] if right else []),
        ]
        return tirx.if_then_else(tirx.all(*inside), x[b, y - top, z - left, c], point)

    shape = [_long(size) for size in (n, height + top + bottom, width + left + right, channels)]
    return te.compute(shape, element, name="pad_temp")


def _multiplied(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((_long(0), w.shape[0]), "k")

    def element(*at: Any) -> Any:
        place = (*at[:-1], k)
        return te.sum(x[place].astype("int32") * w[k, at[-1]].astype("int32"), axis=k)

    shape: Sequence[Any] = [*x.shape[:-1], w.shape[1]]
    return te.compute(shape, element, name="matmul_bytes", attrs={ANNOTATION: ByteProduct().text})


def _long(extent: Any) -> tirx.IntImm:
    return tirx.IntImm("int64", int(extent))
