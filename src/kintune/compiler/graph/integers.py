"""Rewrites products and convolutions of quantised tensors to sums of integers.

A product or convolution of a dequantised tensor with dequantised weights becomes one of int32, whose operand is cast
from bytes, followed by one scale for each channel.  The tensor's zero point adds to each sum a term that depends on the
weights alone; it is subtracted.  Convolutions are padded with the zero point, which stands for zero.  So only integers
are multiplied, and the sums are exact.

Weights that are no signed bytes once their zero point is taken off are moved into that range.  What they were moved by
adds to each sum a multiple of the sum of the data under it, which is subtracted, too (`_Sums`).

Depthwise and other grouped convolutions are computed in float32, exactly (`integer_weights`), of the integers minus
their zero point, padded with zeros, so that the programs for float32 convolutions apply.  So is every product of
integers on CPUs without products of bytes.

If the result is quantised again, its scale is multiplied by the inverse of the next scale: sums are multiplied once,
rounded half to even, as in other runtimes, and clipped to the type.

`integer_products` makes functions of these convolutions and products, which read the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from kintune.compiler.graph.integer_weights import (
    EXACT,
    LARGEST_BYTE,
    SignedWeights,
    exact_digits,
    inside_of,
    shaped,
    signed_weights,
)
from kintune.compiler.graph.layout_rules import BROADCAST, UNARY
from kintune.compiler.graph.quantised_moves import KeepQuantised, UseUnsignedBytes
from kintune.compiler.graph.quantised_operands import Numbers, QuantisedRewriter, QuantisedTensor, QuantisedWeights
from kintune.compiler.graph.rewriting import convolution_like, layouts_of, operator_of, pass_of, static_shape
from kintune.compiler.kernels.instructions import BYTES, best

__all__ = ["UseIntegers", "multiplies_bytes"]

_CONVOLUTIONS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}
_IMAGES = ("relax.nn.conv1d", "relax.nn.conv2d")  # of bytes
_LARGEST_SUM = 1 << 31
_DIGIT = 16  # digits of computed weights lie between its halves
_SHIFT = 128
_ELEMENTWISE = frozenset(f"relax.{name}" for name in (*UNARY, *BROADCAST))


def multiplies_bytes(target: tvm.target.Target) -> bool:
    """Whether the target is a CPU with an instruction that adds products of bytes, which Kintune's programs use."""
    return best(BYTES, target) is not None


