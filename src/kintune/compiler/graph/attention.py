"""A pass that makes one function of attention, for which a program of Kintune's own then writes one kernel.

As single operators, attention writes its scores (heads x queries x keys) to memory and reads them several times.  The
function holds the plain computation; its attribute `kintune.pattern` describes it.  See `attention_match` for what is
recognised, and `programs.attention` for the kernel.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import tvm
from tvm import relax

from kintune.compiler.graph.attention_match import Attention, Operand, find_attention
from kintune.compiler.graph.rewriting import Rewriter, emit_as, pass_of, static_shape, value_of
from kintune.compiler.programs.attention_pattern import NAME, AttentionPattern
from kintune.compiler.programs.attention_reference import reference

__all__ = ["FuseAttention", "is_worth_fusing"]


def is_worth_fusing(pattern: AttentionPattern) -> bool:
    """Whether one kernel is faster than several: always, unless there is only one key.

    It was faster in all cases that were measured, from 4 heads of 8 tokens to 8 heads of 1500, and for one query of 512
    keys: scores are not written to memory, three fewer kernels are started, and no operand is transposed.
    """
    return pattern.columns > 1


class _FuseAttention(Rewriter):
    """A pass that replaces attention in Relax functions by calls of functions made for it."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._found: dict[relax.Var, Attention] = {}

    def visit_function_(self, function: relax.Function) -> relax.Function:
        self._found = {each.end: each for each in find_attention(function) if is_worth_fusing(each.pattern)}
        return super().visit_function_(function)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        attention = self._found.get(binding.var)
        if attention is None:
            super().visit_var_binding_(binding)
            return
        made = emit_as(self.builder_, attention.product, self._call(attention))
        if isinstance(binding.var, relax.DataflowVar):
            self.set_var_remap(binding.var, made)
        else:
            self.builder_.emit_normalized(relax.VarBinding(self.visit_var_def(binding.var), made))

    def _call(self, attention: Attention) -> relax.Call:
        arguments = [self._operand(operand) for operand in attention.operands]
        kinds = [(static_shape(argument) or (), str(argument.ty.dtype)) for argument in arguments]
        shape = static_shape(attention.end) or ()
        function = self.builder_.add_func(reference(attention.pattern, kinds, shape), NAME)
        return relax.call_tir(function, arguments, relax.TensorType(shape, "float32"))

    def _operand(self, operand: Operand) -> relax.Expr:
        expression = operand.expression
        if isinstance(expression, tvm.ir.GenericConst) and (operand.transposed or operand.negated):
            values = value_of(expression)
            values = values.swapaxes(-1, -2) if operand.transposed else values
            values = -values if operand.negated else values
            return relax.const(np.ascontiguousarray(values), str(expression.ty.dtype))
        found = self.visit_expr(expression)
        if operand.negated:
            found = self.builder_.emit(relax.op.negative(found))
        if not operand.transposed:
            return found
        rank = int(expression.ty.ndim)
        order = [*range(rank - 2), rank - 1, rank - 2]
        return self.builder_.emit(relax.op.permute_dims(found, order))


FuseAttention = partial(pass_of, _FuseAttention)
