"""A rewrite of expressions as a pass over a whole module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

__all__ = ["operator_of", "rewriting_pass", "value_of"]


def rewriting_pass(name: str, rewriter_of: Callable[[tvm.IRModule], PyExprMutator]) -> tvm.transform.Pass:
    """A pass that sends every Relax function of a module through a fresh rewriter."""

    def rewrite(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        rewriter = rewriter_of(module)
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
        return rewriter.builder_.get()

    return tvm.transform.module_pass(rewrite, opt_level=0, name=name)


def operator_of(expression: relax.Expr) -> str:
    """The name of the operator that the expression calls (`relax.add`), "" where it calls none."""
    return str(getattr(expression.op, "name", "")) if isinstance(expression, relax.Call) else ""


def value_of(constant: tvm.ir.GenericConst) -> NDArray[Any]:
    """A copy of the constant's tensor."""
    return np.asarray(constant.value.numpy())
