"""Makes element-wise operators on quantised tensors read bytes, and kernels that differ only in scales equal.

`CombineDequantised`: a sum or product of tensors of which some are dequantised becomes one function that reads their
bytes.  Otherwise fusion would dequantise in the kernel that computes the bytes, and store fp32.

`ScalesAsTensors`: scales and zero points become tensors of one element instead of numbers in a kernel's code.  So do
the numbers by which computed scales, and terms of integer sums, are multiplied.  A network has as many of them as
layers, but far fewer distinct kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, te

from kintune.compiler.graph.quantised_operands import BYTES, QuantisedRewriter
from kintune.compiler.graph.rewriting import operator_of, pass_of, static_shape

__all__ = ["CombineDequantised", "ScalesAsTensors"]

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "relax.add": lambda a, b: a + b,
    "relax.multiply": lambda a, b: a * b,
    "relax.subtract": lambda a, b: a - b,
}


class _Operand(NamedTuple):
    """The tensors from which an operand is computed: itself; or bytes, their scale, and a zero point unless it is 0."""

    tensors: tuple[relax.Expr, ...]

    def element(self, given: list[te.Tensor], at: tuple[Any, ...]) -> Any:
        """The operand's element `at` these indices, computed from `given`, the placeholders of `tensors`."""
        if len(given) == 1:
            return given[0](*at)
        whole = given[0](*at).astype("int32")
        if len(given) == 3:
            whole = whole - given[2](0).astype("int32")
        return whole.astype("float32") * given[1](0)


class _CombineDequantised(QuantisedRewriter):
    """A pass that makes one function of a sum or product and the dequantisation of its operands."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        made = self._combined(binding.value) if operator_of(binding.value) in _OPERATORS else None
        super().visit_var_binding_(binding if made is None else relax.VarBinding(binding.var, made))

    def _combined(self, call: relax.Call) -> relax.Expr | None:
        shape = static_shape(call)
        if shape is None or not shape or any(static_shape(each) != shape for each in call.args):
            return None
        operands = [self._operand(each) for each in call.args]
        if all(len(operand.tensors) == 1 for operand in operands):
            return None
        name = operator_of(call)
        operator, counts = _OPERATORS[name], [len(operand.tensors) for operand in operands]

        def combined(*given: te.Tensor) -> te.Tensor:
            parts = list(given[: counts[0]]), list(given[counts[0] :])

            def element(*at: Any) -> Any:
                found = [operand.element(part, at) for operand, part in zip(operands, parts, strict=True)]
                return operator(*found)

            return te.compute(given[0].shape, element, name="combined")

        tensors = [tensor for operand in operands for tensor in operand.tensors]
        return self.builder_.call_te(combined, *tensors, primfunc_name_hint=f"dequantize_{name.rpartition('.')[2]}")

    def _operand(self, expression: relax.Expr) -> _Operand:
        value = self._bindings.value(expression)
        if operator_of(value) == "relax.dequantize" and str(value.ty.dtype) == "float32":
            scale, point = (self._bindings.number(argument) for argument in value.args[1:])
            dtype = str(value.args[0].ty.dtype)
            if scale is not None and point is not None and dtype in BYTES:
                tensors = [self.visit_expr(value.args[0]), _one(scale, "float32")]
                return _Operand((*tensors, _one(point, dtype)) if point else tuple(tensors))
        return _Operand((self.visit_expr(expression),))


CombineDequantised = partial(pass_of, _CombineDequantised)


def _one(value: float, dtype: str) -> relax.Expr:
    return relax.const(np.array([value]).astype(dtype), dtype)


class _ScalesAsTensors(QuantisedRewriter):
    """A pass that replaces scales and zero points of quantised tensors by tensors of one element."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value, name = binding.value, operator_of(binding.value)
        if name in ("relax.quantize", "relax.dequantize") and int(value.ty.ndim) > 0:
            value = self._with_tensors(value)
        elif name == "relax.multiply" and self._scales(binding.var):
            value = relax.Call(value.op, [self._factor(argument) for argument in value.args], value.attrs)
        super().visit_var_binding_(relax.VarBinding(binding.var, value))

    def _with_tensors(self, call: relax.Call) -> relax.Call:
        data, *parameters = call.args
        quantised = call if operator_of(call) == "relax.quantize" else data
        made = []
        for parameter, neutral, dtype in zip(parameters, (1.0, 0.0), ("float32", str(quantised.ty.dtype)), strict=True):
            number = self._bindings.number(parameter)
            plain = number is None or number == neutral or str(parameter.ty.dtype) != dtype
            made.append(parameter if plain or number is None else _one(number, dtype))
        return relax.Call(call.op, [data, *made], call.attrs, call.ty_args)

    def _factor(self, argument: relax.Expr) -> relax.Expr:
        number = self._bindings.number(argument)
        dtype = str(argument.ty.dtype)
        if number is None or int(argument.ty.ndim) or dtype not in ("float32", "int32"):
            return argument
        return _one(number, dtype)

    def _scales(self, variable: relax.Var) -> bool:
        """Whether a product is of sums that are quantised next, a term of integer sums, or the scale of a tensor."""
        found = self._bindings.readers(variable)
        readers = [self._bindings.value(each) for each in found if each is not None]
        if not readers or len(readers) < len(found):
            return False
        if not int(variable.ty.ndim):
            return all(operator_of(reader) == "relax.multiply" and int(reader.ty.ndim) for reader in readers)
        next_ = "relax.subtract" if str(variable.ty.dtype) == "int32" else "relax.quantize"
        return all(operator_of(reader) == next_ for reader in readers)


ScalesAsTensors = partial(pass_of, _ScalesAsTensors)
