"""Rewrites products and convolutions of quantised tensors to sums of integers.

A product or convolution of a dequantised tensor with dequantised weights becomes one of int32, whose operand is cast
from bytes, followed by one scale for each channel.  The tensor's zero point adds to each sum a term that depends on the
weights alone; it is subtracted as a constant.  Convolutions are padded with the zero point, which stands for zero.  So
only integers are multiplied, and the sums are exact.

Depthwise and other grouped convolutions have small sums, which are exact in float32.  They become float32 convolutions
of the integers minus their zero point, padded with zeros, so that the programs for float32 convolutions apply.

If the result is quantised again, its scale is multiplied by the inverse of the next scale: sums are multiplied once,
rounded half to even, as in other runtimes, and clipped to the type.

`integer_products` makes functions of these convolutions and products, which read the bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.layout_rules import BROADCAST, UNARY
from kintune.compiler.graph.quantised_moves import KeepQuantised, UseUnsignedBytes
from kintune.compiler.graph.quantised_operands import Bindings, Numbers, QuantisedTensor, QuantisedWeights
from kintune.compiler.graph.rewriting import operator_of, rewriting_pass
from kintune.compiler.programs.byte_products import byte_instruction

__all__ = ["UseIntegers", "multiplies_bytes"]

_CONVOLUTIONS = {"relax.nn.conv1d": ("NCW", "OIW"), "relax.nn.conv2d": ("NCHW", "OIHW")}
_LEAST, _MOST = -128, 127
_EXACT = 1 << 24  # all whole numbers up to this one are exact in float32
_LARGEST_SUM = 1 << 31
_BYTE = 255
_SHIFT = 128
_ELEMENTWISE = frozenset(f"relax.{name}" for name in (*UNARY, *BROADCAST))


def multiplies_bytes(target: tvm.target.Target) -> bool:
    """Whether the target is a CPU with an instruction that adds products of bytes, which Kintune's programs use."""
    return byte_instruction(target) is not None


