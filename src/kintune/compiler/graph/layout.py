"""Chooses the memory layout of each tensor of a network.

Convolutions get channels as the contiguous axis, which suits vector registers.  Later operators that work element by
element or along named axes are computed in the axis order of their operand.  A transpose only changes the recorded
order, so the transposes that an exporter wrote around each convolution vanish.  Before an operator without a rule in
`layout_rules`, operands are transposed to the network's own order.
"""

from __future__ import annotations

from functools import partial

import tvm
from tvm import relax

from kintune.compiler.graph.layout_rules import RULES
from kintune.compiler.graph.layout_views import LayoutResult, TensorView, TensorViews
from kintune.compiler.graph.rewriting import Rewriter, emit_as, operator_of, pass_of, shape_of, static_shape

__all__ = ["ChooseLayouts"]


class _ChooseLayouts(Rewriter):
    """A pass that converts convolutions, and later operators that can keep the layout, to channels last."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._tensors = TensorViews(self.builder_, self.visit_expr)

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        done = super().visit_dataflow_block_(block)
        self._tensors.forget()
        return done

    def visit_dataflow_var_(self, variable: relax.DataflowVar) -> relax.Expr:
        return self._tensors.plain(variable) if self._tensors.knows(variable) else super().visit_dataflow_var_(variable)

    def visit_var_(self, variable: relax.Var) -> relax.Expr:
        return self._tensors.plain(variable) if self._tensors.knows(variable) else super().visit_var_(variable)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        result = self._result(binding.value)
        if result is None or not self.builder_.current_block_is_dataflow():
            super().visit_var_binding_(binding)
            return
        shape = static_shape(binding.var)
        variable = result.expression
        if not isinstance(variable, relax.Var):
            variable = emit_as(self.builder_, binding.var, variable)
        if result.stored is not None:
            variable = emit_as(self.builder_, binding.var, relax.op.reshape(variable, result.stored))
        if shape is None:
            self._tensors.keep_group(binding.var, variable, result.order)
        else:
            self._tensors.keep(binding.var, TensorView(variable, shape, result.order, result.firm))
        if not isinstance(binding.var, relax.DataflowVar):
            plain = self._tensors.plain(binding.var)
            self.builder_.emit_normalized(relax.VarBinding(self.visit_var_def(binding.var), plain))

    def _result(self, value: relax.Expr) -> LayoutResult | None:
        if isinstance(value, relax.TupleGetItem):
            group = self._tensors.group(value.tuple_value)
            return LayoutResult(relax.TupleGetItem(group[0], value.index), group[1]) if group else None
        if isinstance(value, relax.Var):
            view = self._tensors.view(value)
            return LayoutResult(view.stored, view.order, view.firm) if view and self._tensors.knows(value) else None
        rule = RULES.get(operator_of(value))
        return None if rule is None or _is_dynamic(value) else rule(self._tensors, value)


ChooseLayouts = partial(pass_of, _ChooseLayouts)


def _is_dynamic(call: relax.Call) -> bool:
    """Whether the shape of a result is not static."""
    kinds = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
    return any(shape_of(kind) is None for kind in kinds)