def UseIntegers(*, bytes_: bool) -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that computes products and convolutions of quantised tensors in integers.

    Without products of bytes (`bytes_`), products of integers are computed in float32, exactly, and others stay as they
    are.
    """
    before = [UseUnsignedBytes(), KeepQuantised()] if bytes_ else []
    return tvm.transform.Sequential([*before, pass_of(_UseIntegers, bytes_=bytes_)], name="UseIntegers")


class _Sums(NamedTuple):
    """Exact sums of products, of int32 or float32, and the terms that are subtracted from them.

    Of data `a` with zero point `p`, and weights `b` that were moved by `q`, the sum of `(a - p) * (b + q)` is that of
    `a * b`, less `p` times that of the weights `b + q`, plus `q` times that of the data.

    `axis` is that of the channels, and `rank` the rank of the sums.
    """

    sums: relax.Expr
    terms: list[relax.Expr]
    axis: int
    rank: int


class _UseIntegers(QuantisedRewriter):
    def __init__(self, module: tvm.IRModule, *, bytes_: bool) -> None:
        super().__init__(module)
        self._bytes = bytes_
        self._summed: set[relax.Var] = set()  # variables computed from integer sums by element-wise operators
        self._divided: dict[relax.Var, float] = {}  # variable whose values are divided by a scale already -> that scale

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value, name = binding.value, operator_of(binding.value)
        if name in _CONVOLUTIONS or name == "relax.matmul":
            made = self._product(binding.var, value)
            value = value if made is None else made
        elif name == "relax.quantize":
            if value.args[0] in self._summed:
                self._summed.add(binding.var)
            value = self._quantised(value)
        elif name == "relax.dequantize" and value.args[0] in self._summed:
            self._summed.add(binding.var)
        elif name in _ELEMENTWISE and any(argument in self._summed for argument in value.args):
            self._summed.add(binding.var)
            if any(argument in self._divided for argument in value.args):
                value = self._on_divided(binding.var, value)
        super().visit_var_binding_(relax.VarBinding(binding.var, value))

    def _emit(self, expression: relax.Expr) -> relax.Expr:
        return self.builder_.emit(expression)

    # From a product of quantised operands to sums

    def _product(self, variable: relax.Var, call: relax.Call) -> relax.Expr | None:
        tensor, weights = self._bindings.tensor(call.args[0]), self._bindings.weights(call.args[1])
        if tensor is not None and weights is None and str(call.ty.dtype) == "int32":
            return self._product_of_computed(call, tensor, self._bindings.tensor(call.args[1]))
        if tensor is None or weights is None or (tensor.scale is None) != (weights.scale is None):
            return None
        if str(call.ty.dtype) != ("int32" if tensor.scale is None else "float32"):
            return None
        if tensor.scale is not None and not self._bytes:
            return None
        is_product = operator_of(call) == "relax.matmul"
        sums = self._matmul(call, tensor, weights) if is_product else self._convolution(call, tensor, weights)
        if sums is None:
            return None
        self._summed.add(variable)
        result = sums.sums
        for term in sums.terms:
            result = self._emit(relax.op.subtract(result, term))
        if tensor.scale is None or weights.scale is None:
            return result if str(result.ty.dtype) == "int32" else relax.op.astype(result, "int32")
        if str(result.ty.dtype) != "float32":
            result = self._emit(relax.op.astype(result, "float32"))
        step = self._next_step(variable, variable)
        if step is not None:
            self._divided[variable] = step
        fixed = tensor.scale if isinstance(tensor.scale, float) else 1.0
        factor = weights.scale.astype(np.float64) * fixed / (step or 1.0)
        factor = factor.reshape(()) if factor.size == 1 else shaped(factor, sums.axis, sums.rank)
        scale = relax.const(factor.astype(np.float32), "float32")
        if not isinstance(tensor.scale, float):
            scale = self._emit(relax.op.multiply(scale, self.visit_expr(tensor.scale)))
        return relax.op.multiply(result, scale)

    def _matmul(self, call: relax.Call, tensor: QuantisedTensor, weights: QuantisedWeights) -> _Sums | None:
        integers, rank = weights.integers, int(call.ty.ndim)
        if not _differs_along(tensor.point, -2):
            return None
        is_plain = integers.ndim == 2 and int(call.args[0].ty.ndim) >= 2
        if not self._bytes or (tensor.scale is None and not is_plain):
            return self._in_float32(call, tensor, weights, rank - 1)
        if not is_plain or not _is_of_channels(weights, 1):
            return None
        stored = signed_weights(integers, 1)
        if stored is None or not _holds(stored, (0,), weights):
            return None
        bytes_, point = self._as("uint8", tensor)
        wide = self._emit(relax.op.astype(bytes_, "int32"))
        constant = relax.const(stored.integers.astype(np.int32), "int32")
        sums = self._emit(relax.op.matmul(wide, constant, out_dtype="int32"))

        def under() -> relax.Expr:
            return self._emit(relax.op.matmul(wide, _ones(len(integers)), out_dtype="int32"))

        return _Sums(sums, self._terms(point, weights, stored, under, rank - 1, rank), rank - 1, rank)

    def _product_of_computed(
        self, call: relax.Call, left: QuantisedTensor, right: QuantisedTensor | None
    ) -> relax.Expr | None:
        """The product of two computed tensors of integers: a zero point of the second one is a scalar or of columns."""
        shapes = [static_shape(each) or () for each in call.args]
        if right is None or operator_of(call) != "relax.matmul" or min(map(len, shapes)) < 2:
            return None
        if not _differs_along(left.point, -2) or not _differs_along(right.point, -1):
            return None
        depth, batches = shapes[0][-1], [shape[:-2] for shape in shapes]
        is_one = math.prod(batches[1]) == 1
        if not self._bytes or not (batches[0] == batches[1] or is_one):
            return self._computed_in_float32(left, right, depth)
        if 4 * LARGEST_BYTE**2 * depth >= _LARGEST_SUM:
            return None
        (data, zero), (weights, offset) = self._as("uint8", left), self._as("int8", right)
        if is_one and batches[1]:
            weights = self._emit(relax.op.reshape(weights, shapes[1][-2:]))
        wide, signed = (self._emit(relax.op.astype(each, "int32")) for each in (data, weights))
        result = self._emit(relax.op.matmul(wide, signed, out_dtype="int32"))
        point, moved = _number(zero), _number(offset)
        if point is not None:
            totals = self._emit(relax.op.sum(signed, -2, keepdims=True))
            if moved is not None:
                taken = self._emit(relax.op.multiply(moved, relax.const(depth, "int32")))
                totals = self._emit(relax.op.subtract(totals, taken))
            result = self._emit(relax.op.subtract(result, self._emit(relax.op.multiply(totals, point))))
        if moved is not None:
            under = self._emit(relax.op.matmul(wide, _ones(depth), out_dtype="int32"))
            result = self._emit(relax.op.subtract(result, self._emit(relax.op.multiply(under, moved))))
        return result

    def _convolution(self, call: relax.Call, tensor: QuantisedTensor, weights: QuantisedWeights) -> _Sums | None:
        a, integers = call.attrs, weights.integers
        layouts = _CONVOLUTIONS[operator_of(call)]
        if layouts_of(call) != (*layouts, layouts[0]):
            return None
        if not _is_of_channels(weights, 0) or not (isinstance(tensor.point, int) or _is_scalar(tensor.point)):
            return None
        if int(a.groups) > 1 or not self._bytes or operator_of(call) not in _IMAGES:
            return self._in_float32(call, tensor, weights, 1)
        stored, summed = signed_weights(integers, 0), tuple(range(1, integers.ndim))
        if stored is None or not _holds(stored, summed, weights):
            return None
        padding, rank = [int(width) for width in a.padding], integers.ndim
        bytes_, point = self._as("uint8", tensor)
        if any(padding):
            bytes_ = self._padded(bytes_, padding, self._as_byte(tensor, point))
        wide = self._emit(relax.op.astype(bytes_, "int32"))
        none = [0] * len(padding)
        sums = self._emit(_convolved(call, wide, stored.integers, none, "int32"))

        def under() -> relax.Expr:
            return self._emit(_convolved(call, wide, np.ones((1, *integers.shape[1:])), none, "int32"))

        return _Sums(sums, self._terms(point, weights, stored, under, 1, rank), 1, rank)

    def _padded(self, bytes_: relax.Expr, padding: list[int], point: Any) -> relax.Expr:
        """The bytes with their zero point around them; `padding` is that of the convolution.

        A zero point that is computed, of uint8, is selected where a constant tensor says so: `integer_products` looks
        for that.
        """
        half = len(padding) // 2
        pairs = [(0, 0), (0, 0), *zip(padding[:half], padding[half:], strict=True)]
        widths = [width for pair in pairs for width in pair]
        if isinstance(point, int):
            return self._emit(relax.op.nn.pad(bytes_, widths, "constant", float(point)))
        inside = inside_of(pairs, static_shape(bytes_) or ())
        padded = self._emit(relax.op.nn.pad(bytes_, widths, "constant", 0.0))
        return self._emit(relax.op.where(relax.const(inside, "bool"), padded, point))

    def _as_byte(self, tensor: QuantisedTensor, point: Any) -> Any:
        """The zero point of a tensor as uint8, where it is computed; `point` is that of the unsigned bytes."""
        if isinstance(tensor.point, int):
            return point
        given = self._bindings.value(tensor.point)
        given = given.args[0] if operator_of(given) == "relax.astype" else tensor.point
        if tensor.dtype == str(given.ty.dtype) == "uint8":
            return self.visit_expr(given)
        return self._emit(relax.op.astype(point, "uint8"))

    def _in_float32(
        self, call: relax.Call, tensor: QuantisedTensor, weights: QuantisedWeights, axis: int
    ) -> _Sums | None:
        """The exact sums in float32, or of several such sums, of data from which its zero point is subtracted first."""
        is_product = operator_of(call) == "relax.matmul"
        rank = weights.integers.ndim
        summed = (max(rank - 2, 0),) if is_product else tuple(range(1, rank))
        digits = None if weights.point is not None else exact_digits(weights.integers, summed)
        if digits is None:
            return None
        wide = self._emit(relax.op.astype(self.visit_expr(tensor.integers), "float32"))
        if not isinstance(tensor.point, int):
            wide = self._emit(relax.op.subtract(wide, relax.op.astype(self.visit_expr(tensor.point), "float32")))
        elif tensor.point:
            wide = self._emit(relax.op.subtract(wide, relax.const(float(tensor.point), "float32")))

        def sums(digit: Numbers) -> relax.Expr:
            if is_product:
                return relax.op.matmul(wide, relax.const(digit.astype(np.float32)), out_dtype="float32")
            return _convolved(call, wide, digit, call.attrs.padding, "float32")

        if len(digits) == 1:
            return _Sums(self._emit(sums(digits[0][1])), [], axis, int(call.ty.ndim))
        return _Sums(self._total(digits, sums), [], axis, int(call.ty.ndim))

    def _as(self, kind: str, tensor: QuantisedTensor) -> tuple[relax.Expr, Any]:
        """The integers as uint8 or int8, and their zero point: a number, or an expression of int32."""
        integers = self.visit_expr(tensor.integers)
        point = tensor.point if isinstance(tensor.point, int) else self._wide(tensor.point)
        if tensor.dtype == kind:
            return integers, point
        move, shift = (relax.op.add, _SHIFT) if kind == "uint8" else (relax.op.subtract, -_SHIFT)
        wide = self._emit(relax.op.astype(integers, "int16"))
        moved = self._emit(relax.op.astype(self._emit(move(wide, relax.const(_SHIFT, "int16"))), kind))
        if isinstance(point, int):
            return moved, point + shift
        return moved, self._emit(move(point, relax.const(_SHIFT, "int32")))

    def _centred(self, tensor: QuantisedTensor) -> relax.Expr:
        """The integers less their zero point, as int32."""
        wide = self._emit(relax.op.astype(self.visit_expr(tensor.integers), "int32"))
        point = _number(tensor.point if isinstance(tensor.point, int) else self._wide(tensor.point))
        return wide if point is None else self._emit(relax.op.subtract(wide, point))

    def _computed_in_float32(self, left: QuantisedTensor, right: QuantisedTensor, depth: int) -> relax.Expr | None:
        """The exact product of two computed matrices in float32: of the second one, or of its two digits."""
        largest = LARGEST_BYTE if LARGEST_BYTE**2 * depth < EXACT else _DIGIT
        if LARGEST_BYTE * largest * depth >= EXACT:
            return None
        data, weights = (self._centred(each) for each in (left, right))
        parts = [(1, weights)]
        if largest == _DIGIT:
            half, ones = relax.const(_DIGIT // 2, "int32"), relax.const(_DIGIT - 1, "int32")
            moved = self._emit(relax.op.add(weights, half))
            low = self._emit(relax.op.subtract(self._emit(relax.op.bitwise_and(moved, ones)), half))
            high = self._emit(relax.op.subtract(weights, low))
            parts = [(1, low), (_DIGIT, self._emit(relax.op.floor_divide(high, relax.const(_DIGIT, "int32"))))]
        real = self._emit(relax.op.astype(data, "float32"))
        return self._total(parts, lambda part: relax.op.matmul(real, self._emit(relax.op.astype(part, "float32"))))

    def _total(self, parts: Sequence[tuple[int, Any]], product: Callable[[Any], relax.Expr]) -> relax.Expr:
        """The sum, of int32, of the products with parts, each times its factor."""
        found = None
        for factor, part in parts:
            each = self._emit(relax.op.astype(self._emit(product(part)), "int32"))
            if factor > 1:
                each = self._emit(relax.op.multiply(each, relax.const(factor, "int32")))
            found = each if found is None else self._emit(relax.op.add(found, each))
        return found

    def _wide(self, point: relax.Expr) -> relax.Expr:
        """A zero point that is computed, as int32."""
        point = self.visit_expr(point)
        return point if str(point.ty.dtype) == "int32" else self._emit(relax.op.astype(point, "int32"))

    def _terms(
        self,
        point: Any,
        weights: QuantisedWeights,
        stored: SignedWeights,
        under: Callable[[], relax.Expr],
        axis: int,
        rank: int,
    ) -> list[relax.Expr]:
        """What is subtracted from the sums of the bytes; `under` emits the sum of the bytes under each of them."""
        integers = stored.integers.astype(np.int64)
        totals = integers.sum(tuple(place for place in range(integers.ndim) if place != stored.axis))
        count = integers.size // max(totals.size, 1)
        offset: relax.Expr | None = None  # the zero point of the weights as they are stored
        if weights.point is not None:
            given = self._wide(weights.point)
            if not _is_scalar(given):
                given = self._emit(relax.op.reshape(given, [-1 if place == axis else 1 for place in range(rank)]))
            offset = given
            if stored.moved.any():
                offset = self._emit(relax.op.subtract(given, _whole(stored.moved, axis, rank)))
            taken = self._emit(relax.op.multiply(offset, _whole(np.int64(count), axis, rank)))
            of_weights = self._emit(relax.op.subtract(_whole(totals, axis, rank), taken))
        else:
            totals = totals + count * stored.moved.astype(np.int64)
            of_weights = _whole(totals, axis, rank)
            if stored.moved.any():
                offset = _whole(-stored.moved, axis, rank)
        found = []
        if isinstance(point, int) and weights.point is None:
            found += [_whole(totals * point, axis, rank)] if point and totals.any() else []
        elif not isinstance(point, int) or point:
            factor = _whole(np.int64(point), axis, rank) if isinstance(point, int) else point
            found.append(self._emit(relax.op.multiply(factor, of_weights)))
        if offset is not None:
            found.append(self._emit(relax.op.multiply(under(), offset)))
        return found

    # What follows the sums

    def _next_step(self, variable: relax.Var, source: relax.Var) -> float | None:
        """The scale with which the values of the variable are quantised next; None if something else is done first.

        Only the addition of constants and ReLU may come before.
        """
        readers = self._bindings.readers(variable)
        if len(readers) != 1 or readers[0] is None or not isinstance(variable, relax.DataflowVar):
            return None
        value = self._bindings.value(readers[0])
        match operator_of(value):
            case "relax.quantize":
                step = self._bindings.number(value.args[1])
                same = value.args[0].same_as(variable) and str(value.args[0].ty.dtype) == "float32"
                return step if same and step is not None and step > 0 else None
            case "relax.nn.relu":
                return self._next_step(readers[0], source)
            case "relax.add" if any(self._bindings.real(argument) is not None for argument in value.args):
                return self._next_step(readers[0], source)
        return None

    def _on_divided(self, variable: relax.Var, call: relax.Call) -> relax.Call:
        """The operator on values that are divided by a scale already: its constants are divided by it, too."""
        step = next(self._divided[argument] for argument in call.args if argument in self._divided)
        self._divided[variable] = step
        arguments = []
        for argument in call.args:
            real = None if argument in self._divided else self._bindings.real(argument)
            if real is not None:
                argument = relax.const((real.astype(np.float64) / step).astype(np.float32), "float32")
            arguments.append(argument)
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    def _quantised(self, call: relax.Call) -> relax.Call:
        """The quantisation of values computed from sums, by a multiplication: division is several times slower."""
        data, scale, point = call.args
        step = self._bindings.number(scale)
        if data not in self._summed or step is None or not step > 0 or str(data.ty.dtype) != "float32":
            return call
        moved = self.visit_expr(data)
        if data not in self._divided:
            moved = self._emit(relax.op.multiply(moved, relax.const(np.float32(1.0 / step), "float32")))
        one = relax.const(np.float32(1.0), "float32")
        return relax.op.quantize(moved, one, point, int(call.attrs.axis), str(call.attrs.out_dtype))


def _convolved(call: relax.Call, data: relax.Expr, weights: Numbers, padding: Any, kind: str) -> relax.Call:
    """The convolution `call` with other data, weights, padding and element type."""
    return convolution_like(call, data, relax.const(weights.astype(kind), kind), padding, dtype=kind)


def _holds(stored: SignedWeights, axes: tuple[int, ...], weights: QuantisedWeights) -> bool:
    """Whether int32 holds the sums, and what is added to them."""
    sizes = np.abs(stored.integers.astype(np.int64)) + np.abs(weights.integers.astype(np.int64))
    moved = (1 if weights.point is None else 2) * np.abs(stored.moved).astype(np.int64).max(initial=0)
    terms = stored.integers.size // max(stored.integers.shape[stored.axis], 1)
    return bool(LARGEST_BYTE * (int(sizes.sum(axes).max(initial=0)) + terms * int(moved)) < _LARGEST_SUM)


def _whole(values: Any, axis: int, rank: int) -> relax.Expr:
    """A constant of int32: a scalar, or one value for each element of `axis`."""
    return relax.const(shaped(np.asarray(values), axis, rank).astype(np.int32), "int32")


def _number(point: int | relax.Expr) -> relax.Expr | None:
    """A zero point as an expression of int32; None for 0."""
    return (relax.const(point, "int32") if point else None) if isinstance(point, int) else point


def _differs_along(point: int | relax.Expr, axis: int) -> bool:
    """Whether a zero point of matrices is a scalar, or differs along this axis, -1 or -2, and those before."""
    shape = () if isinstance(point, int) else static_shape(point)
    other = -3 - axis
    return shape is not None and (not shape or (axis == -1 and len(shape) == 1) or shape[other:][:1] == (1,))


def _ones(depth: int) -> relax.Expr:
    """A matrix of one column, the product with which sums rows."""
    return relax.const(np.ones((depth, 1), np.int32), "int32")


def _is_scalar(expression: relax.Expr) -> bool:
    return int(expression.ty.ndim) == 0


def _is_of_channels(weights: QuantisedWeights, axis: int) -> bool:
    """Whether scales and zero points of the weights differ along this axis at most."""
    shapes = [None if weights.scale is None else weights.scale.shape]
    if weights.point is not None:
        shapes.append(static_shape(weights.point) or ())
    full = [shape for shape in shapes if shape is not None and len(shape) == weights.integers.ndim]
    return all(extent == 1 for shape in full for place, extent in enumerate(shape) if place != axis)