def UseIntegers() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that computes products and convolutions of quantised tensors with constant weights in integers."""
    passes = [UseUnsignedBytes(), KeepQuantised(), rewriting_pass("UseIntegers", _UseIntegers)]
    return tvm.transform.Sequential(passes, name="UseIntegers")


class _Sums(NamedTuple):
    """Exact sums of products, and what is subtracted from them for the zero point, or None.

    `axis` is that of the channels, and `rank` the rank of the sums.
    """

    sums: relax.Expr
    correction: relax.Expr | None
    axis: int
    rank: int


@mutator
class _UseIntegers(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._bindings = Bindings()
        self._summed: set[relax.Var] = set()  # variables computed from integer sums by element-wise operators
        self._divided: dict[relax.Var, float] = {}  # variable whose values are divided by a scale already -> that scale

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        self._bindings.learn(block)
        return super().visit_dataflow_block_(block)

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
        if tensor is None or weights is None or (tensor.scale is None) != (weights.scale is None):
            return None
        if str(call.ty.dtype) != ("int32" if tensor.scale is None else "float32"):
            return None
        smallest, largest = int(weights.integers.min(initial=0)), int(weights.integers.max(initial=0))
        if smallest < _LEAST or largest > _MOST:
            return None
        is_product = operator_of(call) == "relax.matmul"
        sums = self._matmul(call, tensor, weights) if is_product else self._convolution(call, tensor, weights)
        if sums is None:
            return None
        self._summed.add(variable)
        result = sums.sums
        if sums.correction is not None:
            result = self._emit(relax.op.subtract(result, sums.correction))
        if tensor.scale is None or weights.scale is None:
            return result if str(result.ty.dtype) == "int32" else relax.op.astype(result, "int32")
        if str(result.ty.dtype) != "float32":
            result = self._emit(relax.op.astype(result, "float32"))
        step = self._next_step(variable, variable)
        factor = weights.scale.astype(np.float64) * tensor.scale / (step or 1.0)
        if step is not None:
            self._divided[variable] = step
        factor = factor.reshape(()) if factor.size == 1 else _shaped(factor, sums.axis, sums.rank)
        return relax.op.multiply(result, relax.const(factor.astype(np.float32), "float32"))

    def _matmul(self, call: relax.Call, tensor: QuantisedTensor, weights: QuantisedWeights) -> _Sums | None:
        integers, rank = weights.integers, int(call.ty.ndim)
        if integers.ndim != 2 or not _varies_along(weights.scale, 1) or int(call.args[0].ty.ndim) < 2:
            return None
        if _largest_sum(integers, (0,)) >= _LARGEST_SUM:
            return None
        bytes_, point = self._unsigned(tensor)
        wide = self._emit(relax.op.astype(bytes_, "int32"))
        sums = self._emit(relax.op.matmul(wide, relax.const(integers.astype(np.int32), "int32"), out_dtype="int32"))
        return _Sums(sums, self._correction(point, integers.sum(0), rank - 1, rank), rank - 1, rank)

    def _convolution(self, call: relax.Call, tensor: QuantisedTensor, weights: QuantisedWeights) -> _Sums | None:
        a, integers = call.attrs, weights.integers
        layouts = _CONVOLUTIONS[operator_of(call)]
        if (str(a.data_layout), str(a.kernel_layout), str(a.out_layout)) != (*layouts, layouts[0]):
            return None
        largest = _largest_sum(integers, tuple(range(1, integers.ndim)))
        if not _varies_along(weights.scale, 0) or largest >= _LARGEST_SUM:
            return None
        if int(a.groups) > 1 and largest < _EXACT:
            return _Sums(self._short_sums(call, tensor, integers), None, 1, integers.ndim)
        padding, rank = [int(width) for width in a.padding], integers.ndim
        if any(padding) and not isinstance(tensor.point, int):
            return None
        bytes_, point = self._unsigned(tensor)
        if any(padding):
            half = len(padding) // 2
            widths = [
                0,
                0,
                0,
                0,
                *(width for pair in zip(padding[:half], padding[half:], strict=True) for width in pair),
            ]
            bytes_ = self._emit(relax.op.nn.pad(bytes_, widths, "constant", float(point)))
        wide = self._emit(relax.op.astype(bytes_, "int32"))
        sums = self._emit(_convolved(call, wide, integers, [0] * len(padding), "int32"))
        totals = integers.reshape(integers.shape[0], -1).sum(1)
        return _Sums(sums, self._correction(point, totals, 1, rank), 1, rank)

    def _short_sums(self, call: relax.Call, tensor: QuantisedTensor, integers: Numbers) -> relax.Expr:
        """The exact sums of a grouped convolution, in float32."""
        wide = self._emit(relax.op.astype(self.visit_expr(tensor.integers), "float32"))
        if not isinstance(tensor.point, int):
            wide = self._emit(relax.op.subtract(wide, relax.op.astype(self.visit_expr(tensor.point), "float32")))
        elif tensor.point:
            wide = self._emit(relax.op.subtract(wide, relax.const(float(tensor.point), "float32")))
        return self._emit(_convolved(call, wide, integers, call.attrs.padding, "float32"))

    def _unsigned(self, tensor: QuantisedTensor) -> tuple[relax.Expr, Any]:
        """The integers as uint8, and their zero point: a number, or an expression."""
        integers = self.visit_expr(tensor.integers)
        point = tensor.point if isinstance(tensor.point, int) else self.visit_expr(tensor.point)
        if tensor.dtype == "uint8":
            return integers, point
        wide = self._emit(relax.op.astype(integers, "int16"))
        moved = self._emit(relax.op.add(wide, relax.const(_SHIFT, "int16")))
        if isinstance(point, int):
            return self._emit(relax.op.astype(moved, "uint8")), point + _SHIFT
        more = self._emit(relax.op.add(point, relax.const(_SHIFT, "int32")))
        return self._emit(relax.op.astype(moved, "uint8")), more

    def _correction(self, point: Any, totals: Numbers, axis: int, rank: int) -> relax.Expr | None:
        """The zero point times the sums of the weights, one for each channel."""
        if isinstance(point, int):
            if not point or not totals.any():
                return None
            return relax.const(_shaped(totals.astype(np.int64) * point, axis, rank).astype(np.int32), "int32")
        return self._emit(relax.op.multiply(point, relax.const(_shaped(totals, axis, rank).astype(np.int32), "int32")))

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
    a, build = call.attrs, getattr(relax.op.nn, operator_of(call).removeprefix("relax.nn."))
    filters, layout = relax.const(weights.astype(kind), kind), (a.data_layout, a.kernel_layout, a.out_layout)
    return build(data, filters, a.strides, padding, a.dilation, a.groups, *layout, kind)


def _largest_sum(integers: Numbers, axes: tuple[int, ...]) -> int:
    """A bound of the magnitude of sums along these axes of bytes, minus a zero point or not, times the weights."""
    return _BYTE * int(np.abs(integers.astype(np.int64)).sum(axes).max(initial=0))


def _shaped(values: Numbers, axis: int, rank: int) -> Numbers:
    return values.reshape([-1 if place == axis else 1 for place in range(rank)])


def _varies_along(scale: Numbers | None, axis: int) -> bool:
    return scale is None or all(extent == 1 for place, extent in enumerate(scale.shape) if place != axis)
