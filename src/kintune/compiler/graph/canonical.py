"""Scalars among the constants of a network.

A factor or bound may come as a tensor of one element ([1], or [1, 1, 1, 1]).  Legalisation writes a scalar into the
fused kernel as a literal; a tensor would be one more operand that each kernel reads.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.rewriting import operator_of, rewriting_pass, value_of

__all__ = ["LowerScalars"]

_BINARY = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
)


def LowerScalars() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that turns one-element constants into scalars where their partner keeps the result's rank."""
    return rewriting_pass("LowerScalars", _LowerScalars)


@mutator
class _LowerScalars(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if operator_of(call) not in _BINARY:
            return call
        ranks = [_rank(argument) for argument in call.args]
        arguments = list(call.args)
        for i, (argument, other) in enumerate(zip(call.args, reversed(ranks), strict=True)):
            if isinstance(argument, tvm.ir.GenericConst) and other >= ranks[i] > 0 and _is_single(argument):
                arguments[i] = _reshaped(argument, ())
                return relax.Call(call.op, arguments, call.attrs)
        return call


def _rank(expression: relax.Expr) -> int:
    return int(getattr(expression.ty, "ndim", -1))


def _is_single(constant: tvm.ir.GenericConst) -> bool:
    return all(int(extent) == 1 for extent in constant.ty.shape)


def _reshaped(constant: tvm.ir.GenericConst, shape: tuple[int, ...]) -> tvm.ir.GenericConst:
    return relax.const(value_of(constant).reshape(shape), str(constant.ty.dtype))
