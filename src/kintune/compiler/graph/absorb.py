"""Folds scales and offsets of channels after a convolution, and zero padding before it, into the convolution.

Any chain of operators that multiplies each channel by a number and adds another, such as a batch norm of a .pt2 file or
a learnable scale, is folded into the weights and one bias.  A zero padding becomes the convolution's own padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.compiler.graph.rewriting import (
    Bindings,
    Rewriter,
    along,
    convolution_like,
    operator_of,
    pass_of,
    static_shape,
    value_of,
)

__all__ = ["AbsorbIntoConvolutions"]

_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
_TYPE = "float32"
_LARGEST = 1e18
"""Larger scales and offsets, and scales below its inverse, are not folded: weights or sums could overflow float32."""

_Numbers = NDArray[Any]


class _Affine(NamedTuple):
    """An affine map of a convolution's result: channels times `scale` plus `offset`, in double precision."""

    scale: _Numbers
    offset: _Numbers


class _Chain(NamedTuple):
    """Scales and offsets after a convolution; `end` is the variable of the last one, `between` those of the others."""

    convolution: relax.Var
    end: relax.Var
    affine: _Affine
    between: tuple[relax.Var, ...]


class _AbsorbIntoConvolutions(Rewriter):
    """A pass that folds scales, offsets and paddings with zeros into convolutions with constant weights."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._starts: dict[relax.Var, _Chain] = {}
        self._ends: dict[relax.Var, _Chain] = {}
        self._dropped: set[relax.Var] = set()

    def learn(self, block: relax.DataflowBlock) -> None:
        """Find the chains of the block."""
        super().learn(block)
        for chain in _chains(block, self._bindings):
            self._starts[chain.convolution] = self._ends[chain.end] = chain
            self._dropped.update(chain.between)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        if binding.var in self._dropped:
            return
        if binding.var in self._ends:
            binding = relax.VarBinding(binding.var, self._offset(self._ends[binding.var]))
        elif operator_of(binding.value) in _CONVOLUTIONS:
            binding = relax.VarBinding(binding.var, self._convolution(binding.var, binding.value))
        super().visit_var_binding_(binding)

    def _offset(self, chain: _Chain) -> relax.Expr:
        axes = str(self._bindings.value(chain.convolution).attrs.out_layout)
        offset = along(chain.affine.offset.astype(_TYPE), axes.index("C"), len(axes))
        return relax.op.add(chain.convolution, relax.const(offset, _TYPE))

    def _convolution(self, variable: relax.Var, call: relax.Call) -> relax.Call:
        data, weight = call.args
        padding = [int(width) for width in call.attrs.padding]
        widths = self._zeros_around(data, str(call.attrs.data_layout))
        if widths is not None:
            data = self._bindings.value(data).args[0]
            padding = [width + more for width, more in zip(padding, widths, strict=True)]
        if variable in self._starts:
            tensor = self._bindings.constant(weight)
            axes = str(call.attrs.kernel_layout)
            scale = along(self._starts[variable].affine.scale, axes.index("O"), len(axes))
            weight = relax.const((value_of(tensor) * scale).astype(_TYPE), _TYPE)
        elif widths is None:
            return call
        return convolution_like(call, data, weight, padding)

    def _zeros_around(self, data: relax.Expr, axes: str) -> list[int] | None:
        """The widths of a zero padding of spatial axes: those in front of each axis, then those behind; else None."""
        call = self._bindings.value(data)
        if operator_of(call) != "relax.nn.pad" or str(call.attrs.pad_mode) != "constant" or call.attrs.pad_value != 0:
            return None
        widths = [int(width) for width in call.attrs.pad_width]
        before, after = (dict(zip(axes, widths[side::2], strict=True)) for side in (0, 1))
        if min(widths) < 0 or any(side.pop(axis) for side in (before, after) for axis in "NC"):
            return None
        return [*before.values(), *after.values()]


AbsorbIntoConvolutions = partial(pass_of, _AbsorbIntoConvolutions)


def _chains(block: relax.DataflowBlock, bindings: Bindings) -> Iterator[_Chain]:
    """The longest chains of two operators or more, or of one that multiplies, after each convolution of a block."""
    for binding in block.bindings:
        if not _can_be_scaled(binding.value, bindings):
            continue
        attributes = binding.value.attrs
        channels = int(binding.value.args[1].ty.shape[str(attributes.kernel_layout).index("O")])
        axis = str(attributes.out_layout).index("C")
        affine, end, between = _Affine(np.ones(channels), np.zeros(channels)), binding.var, []
        multiplied = False
        while bindings.is_inner(end):
            (reader,) = bindings.readers(end)
            step = _step(bindings.value(reader), end, axis, affine, bindings)
            if step is None:
                break
            multiplied |= not np.array_equal(step.scale, affine.scale)
            between.append(end)
            affine, end = step, reader
        if multiplied or len(between) > 1:
            yield _Chain(binding.var, end, affine, tuple(between[1:]))


def _can_be_scaled(value: relax.Expr, bindings: Bindings) -> bool:
    if operator_of(value) not in _CONVOLUTIONS or static_shape(value) is None:
        return False
    weight = bindings.constant(value.args[1])
    return weight is not None and str(weight.ty.dtype) == _TYPE == str(value.ty.dtype)


def _step(value: Any, variable: relax.Var, axis: int, affine: _Affine, bindings: Bindings) -> _Affine | None:
    """The scale and offset after one more operator; None unless it scales each channel or adds a constant to it."""
    name = operator_of(value)
    if name not in _STEPS or static_shape(value) != static_shape(variable):
        return None
    first = isinstance(value.args[0], relax.Var) and value.args[0].same_as(variable)
    constant = bindings.constant(value.args[1 if first else 0])
    if constant is None or str(constant.ty.dtype) != _TYPE or (name == "relax.divide" and not first):
        return None
    numbers = _by_channel(value_of(constant), axis, int(value.ty.ndim), len(affine.scale))
    if numbers is None:
        return None
    with np.errstate(all="ignore"):
        after = _STEPS[name](affine, numbers, first)
    scale, offset = abs(after.scale), abs(after.offset)
    usual = (scale == 0) | ((scale >= 1 / _LARGEST) & (scale <= _LARGEST))
    return after if (usual & (offset <= _LARGEST)).all() else None


def _by_channel(constant: _Numbers, channel: int, rank: int, channels: int) -> _Numbers | None:
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if len(shape) != rank or any(extent != 1 for axis, extent in enumerate(shape) if axis != channel):
        return None
    return np.broadcast_to(constant.astype(np.float64).reshape(-1), (channels,))


_STEPS: dict[str, Callable[[_Affine, _Numbers, bool], _Affine]] = {
    "relax.add": lambda a, c, _first: _Affine(a.scale, a.offset + c),
    "relax.divide": lambda a, c, _first: _Affine(a.scale / c, a.offset / c),
    "relax.multiply": lambda a, c, _first: _Affine(a.scale * c, a.offset * c),
    "relax.subtract": lambda a, c, first: _Affine(a.scale, a.offset - c) if first else _Affine(-a.scale, c - a.offset),
}
