"""Axes are counted from the front: some of the compiler's passes cannot count from the end."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.rewriting import operator_of, rewriting_pass

__all__ = ["CountAxesFromFront"]

_NAMES = ("axis", "axes")
_ONE_MORE = {"relax.stack": 1}
"""Operators whose axis is one of the result, which has so many more axes than an operand."""


def CountAxesFromFront() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that replaces each negative axis of an operator by the same one counted from the front."""
    return rewriting_pass("CountAxesFromFront", _CountAxesFromFront)


@mutator
class _CountAxesFromFront(PyExprMutator):  # type: ignore[misc]
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


def _counted(call: relax.Call, axes: object) -> object | None:
    """The axes counted from the front; None where they are already, or nothing is known of their number."""
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
