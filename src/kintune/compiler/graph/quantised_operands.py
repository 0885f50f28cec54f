"""Finds the integers, the zero point and the scale of expressions that are quantised tensors."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.rewriting import Bindings, Rewriter, along, operator_of, transposed_axes, value_of

__all__ = ["BYTES", "Numbers", "QuantisedBindings", "QuantisedRewriter", "QuantisedTensor", "QuantisedWeights"]

BYTES = frozenset({"int8", "uint8"})
"""The types of quantised tensors."""

Numbers: TypeAlias = "NDArray[Any]"


class QuantisedTensor(NamedTuple):
    """A tensor that is `(integers - point) * scale`; without a scale it is `integers - point`, of int32.

    `point` is a number, or an expression of integers, which may be a scalar.  `scale` is a number, or a scalar
    expression of float32.
    """

    integers: relax.Expr
    point: int | relax.Expr
    scale: float | relax.Expr | None

    @property
    def dtype(self) -> str:
        """The type of the integers."""
        return str(self.integers.ty.dtype)


class QuantisedWeights(NamedTuple):
    """Constant weights that are `(integers - point) * scale`, with broadcasting.

    The integers are int32.  A constant zero point is subtracted from them already; `point` is an expression of
    integers, or None: a scalar, a tensor of the weights' rank, or one value for each element along which there are
    scales.  Without a scale, the weights are `integers - point`.
    """

    integers: Numbers
    scale: Numbers | None
    point: relax.Expr | None = None


class QuantisedBindings(Bindings):
    """Bindings, and what they say of quantised tensors."""

    def tensor(self, expression: relax.Expr) -> QuantisedTensor | None:
        """The quantised tensor of bytes that the expression dequantises; None where it does not."""
        value = self.value(expression)
        name = operator_of(value)
        if name == "relax.dequantize":
            scale, point = (self._single(argument) for argument in value.args[1:])
            if scale is None or point is None or str(value.ty.dtype) != "float32":
                return None
            return self._of_bytes(value.args[0], int(point) if isinstance(point, float) else point, scale)
        if name == "relax.astype" and str(value.ty.dtype) == "int32":
            return self._of_bytes(value.args[0], 0, None)
        if name == "relax.subtract" and str(value.ty.dtype) == "int32":
            whole, point = self.tensor(value.args[0]), self.number(value.args[1])
            if whole is None or whole.scale is not None or whole.point != 0:
                return None
            if point is None:
                return whole._replace(point=value.args[1])
            return whole._replace(point=int(point))
        return None

    def _single(self, expression: relax.Expr) -> float | relax.Expr | None:
        """The value of a constant of one element, or a scalar expression; None for others."""
        number = self.number(expression)
        return expression if number is None and int(expression.ty.ndim) == 0 else number

    @staticmethod
    def _of_bytes(integers: relax.Expr, point: int, scale: float | None) -> QuantisedTensor | None:
        if isinstance(integers, tvm.ir.GenericConst) or str(integers.ty.dtype) not in BYTES:
            return None
        return QuantisedTensor(integers, point, scale)

    def weights(self, expression: relax.Expr) -> QuantisedWeights | None:
        """The constant integer weights that the expression is, dequantises or transposes; None where it does not."""
        value = self.value(expression)
        if isinstance(value, tvm.ir.GenericConst):
            found = value_of(value)
            return QuantisedWeights(found.astype(np.int32), None) if found.dtype.name in (*BYTES, "int32") else None
        match operator_of(value):
            case "relax.dequantize":
                return self._dequantised(value)
            case "relax.permute_dims":
                inner = self.weights(value.args[0])
                if inner is None or inner.point is not None:
                    return None
                axes = transposed_axes(value)
                scale = None if inner.scale is None else inner.scale.transpose(axes)
                return QuantisedWeights(inner.integers.transpose(axes), scale)
            case "relax.subtract" if str(value.ty.dtype) == "int32":
                inner = self.weights(value.args[0])
                if inner is None or inner.point is not None:
                    return None
                fits = int(value.args[1].ty.ndim) in (0, inner.integers.ndim)
                return inner._replace(point=value.args[1]) if fits else None
        return None

    def _dequantised(self, value: relax.Call) -> QuantisedWeights | None:
        integers, scale, point = (self.numbers(argument) for argument in value.args)
        if integers is None or scale is None or integers.dtype.name not in BYTES or str(value.ty.dtype) != "float32":
            return None
        axis, whole = int(value.attrs.axis), integers.astype(np.int32)
        scale = along(scale, axis, integers.ndim).astype(np.float32)
        if point is None:
            return QuantisedWeights(whole, scale, value.args[2])
        return QuantisedWeights(whole - along(point, axis, integers.ndim).astype(np.int32), scale)

    def real(self, expression: relax.Expr) -> Numbers | None:
        """The value of a float32 constant, which may be dequantised and reshaped; None for others."""
        value = self.value(expression)
        if isinstance(value, tvm.ir.GenericConst):
            return value_of(value) if str(value.ty.dtype) == "float32" else None
        match operator_of(value):
            case "relax.reshape":
                inner = self.real(value.args[0])
                return None if inner is None else inner.reshape([int(extent) for extent in value.ty.shape])
            case "relax.dequantize":
                return self.dequantised(value)
        return None

    def dequantised(self, value: relax.Call) -> Numbers | None:
        """The float32 result of a dequantisation of constants; None where operands are no constants."""
        integers, scale, point = (self.numbers(argument) for argument in value.args)
        if integers is None or scale is None or point is None or str(value.ty.dtype) != "float32":
            return None
        if scale.dtype != np.float32 or integers.dtype.kind not in "iu" or integers.dtype.itemsize > 4:
            return None
        shaped = [along(each, int(value.attrs.axis), integers.ndim) for each in (scale, point)]
        whole = integers.astype(np.int64) - shaped[1].astype(np.int64)
        return np.asarray(whole.astype(np.float32) * shaped[0])


class QuantisedRewriter(Rewriter):
    """The base of passes that look for quantised tensors."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._bindings: QuantisedBindings = QuantisedBindings()
