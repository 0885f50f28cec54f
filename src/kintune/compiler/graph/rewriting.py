"""Helpers of rewriting passes: a pass over all Relax functions of a module, and properties of expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator

__all__ = [
    "CALL_KERNEL",
    "emit_as",
    "integers_in",
    "operator_of",
    "rewriting_pass",
    "static_shape",
    "value_of",
    "variables_in",
]

CALL_KERNEL = "relax.call_tir"
"""The operator that calls a PrimFunc of the module."""


def rewriting_pass(name: str, rewriter_of: Callable[[tvm.IRModule], PyExprMutator]) -> tvm.transform.Pass:
    """A pass that applies a new rewriter to all Relax functions of a module."""

    def rewrite(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        rewriter = rewriter_of(module)
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
        return rewriter.builder_.get()

    return tvm.transform.module_pass(rewrite, opt_level=0, name=name)


def emit_as(builder: relax.BlockBuilder, variable: relax.Var, expression: relax.Expr) -> relax.Var:
    """Bind an expression to a new variable of a dataflow block, with the name of `variable`.

    The name says that it holds the value of the same node of the user's graph (see `provenance`), perhaps in another
    layout or shape.
    """
    normal = builder.normalize(expression)
    made = relax.DataflowVar(str(variable.name), normal.ty)
    builder.emit_normalized(relax.VarBinding(made, normal))
    return made


def operator_of(expression: relax.Expr) -> str:
    """The name of the operator that the expression calls (`relax.add`); "" where it calls none."""
    return str(getattr(expression.op, "name", "")) if isinstance(expression, relax.Call) else ""


def integers_in(group: relax.Expr) -> list[int] | None:
    """The integers in a tuple operand; None where it is no tuple, or a field is no constant integer."""
    fields = list(group.fields) if isinstance(group, relax.Tuple) else None
    values = [getattr(field, "value", None) for field in fields or ()]
    known = [int(value) for value in values if isinstance(value, int)]
    return known if fields is not None and len(known) == len(values) else None


def value_of(constant: tvm.ir.GenericConst) -> NDArray[Any]:
    """A copy of the constant's tensor."""
    return np.asarray(constant.value.numpy())


def static_shape(expression: relax.Expr) -> tuple[int, ...] | None:
    """The tensor's shape where every extent is known; None otherwise."""
    shape = getattr(expression.ty, "shape", None)
    extents = getattr(shape, "values", shape)
    if extents is None or not isinstance(expression.ty, relax.TensorType):
        return None
    known = [int(extent) for extent in extents if isinstance(extent, int | tvm.tirx.IntImm)]
    return tuple(known) if len(known) == len(extents) else None


def variables_in(expression: relax.Expr) -> list[relax.Var]:
    """The variables in an expression, each as often as it occurs."""
    found: list[relax.Var] = []
    relax.analysis.post_order_visit(
        expression, lambda part: found.append(part) if isinstance(part, relax.Var) else None
    )
    return found
