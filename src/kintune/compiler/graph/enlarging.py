"""Exchanges the enlargement of a map with a 1x1 convolution after it.

The convolution works on each pixel separately, and the enlargement on each channel separately.  Both are linear, so
they can be exchanged; then the convolution computes only the pixels of the small map.

Networks that combine maps of several sizes concatenate them first.  The convolution's sum over the channels is then
split: the filters are cut like the concatenation.  Each enlarged map is convolved before it is enlarged, the others are
convolved together, and the results are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.pointwise import CHANNELS, ROWS, is_pointwise, pixels, pointwise
from kintune.compiler.graph.rewriting import (
    CALL_KERNEL,
    Rewriter,
    emit_as,
    operator_of,
    pass_of,
    shape_of,
    static_shape,
    value_of,
)
from kintune.models.interpolation import Interpolation, interpolated

__all__ = ["ConvolveBeforeEnlarging"]

_LEAST_RATIO = 2
"""The least ratio of the pixels of an enlarged map to those before."""

_PRODUCTS_PER_NUMBER = 32
"""Multiplications that a processor does in the time in which it writes one number to memory and reads it."""


class _Enlargement(NamedTuple):
    """A call that enlarges a map along one axis; `variable` is bound to it."""

    variable: relax.Var
    call: relax.Call


class _Part(NamedTuple):
    """A part of the channels that a convolution reads: from `first` on, `channels` of them.

    They are `source` after the enlargements `steps`, in their order.
    """

    source: relax.Expr
    first: int
    channels: int
    steps: tuple[_Enlargement, ...]


class _ConvolveBeforeEnlarging(Rewriter):
    """A pass that exchanges enlargements and the 1x1 convolutions that follow them."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._parts: dict[relax.Var, list[_Part]] = {}

    def learn(self, block: relax.DataflowBlock) -> None:
        """Find the convolutions of the block that should be exchanged with enlargements, and the parts they read."""
        super().learn(block)
        found = ((each.var, each.value) for each in block.bindings if is_pointwise(each.value))
        candidates = {variable: parts for variable, value in found if (parts := self._worth_exchanging(value))}
        for variable, parts in candidates.items():
            if all(reader in candidates for reader in self._bindings.readers(self._bindings.value(variable).args[0])):
                self._parts[variable] = parts

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        parts = self._parts.get(binding.var)
        if parts is not None:
            binding = relax.VarBinding(binding.var, self._sum(binding, parts))
        super().visit_var_binding_(binding)

    def _sum(self, binding: relax.VarBinding, parts: Sequence[_Part]) -> relax.Expr:
        """The sum of the parts' convolutions, whose last operator is not bound yet.

        Enlarged parts are summed first, by one kernel; the convolution of the others adds this sum in its epilogue.
        """
        call, variable = binding.value, binding.var
        filters = value_of(call.args[1])
        total: relax.Expr | None = None
        for part in parts:
            if part.steps:
                term = self._enlarged(part, pointwise(part.source, _of(part, filters)), variable)
                total = term if total is None else emit_as(self.builder_, variable, relax.op.add(total, term))
        if others := [part for part in parts if not part.steps]:
            sources = [part.source for part in others]
            joined = relax.op.concat(sources, CHANNELS) if len(sources) > 1 else sources[0]
            kept = np.concatenate([_of(part, filters) for part in others], axis=CHANNELS)
            convolved = emit_as(self.builder_, variable, self.visit_expr(pointwise(joined, kept)))
            total = relax.op.add(convolved, total)
        return total

    def _enlarged(self, part: _Part, convolved: relax.Expr, variable: relax.Var) -> relax.Expr:
        data: relax.Expr = emit_as(self.builder_, variable, self.visit_expr(convolved))
        for step in part.steps:
            data = emit_as(self.builder_, step.variable, self._repeated(step.call, data))
        return data

    def _repeated(self, call: relax.Call, data: relax.Expr) -> relax.Expr:
        """The enlargement of another tensor with as many pixels."""
        if operator_of(call) == "relax.repeat":
            return relax.op.repeat(data, int(call.attrs.repeats), int(call.attrs.axis))
        found = Interpolation.of(self._module[call.args[0]])
        assert found is not None
        shape = shape_of(call.ty_args[0])
        assert shape is not None
        return interpolated(self.builder_, data, found, shape[found.axis], list(call.args[1].fields)[1:])

    def _worth_exchanging(self, call: relax.Call) -> list[_Part] | None:
        data = call.args[0]
        if not isinstance(data, relax.DataflowVar):
            return None
        value = self._bindings.value(data)
        joined = list(value.args[0].fields) if _is_concatenation(value) else [data]
        alone = self._bindings.is_inner(data)
        parts: list[_Part] = []
        first = 0
        for each in joined:
            shape = static_shape(each)
            if shape is None:
                return None
            readers_matter = each is not data or alone
            source, steps = self._before_enlarging(each) if readers_matter else (each, ())
            parts.append(_Part(source, first, shape[CHANNELS], steps))
            first += shape[CHANNELS]
        return parts if self._pays(call, parts) else None

    def _before_enlarging(self, data: relax.Expr) -> tuple[relax.Expr, tuple[_Enlargement, ...]]:
        """The tensor before enlargement and the steps; `data` and no steps if it is not enlarged enough."""
        source, steps = data, []
        while self._bindings.is_inner(source):
            call = self._bindings.value(source)
            enlarged = self._enlarges(call)
            if enlarged is None:
                break
            steps.append(_Enlargement(source, call))
            source = enlarged
        if not steps or pixels(data) < _LEAST_RATIO * pixels(source):
            return data, ()
        return source, tuple(reversed(steps))

    def _enlarges(self, call: Any) -> relax.Expr | None:
        """The operand of a call that enlarges along rows or columns; None for any other call."""
        if operator_of(call) == "relax.repeat":
            axis = call.attrs.axis
            return call.args[0] if axis is not None and int(axis) >= ROWS else None
        if operator_of(call) != CALL_KERNEL or not isinstance(call.args[1], relax.Tuple):
            return None
        found = Interpolation.of(self._module[call.args[0]])
        return call.args[1].fields[0] if found is not None and found.axis >= ROWS else None

    def _pays(self, call: relax.Call, parts: Sequence[_Part]) -> bool:
        """Whether the multiplications that are saved outweigh the numbers that are additionally written and read."""
        enlarged = [part for part in parts if part.steps]
        if not enlarged:
            return False
        whole = pixels(call)
        filters = (static_shape(call.args[1]) or (0,))[0]
        saved = sum(part.channels * (1 - pixels(part.source) / whole) for part in enlarged) * filters
        moved = len(enlarged) * filters - sum(part.channels for part in enlarged)
        return saved >= _PRODUCTS_PER_NUMBER * moved


ConvolveBeforeEnlarging = partial(pass_of, _ConvolveBeforeEnlarging)


def _is_concatenation(value: Any) -> bool:
    if operator_of(value) != "relax.concat" or value.attrs.axis is None or not isinstance(value.args[0], relax.Tuple):
        return False
    shape = static_shape(value)
    return shape is not None and int(value.attrs.axis) % len(shape) == CHANNELS


def _of(part: _Part, filters: NDArray[Any]) -> NDArray[Any]:
    """The filters' weights for the channels of a part."""
    return filters[:, part.first : part.first + part.channels]
