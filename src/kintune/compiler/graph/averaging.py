"""Exchanges a 1x1 convolution with an average pooling after it, if nothing else reads the convolution.

The convolution works on each pixel separately, and the average on each channel separately.  Both are linear, so they
can be exchanged; then the convolution computes only as many pixels as there are averages.  The transitions of a
DenseNet have a 1x1 convolution before an average pooling.
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
"""The least number of pixels of the convolution for each average."""


def AverageBeforeConvolving() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """A pass that exchanges averages and the 1x1 convolutions before them."""
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
        """The variable of the 1x1 convolution whose averages `pool` takes; None if there is none or others read it."""
        if not _averages_maps(pool):
            return None
        operand = pool.args[0]
        is_alone = isinstance(operand, relax.DataflowVar) and self._uses[operand] == 1
        if not is_alone or not is_pointwise(self._values.get(operand)):
            return None
        return operand if pixels(operand) >= _LEAST_RATIO * max(pixels(pool), 1) else None


def _averages_maps(call: Any) -> bool:
    """Whether a call averages over rows and columns of NCHW, not over channels, and keeps four axes."""
    name, shape = operator_of(call), static_shape(call) if isinstance(call, relax.Call) else None
    if shape is None or len(shape) != ROWS + 2:
        return False
    if name in ("relax.nn.avg_pool2d", "relax.nn.adaptive_avg_pool2d"):
        return str(call.attrs.layout) == "NCHW" and str(call.attrs.out_layout) == "NCHW"
    if name != "relax.mean" or call.attrs.axis is None:
        return False
    return bool(call.attrs.keepdims) and {int(axis) % len(shape) for axis in call.attrs.axis} <= {ROWS, ROWS + 1}
