"""Exchanges a 1x1 convolution with an average pooling after it, if nothing else reads the convolution.

The convolution works on each pixel separately, and the average on each channel separately.  Both are linear, so they
can be exchanged; then the convolution computes only as many pixels as there are averages.  The transitions of a
DenseNet have a 1x1 convolution before an average pooling.

A bias between the two is added to the averages, if they count only pixels: zeros around the map have no bias.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import tvm
from tvm import relax

from kintune.compiler.graph.pointwise import CHANNELS, ROWS, is_pointwise, pixels, pointwise
from kintune.compiler.graph.rewriting import Rewriter, emit_as, operator_of, pass_of, static_shape, value_of

__all__ = ["AverageBeforeConvolving"]

_LEAST_RATIO = 2
"""The least number of pixels of the convolution for each average."""


class _Averaged(NamedTuple):
    """A 1x1 convolution whose averages are taken, and the constant that is added to it before, if any."""

    convolution: relax.Call
    bias: Any = None


class _AverageBeforeConvolving(Rewriter):
    """A pass that exchanges averages and the 1x1 convolutions before them."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        found = self._averaged(binding.value)
        if found is not None:
            pool = binding.value
            data, filters = found.convolution.args
            averages = relax.Call(pool.op, [data, *pool.args[1:]], pool.attrs, pool.ty_args)
            averaged = emit_as(self.builder_, binding.var, self.visit_expr(averages))
            result = pointwise(averaged, value_of(filters))
            if found.bias is not None:
                result = relax.op.add(emit_as(self.builder_, binding.var, result), found.bias)
            binding = relax.VarBinding(binding.var, result)
        super().visit_var_binding_(binding)

    def _averaged(self, pool: Any) -> _Averaged | None:
        """What `pool` takes averages of; None if that is no 1x1 convolution, or others read it."""
        if not _averages_maps(pool):
            return None
        found = self._biased(pool) if _counts_only_pixels(pool) else None
        found = found or self._convolution(pool.args[0])
        return found if found and pixels(found.convolution) >= _LEAST_RATIO * max(pixels(pool), 1) else None

    def _convolution(self, operand: Any) -> _Averaged | None:
        value = self._alone(operand)
        return _Averaged(value) if is_pointwise(value) else None

    def _biased(self, pool: Any) -> _Averaged | None:
        total = self._alone(pool.args[0])
        if operator_of(total) != "relax.add":
            return None
        for convolved, bias in (total.args, reversed(total.args)):
            if _is_bias(bias, total) and static_shape(convolved) == static_shape(total):
                found = self._convolution(convolved)
                return found and found._replace(bias=bias)
        return None

    def _alone(self, operand: Any) -> Any:
        """The value of a variable that is read once; None for any other expression."""
        return self._bindings.value(operand) if self._bindings.is_inner(operand) else None


AverageBeforeConvolving = partial(pass_of, _AverageBeforeConvolving)


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


def _counts_only_pixels(pool: relax.Call) -> bool:
    """Whether each average is one of pixels alone: importers write pools so that padding counts."""
    a = pool.attrs
    return operator_of(pool) != "relax.nn.avg_pool2d" or not (any(map(int, a.padding)) or a.ceil_mode)


def _is_bias(value: Any, total: relax.Call) -> bool:
    """Whether this is a constant with one element for each channel of `total`, or one for all."""
    shape = static_shape(value) if isinstance(value, tvm.ir.GenericConst) else None
    whole = static_shape(total)
    if shape is None or whole is None:
        return False
    along = (1,) * (len(whole) - len(shape)) + shape
    return all(extent == 1 or axis == CHANNELS for axis, extent in enumerate(along))
