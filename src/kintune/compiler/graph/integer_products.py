"""Makes functions of the convolutions and products whose data were cast from bytes.

The function reads the bytes, and the result of the cast is not stored.  The function of a convolution also pads its
data, so that padding needs no kernel.  An annotation of the block that computes the sums describes the product
(`kintune.compiler.kernels.contraction`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, te, tirx

from kintune.compiler.graph.integer_weights import inside_of
from kintune.compiler.graph.quantised_operands import Numbers, QuantisedRewriter
from kintune.compiler.graph.rewriting import layouts_of, operator_of, pass_of, static_shape
from kintune.compiler.kernels.contraction import BYTE_SUMS, Operator
from kintune.compiler.kernels.loops import index
from kintune.compiler.tir import PATTERN, Fusion

__all__ = ["LowerByteProducts"]

_SUMS = "int32"
_BYTES, _SIGNED = "uint8", "int8"
_LEAST, _MOST = -128, 127
_WRITTEN_OUT = 32  # weights of a window whose sum is one expression
_MOVES = ("relax.permute_dims", "relax.reshape")


class _Data(NamedTuple):
    """Bytes, and their padding: the widths (in front, behind) of each axis, and the value, or a tensor [1] of uint8."""

    bytes: relax.Expr
    widths: tuple[tuple[int, int], ...]
    value: int | relax.Expr


class _LowerByteProducts(QuantisedRewriter):
    """A pass that makes a function of each convolution and product with constant weights whose data is cast bytes."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._found: dict[relax.Expr, _Data | None] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        name = operator_of(binding.value)
        lower = {"relax.nn.conv2d": self._convolution, "relax.matmul": self._matmul}.get(name)
        made = None if lower is None else lower(binding.value)
        super().visit_var_binding_(binding if made is None else relax.VarBinding(binding.var, made))

    def _data(self, expression: relax.Expr) -> _Data | None:
        """The bytes that the expression casts, and their padding; transposes after the cast are done before it."""
        if expression not in self._found:
            self._found[expression] = self._read(self._bindings.value(expression))
        return self._found[expression]

    def _read(self, value: relax.Expr) -> _Data | None:
        if operator_of(value) in _MOVES:
            inner = self._data(value.args[0])
            return None if inner is None else self._moved(inner, value)
        if operator_of(value) != "relax.astype":
            return None
        if str(value.args[0].ty.dtype) not in (_BYTES, _SIGNED) or str(value.ty.dtype) != _SUMS:
            return None
        shape = static_shape(value.args[0])
        if shape is None:
            return None
        padded, around = self._bindings.value(value.args[0]), None
        if operator_of(padded) == "relax.where":
            inside, around = self._bindings.numbers(padded.args[0]), padded.args[2]
            padded = self._bindings.value(padded.args[1])
        plain = operator_of(padded) != "relax.nn.pad" or str(padded.attrs.pad_mode) != "constant"
        sides = [] if plain else [int(width) for width in padded.attrs.pad_width]
        within = None if plain or min(sides) < 0 else static_shape(padded.args[0])
        if within is None:
            return _Data(self.visit_expr(value.args[0]), ((0, 0),) * len(shape), 0)
        pairs = tuple(zip(sides[::2], sides[1::2], strict=True))
        if around is None:
            return _Data(self.visit_expr(padded.args[0]), pairs, int(float(padded.attrs.pad_value)))
        if (
            static_shape(around) not in ((), (1,) * len(shape))
            or inside is None
            or not np.array_equal(inside, inside_of(pairs, within))
        ):
            return _Data(self.visit_expr(value.args[0]), ((0, 0),) * len(shape), 0)
        point = self.builder_.emit(relax.op.reshape(self.visit_expr(around), [1]))
        return _Data(self.visit_expr(padded.args[0]), pairs, point)

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
        a = call.attrs
        weights = self._bindings.numbers(call.args[1])
        data = self._data(call.args[0])
        if data is None or weights is None or str(call.ty.dtype) != _SUMS:
            return None
        if layouts_of(call) != ("NHWC", "HWIO", "NHWC"):
            return None
        if int(a.groups) > 1 or not _is_unsigned(data):
            return None
        if any(map(int, a.padding)) or data.widths[0] != (0, 0) or data.widths[3] != (0, 0):
            return None
        stored = _as_bytes(weights)
        if stored is None:
            return None
        (top, bottom), (left, right) = data.widths[1:3]
        pair = [tuple(int(each) for each in values) for values in (a.strides, a.dilation)]
        point = data.value if isinstance(data.value, int) else None
        product = Operator(True, pair[0], pair[1], (top, left, bottom, right), point)  # type: ignore[arg-type]
        around = [] if isinstance(data.value, int) else [data.value]
        if _sums_alone(stored):
            return self._window_sums(data.bytes, around, stored.shape[:2], product)

        def convolved(x: te.Tensor, *others: te.Tensor) -> te.Tensor:
            return _convolved(x, others[-1], product, others[:-1])

        return self._call(convolved, [data.bytes, *around], stored, "conv2d")

    def _window_sums(
        self, data: relax.Expr, around: list[relax.Expr], taps: tuple[int, ...], product: Operator
    ) -> relax.Expr:
        """The sums of the bytes in each window of a convolution: of their channels first, then of places."""
        depth = (static_shape(data) or ())[-1]
        channels = self.builder_.emit(self._sum_of_rows(data, np.ones((depth, 1), np.int8)))
        if math.prod(taps) == math.prod(product.strides) == 1 and not any(product.pads):
            return channels

        def summed(x: te.Tensor, *others: te.Tensor) -> te.Tensor:
            point = others[0][0].astype(_SUMS) if others else tirx.const(product.point, _SUMS)
            return _summed(x, taps, product, point * tirx.const(depth, _SUMS))

        attributes = {PATTERN: Fusion.OPAQUE}  # fused with what has a value for each filter, it would be computed again
        name = "window_sums"
        return self.builder_.call_te(summed, channels, *around, primfunc_name_hint=name, primfunc_attrs=attributes)

    def _matmul(self, call: relax.Call) -> relax.Expr | None:
        weights = self._bindings.numbers(call.args[1])
        data = self._data(call.args[0])
        if data is None or any(map(any, data.widths)) or str(call.ty.dtype) != _SUMS or not _is_unsigned(data):
            return None
        if weights is None:
            return self._matmul_of_computed(data, self._data(call.args[1]))
        stored = _as_bytes(weights) if weights.ndim == 2 else None
        if stored is None:
            return None
        if _sums_alone(stored):
            return self._sum_of_rows(data.bytes, stored)
        return self._call(_multiplied, [data.bytes], stored, "matmul")

    def _sum_of_rows(self, data: relax.Expr, ones: Numbers) -> relax.Expr:
        """The sums of rows of bytes, as a product: a kernel of its own, since it is a term of another product."""
        return self._call(_multiplied, [data], ones, "sum", Fusion.OPAQUE)

    def _matmul_of_computed(self, data: _Data, weights: _Data | None) -> relax.Expr | None:
        """The product with computed matrices of signed bytes: one, or one for each of the data's."""
        if weights is None or any(map(any, weights.widths)) or _is_unsigned(weights):
            return None
        shapes = [static_shape(each.bytes) or () for each in (data, weights)]
        if len(shapes[1]) != 2 and shapes[0][:-2] != shapes[1][:-2]:
            return None
        attributes = {PATTERN: Fusion.WITH_EPILOGUE}
        operands, name = [data.bytes, weights.bytes], "matmul"
        return self.builder_.call_te(_multiplied, *operands, primfunc_name_hint=name, primfunc_attrs=attributes)

    def _call(
        self,
        compute: Any,
        operands: Sequence[relax.Expr],
        weights: Numbers,
        name: str,
        fused: int = Fusion.WITH_EPILOGUE,
    ) -> relax.Expr:
        constant = relax.const(np.ascontiguousarray(weights), weights.dtype.name)
        attributes = {PATTERN: fused}
        return self.builder_.call_te(compute, *operands, constant, primfunc_name_hint=name, primfunc_attrs=attributes)


