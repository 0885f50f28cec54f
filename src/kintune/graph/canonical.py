"""Rewrites that let layout conversion and fusion see through a network.

Layout conversion stops at a binary operator whose operands differ in rank, and a scalar operand (the bounds of a
ReLU6, the 3 and 6 of a hard swish) has rank 0: every such operator would be wrapped in two transposes.  The same holds
for factors of one element, and for those of channels.  It also follows the first operand, which may be a constant.  So
constants come last and get the rank of their partner before layouts are converted (`RaiseScalars`).  Scalars are
scalars again afterwards (`LowerScalars`); legalisation writes them into the fused kernel as literals.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.graph.rewriting import operator_of, rewriting_pass, value_of

__all__ = ["LowerScalars", "RaiseScalars"]

_BINARY = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
)
_COMMUTATIVE = frozenset({"relax.add", "relax.multiply"})
_LEAST_RANK = 3  # of a tensor whose layout may be converted
_FEATURE_MAP = 4  # axes that a feature map has at least


def RaiseScalars() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that gives constants of one element, or a channel, the rank of the tensor they are combined with."""
    return rewriting_pass("RaiseScalars", _RaiseScalars)


def LowerScalars() -> tvm.transform.Pass:  # noqa: N802
    """A pass that turns one-element constants back into scalars where their partner keeps the result's rank."""
    return rewriting_pass("LowerScalars", _LowerScalars)


@mutator
class _RaiseScalars(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if operator_of(call) not in _BINARY:
            return call
        call = _constant_last(call)
        ranks = [_rank(argument) for argument in call.args]
        rank = max(ranks)
        if rank < _LEAST_RANK or min(ranks) == rank:
            return call
        arguments = [
            _raised(argument, own, rank) if isinstance(argument, tvm.ir.GenericConst) else argument
            for argument, own in zip(call.args, ranks, strict=True)
        ]
        return relax.Call(call.op, arguments, call.attrs)


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


def _constant_last(call: relax.Call) -> relax.Call:
    """The same values with a constant first operand last: layout conversion follows the first one."""
    first, second = call.args
    if not isinstance(first, tvm.ir.GenericConst) or isinstance(second, tvm.ir.GenericConst):
        return call
    if _rank(second) < max(_FEATURE_MAP, _rank(first)):
        return call
    if operator_of(call) in _COMMUTATIVE:
        return relax.Call(call.op, [second, first], call.attrs)
    return call


def _raised(constant: tvm.ir.GenericConst, own: int, rank: int) -> tvm.ir.GenericConst:
    """The constant with as many axes as its partner, if it has one element or its partner is a feature map."""
    shape = [int(extent) for extent in constant.ty.shape]
    if own < 0 or own == rank or not (_is_single(constant) or rank >= _FEATURE_MAP):
        return constant
    return _reshaped(constant, (*(1 for _ in range(rank - own)), *shape))


def _rank(expression: relax.Expr) -> int:
    return int(getattr(expression.ty, "ndim", -1))


def _is_single(constant: tvm.ir.GenericConst) -> bool:
    return all(int(extent) == 1 for extent in constant.ty.shape)


def _reshaped(constant: tvm.ir.GenericConst, shape: tuple[int, ...]) -> tvm.ir.GenericConst:
    return relax.const(value_of(constant).reshape(shape), str(constant.ty.dtype))
