"""Moves reshapes behind the element-wise operators that follow them.

Exporters flatten tokens for a matrix product and reshape its result before the bias is added.  Such a reshape separates
the product from its epilogue.  Behind the epilogue, it copies nothing, and product and epilogue become one kernel.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import tvm
from tvm import relax

from kintune.compiler.graph import permutations
from kintune.compiler.graph.grouped import GROUPED
from kintune.compiler.graph.layout_rules import BROADCAST, UNARY
from kintune.compiler.graph.rewriting import (
    CALL_KERNEL,
    RESHAPES,
    Rewriter,
    emit_as,
    operator_of,
    pass_of,
    static_shape,
    value_of,
)

__all__ = ["DelayReshapes"]

_SOURCES = frozenset({"relax.matmul", "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d"})
_UNARY = frozenset(f"relax.{name}" for name in UNARY)
_QUANTISING = frozenset({"relax.dequantize", "relax.quantize"})
_BROADCAST = frozenset(f"relax.{name}" for name in BROADCAST)

Shape = tuple[int, ...]


class _Delayed(NamedTuple):
    """A delayed reshape of `source`, from the shape `before` to the network's shape `after`."""

    source: relax.Var
    before: Shape
    after: Shape


class _DelayReshapes(Rewriter):
    """A pass that moves reshapes of the results of products and convolutions behind their element-wise successors."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._delayed: dict[relax.Var, _Delayed] = {}
        self._made: dict[relax.Var, relax.Var] = {}
        self._sources: set[relax.Var] = set()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        done = super().visit_dataflow_block_(block)
        for known in (self._delayed, self._made, self._sources):
            known.clear()
        return done

    def visit_dataflow_var_(self, variable: relax.DataflowVar) -> relax.Expr:
        if variable not in self._delayed:
            return super().visit_dataflow_var_(variable)
        if variable not in self._made:
            source, _, after = self._delayed[variable]
            same = static_shape(source) == after  # a reshape without effect would still separate kernels
            made = source if same else emit_as(self.builder_, variable, relax.op.reshape(source, after))
            self._made[variable] = made
        return self._made[variable]

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        delayed = self._delay(binding.var, binding.value) if self.builder_.current_block_is_dataflow() else None
        if delayed is not None:
            if isinstance(binding.var, relax.DataflowVar):
                self._delayed[binding.var] = delayed
                return
            binding = relax.VarBinding(binding.var, relax.op.reshape(delayed.source, delayed.after))
        super().visit_var_binding_(binding)
        if isinstance(binding.var, relax.DataflowVar) and self._is_source(binding.value):
            self._sources.add(binding.var)

    def _is_source(self, value: relax.Expr) -> bool:
        """Whether this is a product or a convolution, or computed from one element by element."""
        name = operator_of(value)
        if name in _UNARY or name in _BROADCAST:
            return any(argument in self._sources for argument in value.args if isinstance(argument, relax.Var))
        return name in _SOURCES or (name == CALL_KERNEL and str(value.args[0].name_hint).startswith(GROUPED))

    def _delay(self, variable: relax.Var, value: relax.Expr) -> _Delayed | None:
        after, name = static_shape(value) if isinstance(value, relax.Call) else None, operator_of(value)
        if after is None or 0 in after:
            return None
        if name in RESHAPES:
            return self._reshape(value.args[0], after)
        if name in _UNARY or name in _QUANTISING:
            known = self._delayed.get(value.args[0]) if isinstance(value.args[0], relax.Var) else None
            if known is not None and name in _QUANTISING and not _has_one_step(value, len(known.before)):
                return None
            return None if known is None else self._computed(variable, value, [known.source, *value.args[1:]], known)
        return self._combine(variable, value, after) if name in _BROADCAST else None

    def _reshape(self, data: relax.Expr, after: Shape) -> _Delayed | None:
        if not isinstance(data, relax.Var):
            return None
        if data in self._delayed:
            return self._delayed[data]._replace(after=after)
        before = static_shape(data)
        return _Delayed(self.visit_expr(data), before, after) if data in self._sources and before else None

    def _combine(self, variable: relax.Var, call: relax.Call, after: Shape) -> _Delayed | None:
        delayed = [self._delayed.get(argument) for argument in call.args if isinstance(argument, relax.Var)]
        known = next((one for one in delayed if one is not None and one.after == after), None)
        if known is None:
            return None
        plans = [self._operand(argument, known) for argument in call.args]
        if any(plan is None for plan in plans):
            return None
        operands = []
        for plan in plans:
            expression, shape = plan if plan is not None else (known.source, None)
            if shape is not None and isinstance(expression, tvm.ir.GenericConst):
                expression = relax.const(value_of(expression).reshape(shape), str(expression.ty.dtype))
            elif shape is not None:
                expression = self.builder_.emit(relax.op.reshape(self.visit_expr(expression), shape))
            operands.append(expression)
        return self._computed(variable, call, operands, known)

    def _operand(self, argument: relax.Expr, known: _Delayed) -> tuple[relax.Expr, Shape | None] | None:
        """The operand that is combined with the tensor before its reshape, and the shape to reshape it to, or None.

        None in place of both where the operand cannot be combined with it.
        """
        if isinstance(argument, relax.Var) and argument in self._delayed:
            other = self._delayed[argument]
            return (other.source, None) if (other.before, other.after) == (known.before, known.after) else None
        shape = static_shape(argument)
        if shape is None:
            return None
        if isinstance(argument, tvm.ir.GenericConst):
            if all(extent == 1 for extent in shape):
                return argument, () if len(shape) > len(known.before) else None  # its axes would be added to the result
            wanted = permutations.spread(known.before, known.after, shape)
            return None if wanted is None else (argument, wanted)
        return (argument, known.before) if shape == known.after else None

    def _computed(self, variable: relax.Var, call: relax.Call, operands: list[relax.Expr], known: _Delayed) -> _Delayed:
        source = emit_as(self.builder_, variable, relax.Call(call.op, operands, call.attrs, call.ty_args))
        return known._replace(source=source)


DelayReshapes = partial(pass_of, _DelayReshapes)


def _has_one_step(call: relax.Call, rank: int) -> bool:
    """Whether all elements have one scale and zero point, and a tensor of this rank has the axis of the call."""
    return all(static_shape(argument) == () for argument in call.args[1:]) and int(call.attrs.axis) < rank
