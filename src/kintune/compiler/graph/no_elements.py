"""Reductions of no elements become constants: a kernel that loops over nothing would not write its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from kintune.compiler.graph.rewriting import Rewriter, operator_of, pass_of
from kintune.core.dtypes import numpy_dtype
from kintune.models.expressions import is_float

__all__ = ["ReduceNothing"]


def _least(dtype: str) -> Any:
    return -math.inf if is_float(dtype) else np.iinfo(dtype).min


def _greatest(dtype: str) -> Any:
    return math.inf if is_float(dtype) else np.iinfo(dtype).max


_NEUTRAL: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("relax.sum", "relax.matmul", "relax.einsum"), lambda dtype: 0),
    "relax.prod": lambda dtype: 1,
    "relax.mean": lambda dtype: math.nan,
    "relax.max": _least,
    "relax.min": _greatest,
}
"""Operator -> each element of its result where it reads none, by the element type."""


class _ReduceNothing(Rewriter):
    """A pass that replaces reductions and products of tensors without elements by what these are."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        visited = self.visit_expr_post_order(call)
        neutral = _NEUTRAL.get(operator_of(call))
        if neutral is None or not any(_is_empty(argument) for argument in call.args):
            return visited
        shape, dtype = [int(size) for size in call.ty.shape], str(call.ty.dtype)
        return relax.const(np.full(shape, neutral(dtype) if math.prod(shape) else 0, numpy_dtype(dtype)), dtype)


ReduceNothing = partial(pass_of, _ReduceNothing)


def _is_empty(argument: relax.Expr) -> bool:
    tensors = argument.fields if isinstance(argument, relax.Tuple) else [argument]
    return any(isinstance(each.ty, relax.TensorType) and 0 in list(map(int, each.ty.shape)) for each in tensors)
