"""Folds the constant expressions that import and layout conversion produce: reshaped, transposed, cast, scaled weights.

TVM's `FoldConstant` compiles a program for each such expression, which takes tens of milliseconds, and a network has
hundreds of them.  This pass runs before it, and evaluates the common ones with numpy.  Operators and types for which
numpy might round, wrap or saturate differently from a compiled program are left to TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.rewriting import RESHAPES, Rewriter, operator_of, pass_of, transposed_axes, value_of

__all__ = ["FoldTensors"]

_Fold = Callable[[relax.Call, Sequence[NDArray[Any]]], "NDArray[Any] | None"]

_MOVABLE = frozenset({"bool", "float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64"})
_EXACT = frozenset({"float32", "float64", "int32", "int64"})
"""Types for which numpy and compiled code compute the same bits for a sum, product or quotient of two numbers."""


class _FoldTensors(Rewriter):
    """A pass that evaluates, with numpy, operators all of whose tensors are constants.

    A variable bound to a folded tensor remains; `FoldConstant` and `CanonicalizeBindings` replace it by its value.
    Equal calls on the same constant share one result, so a layer that is called twice has its weights once.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._folded: dict[tuple[object, ...], tuple[tvm.ir.GenericConst, relax.Expr]] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        fold = _FOLDS.get(operator_of(call))
        visited = self.visit_expr_post_order(call)
        if fold is None or not isinstance(visited, relax.Call):
            return visited
        given = [argument for argument in visited.args if not isinstance(argument, relax.ShapeExpr)]
        constants = [self._constant(argument) for argument in given]
        if any(constant is None or str(constant.ty.dtype) not in _MOVABLE for constant in constants):
            return visited
        key: tuple[object, ...] | None = None
        if len(constants) == 1 and constants[0] is not None:
            key = operator_of(call), str(call.attrs), str(call.ty), constants[0].value.__chandle__()
            if key in self._folded:
                return self._folded[key][1]
        folded = fold(call, [value_of(constant) for constant in constants])
        if folded is None:
            return visited
        found = relax.const(np.asarray(folded, order="C"), str(call.ty.dtype))
        if key is not None:
            self._folded[key] = constants[0], found  # keeps the constant, so that its handle is not reused
        return found

    def _constant(self, argument: relax.Expr) -> tvm.ir.GenericConst | None:
        """The constant that the argument is, or is bound to."""
        bound = self.lookup_binding(argument) if isinstance(argument, relax.Var) else argument
        return bound if isinstance(bound, tvm.ir.GenericConst) else None


FoldTensors = partial(pass_of, _FoldTensors)


def _reshape(call: relax.Call, tensors: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    return tensors[0].reshape([int(extent) for extent in call.ty.shape])


def _permute(call: relax.Call, tensors: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    return np.transpose(tensors[0], transposed_axes(call))


def _cast(call: relax.Call, tensors: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    wanted = str(call.ty.dtype)
    if wanted not in _MOVABLE or not np.can_cast(tensors[0].dtype, wanted, "same_kind"):
        return None
    with np.errstate(all="ignore"):
        return tensors[0].astype(wanted)


def _arithmetic(function: np.ufunc) -> _Fold:
    def fold(_call: relax.Call, tensors: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
        if any(tensor.dtype.name not in _EXACT for tensor in tensors):
            return None
        with np.errstate(all="ignore"):
            result: NDArray[Any] = function(*tensors)
        return result

    return fold


def _quotient(call: relax.Call, tensors: Sequence[NDArray[Any]]) -> NDArray[Any] | None:
    if any(tensor.dtype.kind != "f" for tensor in tensors):
        return None
    return _arithmetic(np.divide)(call, tensors)


_FOLDS: dict[str, _Fold] = {
    "relax.add": _arithmetic(np.add),
    "relax.astype": _cast,
    "relax.divide": _quotient,
    "relax.multiply": _arithmetic(np.multiply),
    "relax.permute_dims": _permute,
    "relax.subtract": _arithmetic(np.subtract),
    **dict.fromkeys(RESHAPES, _reshape),
}
