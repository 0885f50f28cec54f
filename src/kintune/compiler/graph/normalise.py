"""Passes that bring operators into a normal form that later passes expect.

Axes are counted from the front, since some of TVM's passes do not support negative ones.  One-element constants become
scalars: legalisation writes a scalar into the kernel as a literal, but a tensor of one element ([1], or [1, 1, 1, 1])
would be another operand that the kernel reads.
"""

from __future__ import annotations

from functools import partial

import tvm
from tvm import relax

from kintune.compiler.graph.rewriting import Rewriter, operator_of, pass_of, value_of

__all__ = ["CountAxesFromFront", "LowerScalars"]

_BINARY = frozenset(
    f"relax.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
)
_NAMES = ("axis", "axes")
_ONE_MORE = {"relax.stack": 1}
"""Operators whose axis is one of the result, and how many more axes the result has than an operand."""


class _CountAxesFromFront(Rewriter):
    """A pass that replaces each negative axis of an operator by the same one counted from the front."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        kind = type(call.attrs) if call.attrs is not None else None
        information = getattr(kind, "__tvm_ffi_type_info__", None)
        if kind is None or information is None or not operator_of(call):
            return call
        values = {field.name: getattr(call.attrs, field.name) for field in information.fields}
        counted = {name: axes for name in _NAMES if (axes := _counted(call, values.get(name))) is not None}
        if not counted:
            return call
        return relax.Call(call.op, call.args, kind(**{**values, **counted}), call.ty_args)


CountAxesFromFront = partial(pass_of, _CountAxesFromFront)


def _counted(call: relax.Call, axes: object) -> object | None:
    """The axes counted from the front; None where they already are, or the rank is not known."""
    several = not isinstance(axes, int)
    listed = [int(axis) for axis in axes] if several and axes is not None else [axes]  # type: ignore[attr-defined]
    if axes is None or all(isinstance(axis, int) and axis >= 0 for axis in listed):
        return None
    rank = _rank(call.args[0])
    if rank < 0:
        return None
    if operator_of(call) == "relax.expand_dims":
        rank += len(listed)
    rank += _ONE_MORE.get(operator_of(call), 0)
    front = [axis % rank if rank else 0 for axis in listed if isinstance(axis, int)]
    return front if several else front[0]


def _rank(operand: relax.Expr) -> int:
    if isinstance(operand.ty, relax.TupleType):
        return int(getattr(operand.ty.fields[0], "ndim", -1)) if operand.ty.fields else -1
    return int(getattr(operand.ty, "ndim", -1))


class _LowerScalars(Rewriter):
    """A pass that turns one-element constants into scalars where their partner keeps the result's rank."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if operator_of(call) not in _BINARY:
            return call
        ranks = [_rank(argument) for argument in call.args]
        arguments = list(call.args)
        for i, (argument, other) in enumerate(zip(call.args, reversed(ranks), strict=True)):
            if isinstance(argument, tvm.ir.GenericConst) and other >= ranks[i] > 0 and _is_single(argument):
                arguments[i] = relax.const(value_of(argument).reshape(()), str(argument.ty.dtype))
                return relax.Call(call.op, arguments, call.attrs)
        return call


LowerScalars = partial(pass_of, _LowerScalars)


def _is_single(constant: tvm.ir.GenericConst) -> bool:
    return all(int(extent) == 1 for extent in constant.ty.shape)
