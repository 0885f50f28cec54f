"""Passes that change the type of quantised tensors, move quantised tensors as integers, and dequantise constants.

`UseUnsignedBytes`: tensors that are quantised to int8 become uint8, with a zero point that is 128 more.  They stand for
the same numbers, and products of bytes take uint8 as their first operand.

`KeepQuantised`: where a tensor is dequantised, its elements are only moved or compared, and then quantised with the
same scale and zero point, the operators work on the integers instead.

`FoldDequantised`: constants are dequantised at compile time; otherwise each would need a program.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tvm
from tvm import relax

from kintune.compiler.graph.quantised_operands import QuantisedRewriter
from kintune.compiler.graph.rewriting import RESHAPES, emit_as, operator_of, pass_of

__all__ = ["FoldDequantised", "KeepQuantised", "UseUnsignedBytes"]

_SHIFT = 128
_MOVES = RESHAPES | {"relax.permute_dims", "relax.strided_slice", "relax.nn.batch_flatten"}
_MOVES |= {f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3)}
"""Operators of one tensor whose result holds nothing but elements of it."""


class _UseUnsignedBytes(QuantisedRewriter):
    """A pass that quantises to uint8 tensors that are quantised to int8 and only read by dequantisations."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._moved: dict[relax.Var, relax.Var] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if operator_of(value) == "relax.quantize" and self._can_move(binding.var, value):
            data, scale, point = value.args
            moved = relax.op.quantize(
                self.visit_expr(data), self.visit_expr(scale), self._unsigned(point), int(value.attrs.axis), "uint8"
            )
            self._moved[binding.var] = emit_as(self.builder_, binding.var, moved)
            return
        if operator_of(value) == "relax.dequantize" and value.args[0] in self._moved:
            integers, scale, point = value.args
            value = relax.op.dequantize(
                self._moved[integers], scale, self._unsigned(point), int(value.attrs.axis), str(value.ty.dtype)
            )
            binding = relax.VarBinding(binding.var, value)
        super().visit_var_binding_(binding)

    def _can_move(self, variable: relax.Var, call: relax.Call) -> bool:
        point = self._bindings.number(call.args[2])
        if str(call.attrs.out_dtype) != "int8" or point is None or not isinstance(variable, relax.DataflowVar):
            return False
        readers = [None if each is None else self._bindings.value(each) for each in self._bindings.readers(variable)]
        return bool(readers) and all(self._dequantises(reader, variable) for reader in readers)

    def _dequantises(self, reader: relax.Expr | None, variable: relax.Var) -> bool:
        if operator_of(reader) != "relax.dequantize":
            return False
        point = self._bindings.number(reader.args[2])  # type: ignore[union-attr]
        return point is not None and reader.args[0].same_as(variable)  # type: ignore[union-attr]

    def _unsigned(self, point: relax.Expr) -> relax.Expr:
        return relax.const(np.uint8(int(self._bindings.number(point) or 0) + _SHIFT), "uint8")


UseUnsignedBytes = partial(pass_of, _UseUnsignedBytes)


class _KeepQuantised(QuantisedRewriter):
    """A pass that moves the integers of quantised tensors instead of the real numbers that they stand for."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = binding.value
        if operator_of(value) == "relax.quantize":
            step = tuple(self._bindings.number(argument) for argument in value.args[1:])
            kept = None if None in step else self._kept(value.args[0], (*step, str(value.attrs.out_dtype)))
            if kept is not None:
                binding = relax.VarBinding(binding.var, kept())
        super().visit_var_binding_(binding)

    def _kept(self, data: relax.Expr, step: tuple[object, ...]) -> Callable[[], relax.Expr] | None:
        """A function that emits the integers of `data`; None if `data` is not dequantised with this `step`.

        `step` is (scale, zero point, type).
        """
        value = self._bindings.value(data)
        name = operator_of(value)
        if name == "relax.dequantize":
            integers = value.args[0]
            own = (*(self._bindings.number(argument) for argument in value.args[1:]), str(integers.ty.dtype))
            return (lambda: self.visit_expr(integers)) if own == step else None
        if name in _MOVES:
            inner = self._kept(value.args[0], step)
            if inner is None:
                return None
            before, others = inner, list(value.args[1:])
            return lambda: self.builder_.emit(
                relax.Call(value.op, [before(), *map(self.visit_expr, others)], value.attrs, value.ty_args)
            )
        if name == "relax.concat" and isinstance(value.args[0], relax.Tuple):
            fields = [self._kept(field, step) for field in value.args[0].fields]
            found = [field for field in fields if field is not None]
            if len(found) == len(fields):
                return lambda: self.builder_.emit(relax.op.concat([field() for field in found], int(value.attrs.axis)))
        return None


KeepQuantised = partial(pass_of, _KeepQuantised)


class _FoldDequantised(QuantisedRewriter):
    """A pass that dequantises constants."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if operator_of(binding.value) == "relax.dequantize":
            numbers = self._bindings.dequantised(binding.value)
            if numbers is not None:
                binding = relax.VarBinding(binding.var, relax.const(numbers, "float32"))
        super().visit_var_binding_(binding)


FoldDequantised = partial(pass_of, _FoldDequantised)
