"""Rewrites that let layout conversion and fusion see through a network.

Layout conversion stops at a binary operator whose operands differ in rank, and a scalar operand (the bounds of a ReLU6,
the 3 and 6 of a hard swish) has rank 0: every such operator would be wrapped in two transposes.  So scalars get the rank
of their partner before layouts are converted (`RaiseScalars`), and become scalars again afterwards (`LowerScalars`), which
legalisation writes into the fused kernel as literals.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

__all__ = ["LowerScalars", "RaiseScalars"]

_BINARY = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
)


@mutator
class _RaiseScalars(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not isinstance(call, relax.Call) or getattr(call.op, "name", "") not in _BINARY:
            return call
        ranks = [_rank(argument) for argument in call.args]
        rank = max(ranks)
        if rank < 3 or min(ranks) != 0:
            return call
        arguments = [
            relax.const(_value(a).reshape((1,) * rank), _value(a).dtype.name)
            if r == 0 and isinstance(a, tvm.ir.GenericConst)
            else a
            for a, r in zip(call.args, ranks, strict=True)
        ]
        return relax.Call(call.op, arguments, call.attrs)


@mutator
class _LowerScalars(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not isinstance(call, relax.Call) or getattr(call.op, "name", "") not in _BINARY:
            return call
        ranks = [_rank(argument) for argument in call.args]
        arguments = list(call.args)
        for i, (argument, other) in enumerate(zip(call.args, reversed(ranks), strict=True)):
            if isinstance(argument, tvm.ir.GenericConst) and other >= ranks[i] > 0 and _value(argument).size == 1:
                arguments[i] = relax.const(_value(argument).reshape(()), _value(argument).dtype.name)
                break
        else:
            return call
        return relax.Call(call.op, arguments, call.attrs)


def _rank(expression: relax.Expr) -> int:
    ndim = getattr(expression.ty, "ndim", -1)
    return int(ndim)


def _value(constant: tvm.ir.GenericConst) -> np.ndarray:
    return constant.value.numpy()


def _module_pass(visitor: type, name: str) -> tvm.transform.Pass:
    @tvm.transform.module_pass(opt_level=0, name=name)
    def rewrite(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        rewriter = visitor(module)
        for variable, function in list(module.functions_items()):
            if isinstance(function, relax.Function):
                rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
        return rewriter.builder_.get()

    return rewrite


def RaiseScalars() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that gives scalar constants the rank of the tensor they are combined with."""
    return _module_pass(_RaiseScalars, "RaiseScalars")


def LowerScalars() -> tvm.transform.Pass:  # noqa: N802
    """A pass that turns one-element constants of any rank back into scalars."""
    return _module_pass(_LowerScalars, "LowerScalars")