LowerByteProducts = partial(pass_of, _LowerByteProducts)


def _sums_alone(weights: Numbers) -> bool:
    """Whether the only filter, or column, of the weights is of ones."""
    return weights.shape[-1] == 1 and bool((weights == 1).all())


def _is_unsigned(data: _Data) -> bool:
    return str(data.bytes.ty.dtype) == _BYTES


def _as_bytes(weights: Numbers) -> Numbers | None:
    """The weights as int8; None where a weight is out of its range."""
    if weights.size and (int(weights.min()) < _LEAST or int(weights.max()) > _MOST):
        return None
    return weights.astype(np.int8)


def _extents(x: te.Tensor, taps: Sequence[int], product: Operator) -> tuple[int, int]:
    """The rows and columns of the result of a convolution."""
    top, left, bottom, right = product.pads
    padded = int(x.shape[1]) + top + bottom, int(x.shape[2]) + left + right
    found = [
        (extent - (tap - 1) * apart - 1) // stride + 1
        for extent, tap, apart, stride in zip(padded, taps, product.dilations, product.strides, strict=True)
    ]
    return found[0], found[1]


def _convolved(x: te.Tensor, w: te.Tensor, product: Operator, around: Sequence[te.Tensor]) -> te.Tensor:
    rows, columns, _, filters = (int(extent) for extent in w.shape)
    (down, right), (tall, wide) = product.strides, product.dilations
    point = around[0][0] if around else tirx.const(product.point, str(x.dtype))
    padded = _bordered(x, product, point) if any(product.pads) else x
    i, j, c = (te.reduce_axis((index(0), index(size)), name) for size, name in zip(w.shape[:3], "ijc", strict=True))

    def element(b: Any, y: Any, z: Any, f: Any) -> Any:
        place = padded[b, y * down + i * tall, z * right + j * wide, c]
        return te.sum(place.astype(_SUMS) * w[i, j, c, f].astype(_SUMS), axis=[i, j, c])

    shape = [index(size) for size in (x.shape[0], *_extents(x, (rows, columns), product), filters)]
    return te.compute(shape, element, name="conv2d_bytes", attrs={BYTE_SUMS: product.text})


