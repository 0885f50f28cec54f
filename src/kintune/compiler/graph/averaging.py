"""Averages maps before they are convolved, where only averages of a convolution of 1x1 are read.

Such a convolution computes each pixel alone, and averages are taken of each channel alone.  Both are linear, so they
can be exchanged, and the convolution then computes as many pixels as there are averages.  In the transitions of a
DenseNet they stand in the other order.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.pointwise import ROWS, is_pointwise, pixels, pointwise
from kintune.compiler.graph.rewriting import (
    emit_as,
    operator_of,
    rewriting_pass,
    static_shape,
    value_of,
    variables_in,
)

__all__ = ["AverageBeforeConvolving"]

_LEAST_RATIO = 2
"""How many pixels there are at least for each average."""


def AverageBeforeConvolving() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that exchanges averages and the convolutions of 1x1 before them."""
    return rewriting_pass("AverageBeforeConvolving", _Exchange)


@mutator
class _Exchange(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._values: dict[relax.Var, Any] = {}
        self._uses: Counter[relax.Var] = Counter()

    def visit_dataflow_block_(self, block: relax.DataflowBlock) -> relax.BindingBlock:
        for binding in block.bindings:
            self._values[binding.var] = binding.value
            self._uses.update(variables_in(binding.value))
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        convolution = self._convolution(binding.value)
        if convolution is not None:
            pool = binding.value
            data, filters = self._values[convolution].args
            averages = relax.Call(pool.op, [data, *pool.args[1:]], pool.attrs, pool.ty_args)
            averaged = emit_as(self.builder_, binding.var, self.visit_expr(averages))
            binding = relax.VarBinding(binding.var, pointwise(averaged, value_of(filters)))
        super().visit_var_binding_(binding)

    def _convolution(self, pool: Any) -> relax.Var | None:
        """The convolution of which averages are taken; None where it is none, or is read elsewhere."""
        if not _averages_maps(pool):
            return None
        operand = pool.args[0]
        is_alone = isinstance(operand, relax.DataflowVar) and self._uses[operand] == 1
        if not is_alone or not is_pointwise(self._values.get(operand)):
            return None
        return operand if pixels(operand) >= _LEAST_RATIO * max(pixels(pool), 1) else None


def _averages_maps(call: Any) -> bool:
    """Whether a call takes averages along rows and columns, each of one channel, and keeps four axes."""
    name, shape = operator_of(call), static_shape(call) if isinstance(call, relax.Call) else None
    if shape is None or len(shape) != ROWS + 2:
        return False
    if name in ("relax.nn.avg_pool2d", "relax.nn.adaptive_avg_pool2d"):
        return str(call.attrs.layout) == "NCHW" and str(call.attrs.out_layout) == "NCHW"
    if name != "relax.mean" or call.attrs.axis is None:
        return False
    return bool(call.attrs.keepdims) and {int(axis) % len(shape) for axis in call.attrs.axis} <= {ROWS, ROWS + 1}