def _summed(x: te.Tensor, taps: Sequence[int], product: Operator, point: Any) -> te.Tensor:
    """The sums of the windows of a tensor of one channel, around which `point` stands."""
    (down, right), (tall, wide) = product.strides, product.dilations

    def term(at: Sequence[Any], i: Any, j: Any) -> Any:
        return _place(x, product, point, (at[0], at[1] * down + i * tall, at[2] * right + j * wide, at[3]))

    def element(*at: Any) -> Any:
        if math.prod(taps) <= _WRITTEN_OUT:
            return reduce(operator.add, [term(at, i, j) for i, j in np.ndindex(*taps)])
        axes = [te.reduce_axis((index(0), index(size)), name) for size, name in zip(taps, "ij", strict=True)]
        return te.sum(term(at, *axes), axis=axes)

    shape = [index(size) for size in (x.shape[0], *_extents(x, taps, product), 1)]
    return te.compute(shape, element, name="window_sums")


def _bordered(x: te.Tensor, product: Operator, point: Any) -> te.Tensor:
    """The data padded with the zero point."""
    n, height, width, channels = (int(extent) for extent in x.shape)
    top, left, bottom, right = product.pads
    shape = [index(size) for size in (n, height + top + bottom, width + left + right, channels)]
    return te.compute(shape, lambda *at: _place(x, product, point, at), name="pad_temp")


def _place(x: te.Tensor, product: Operator, point: Any, at: Sequence[Any]) -> Any:
    """The element of the padded data at these indices."""
    _, height, width, _ = (int(extent) for extent in x.shape)
    (top, left, bottom, right), (b, y, z, c) = product.pads, at
    inside = [
        *([y >= top] if top else []),
        *([y < height + top] if bottom else []),
        *([z >= left] if left else []),
        *([z < width + left] if right else []),
    ]
    value = x[b, y - top, z - left, c]
    return tirx.if_then_else(tirx.all(*inside), value, point) if inside else value


def _multiplied(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    batched = len(w.shape) > 2
    k = te.reduce_axis((index(0), w.shape[-2]), "k")

    def element(*at: Any) -> Any:
        before = at[:-2] if batched else ()
        left, right = (*at[:-1], k), (*before, k, at[-1])
        return te.sum(x[left].astype("int32") * w[right].astype("int32"), axis=k)

    shape: Sequence[Any] = [*x.shape[:-1], w.shape[-1]]
    return te.compute(shape, element, name="matmul_bytes", attrs={BYTE_SUMS: Operator(batched=batched).text})
