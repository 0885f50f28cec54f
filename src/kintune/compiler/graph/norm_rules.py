"""Lowering rules for norms and softmax of floating-point numbers.

A norm is two sums and one element-wise block.  The mean comes first, then the mean square of the differences to it,
which stays accurate where the mean is far from zero.  TVM's own rules compute group norms with more passes, and layer
norms from the mean square itself.  All blocks loop over the same rows, so that a row is read from memory once (see
`kintune.compiler.programs.rows`).

Where channels are the last axis, the statistics are a kernel of their own (`statistics_kernel`).  The rest of the norm
is then element-wise, so that it is fused with its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, te, tirx, topi

from kintune.compiler.graph.rewriting import operator_of, static_shape, value_of
from kintune.compiler.kernels.loops import index
from kintune.compiler.programs.statistics import statistics_kernel
from kintune.runtime.target import capabilities
from kintune.runtime.tvm_state import OperatorAttribute

__all__ = ["NORM", "norm_rules"]

NORM = "kintune.norm"
"""The attribute of a PrimFunc that is a norm or a softmax and nothing else."""

_LEGALISE = "FLegalize"
_TYPES = frozenset({"float32", "float64"})


class _Place(NamedTuple):
    """The `axes` over which a tensor of this `shape` is normalised; with `groups`, also over the channels of a group.

    `channel` is the axis of the scale and offset; -1 where they have the normalised axes.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    channel: int = -1
    groups: int = 0

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes along which statistics differ, that of the channels included."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    @property
    def width(self) -> int:
        """The channels of a group; 1 without groups."""
        return self.shape[self.channel] // self.groups if self.groups else 1

    @property
    def statistics(self) -> tuple[int, ...]:
        """The shape of the statistics."""
        return tuple(self.groups if self.groups and axis == self.channel else self.shape[axis] for axis in self.kept)

    @property
    def together(self) -> int:
        """The number of elements that are normalised by the same statistics."""
        return self.width * math.prod(self.shape[axis] for axis in self.axes)

    def reduced(self) -> list[Any]:
        """New axes of a reduction: the channels within a group, then the others."""
        channels = [te.reduce_axis((0, index(self.width)), "channel")] if self.groups else []
        return channels + [te.reduce_axis((0, index(self.shape[axis])), f"k{axis}") for axis in self.axes]

    def element(self, kept: Sequence[Any], along: Sequence[Any]) -> list[Any]:
        """The indices of an element from those of its statistics, `kept`, and those of the reduction, `along`."""
        rest = iter(along)
        within = next(rest) if self.groups else None
        of = dict(zip(self.kept, kept, strict=True)) | dict(zip(self.axes, rest, strict=True))
        if within is not None:
            of[self.channel] = of[self.channel] * index(self.width) + within
        return [of[axis] for axis in range(len(self.shape))]

    def of(self, indices: Sequence[Any]) -> list[Any]:
        """The indices of the statistics of an element."""
        return [
            tirx.floordiv(indices[axis], index(self.width)) if self.groups and axis == self.channel else indices[axis]
            for axis in self.kept
        ]

    def parameter(self, indices: Sequence[Any]) -> list[Any]:
        """The indices of the scale and offset of an element."""
        return [indices[self.channel]] if self.channel >= 0 else [indices[axis] for axis in self.axes]


def norm_rules() -> Iterator[OperatorAttribute]:
    """These lowering rules for norms and softmax."""
    for name in ("layer_norm", "rms_norm", "instance_norm", "group_norm"):
        yield _attribute(f"relax.nn.{name}", _norm)
    yield _attribute("relax.nn.softmax", _softmax)


def _attribute(
    name: str, rule: Callable[[relax.BlockBuilder, relax.Call, tuple[int, ...]], relax.Expr | None]
) -> OperatorAttribute:
    usual = tvm.ir.Op.get(name).get_attr(_LEGALISE)

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape = static_shape(call.args[0])
        target = tvm.target.Target.current(allow_none=True)
        known = shape is not None and 0 not in shape and str(call.args[0].ty.dtype) in _TYPES
        known = known and (target is None or capabilities(target).llvm_kernels)
        made = rule(builder, call, shape) if known and shape is not None else None
        return usual(builder, call) if made is None else made

    return OperatorAttribute(name, _LEGALISE, legalise)


def _norm(builder: relax.BlockBuilder, call: relax.Call, shape: tuple[int, ...]) -> relax.Expr | None:
    data, *parameters = call.args
    name = operator_of(call).rpartition(".")[2]
    axes = tuple(sorted(int(axis) % len(shape) for axis in call.attrs.axes))
    channel = -1 if name in ("layer_norm", "rms_norm") else int(call.attrs.channel_axis) % len(shape)
    place = _Place(shape, axes, channel, int(call.attrs.num_groups) if name == "group_norm" else 0)
    if channel in axes or list(axes) != [int(a) % len(shape) for a in call.attrs.axes]:
        return None
    if not place.kept:  # a row: TVM's own rules have no norms of float64
        row = builder.emit(relax.op.reshape(data, (1, *shape)))
        along, epsilon = [axis + 1 for axis in axes], float(call.attrs.epsilon)
        normed = getattr(relax.op.nn, name)(row, *parameters, along, epsilon=epsilon)
        made = _norm(builder, builder.normalize(normed), (1, *shape))
        return None if made is None else relax.op.reshape(builder.emit(made), shape)
    epsilon, centred = float(call.attrs.epsilon), name != "rms_norm"
    used = [None if _is_neutral(each, at) else each for at, each in enumerate(parameters)]
    tensors = [each for each in used if each is not None]
    has = [each is not None for each in (*used, None)[:2]]
    if centred and _lies_last(place):
        statistics = _statistics(builder, data, place, epsilon)

        def scaled(x: te.Tensor, mean: te.Tensor, inverse: te.Tensor, *more: te.Tensor) -> te.Tensor:
            def at(i: Sequence[Any], tensor: te.Tensor) -> Any:
                return tensor(*(i[axis] for axis in range(len(shape)) if axis not in axes))

            def compute(*i: Any) -> Any:
                return _affine((x(*i) - at(i, mean)) * at(i, inverse), place, has, more, i)

            return te.compute(x.shape, compute, name="norm", tag=topi.tag.BROADCAST)

        return builder.call_te(scaled, data, *statistics, *tensors, primfunc_name_hint=name)

    def whole(x: te.Tensor, *more: te.Tensor) -> te.Tensor:
        return _whole(x, more, place, epsilon, centred, has)

    return builder.call_te(whole, data, *tensors, primfunc_name_hint=name, primfunc_attrs={NORM: 1})


def _whole(
    x: te.Tensor, more: Sequence[te.Tensor], place: _Place, epsilon: float, centred: bool, has: Sequence[bool]
) -> te.Tensor:
    """The norm: two sums (one if it is not centred), and the element-wise block that uses them."""
    portion = tirx.const(1.0 / place.together, x.dtype)
    kept = [index(extent) for extent in place.statistics]
    mean: te.Tensor | None = None
    if centred:
        along = place.reduced()
        total = te.compute(kept, lambda *s: te.sum(x(*place.element(s, along)), axis=along), name="norm_sum")
        mean = te.compute(kept, lambda *s: total(*s) * portion, name="norm_mean")

    def difference(indices: Sequence[Any], statistics: Sequence[Any]) -> Any:
        return x(*indices) if mean is None else x(*indices) - mean(*statistics)

    across = place.reduced()

    def square(*s: Any) -> Any:
        moved = difference(place.element(s, across), s)
        return te.sum(moved * moved, axis=across)

    squares = te.compute(kept, square, name="norm_squares")
    inverse = te.compute(
        kept,
        lambda *s: tirx.const(1.0, x.dtype) / tirx.sqrt(squares(*s) * portion + tirx.const(epsilon, x.dtype)),
        name="norm_inverse",
    )

    def compute(*i: Any) -> Any:
        return _affine(difference(i, place.of(i)) * inverse(*place.of(i)), place, has, more, i)

    return te.compute(x.shape, compute, name="norm")


def _affine(normed: Any, place: _Place, has: Sequence[bool], more: Sequence[te.Tensor], indices: Sequence[Any]) -> Any:
    """The normalised value times the scale plus the offset, as far as `has` says that they exist."""
    rest = iter(more)
    if has[0]:
        normed = normed * next(rest)(*place.parameter(indices))
    return normed + next(rest)(*place.parameter(indices)) if has[1] else normed


def _is_neutral(parameter: relax.Expr, at: int) -> bool:
    """Whether parameter `at` is a constant without effect: a scale (0) of ones, or an offset (1) of zeros."""
    return isinstance(parameter, tvm.ir.GenericConst) and bool(np.all(value_of(parameter) == (0.0 if at else 1.0)))


def _lies_last(place: _Place) -> bool:
    """Whether the normalised axes are adjacent, and behind them is only that of the channels, with several of them."""
    last = len(place.shape) - 1
    if place.channel not in (-1, last) or not place.axes or place.shape[last] == 1:
        return False
    return last not in place.axes and place.axes == tuple(range(place.axes[0], last))


def _statistics(builder: relax.BlockBuilder, data: relax.Expr, place: _Place, epsilon: float) -> list[relax.Expr]:
    """The mean and the inverse deviation, [axes in front of the normalised ones..., channels]."""
    first = place.axes[0]
    channels, dtype = place.shape[-1], str(data.ty.dtype)
    kernel = statistics_kernel(place.shape, first, place.groups or channels, epsilon, dtype)
    variable = builder.add_func(kernel, "norm_statistics")
    kind = relax.TensorType((*place.shape[:first], channels), dtype)
    pair = builder.emit(relax.call_tir(variable, [data], [kind, kind]))
    return [builder.emit(relax.TupleGetItem(pair, at)) for at in (0, 1)]


def _softmax(builder: relax.BlockBuilder, call: relax.Call, shape: tuple[int, ...]) -> relax.Expr | None:
    """Softmax like TVM's own rule, but with one division for each row instead of each element."""
    axis = int(call.attrs.axis) % len(shape)
    kept = [index(extent) for place, extent in enumerate(shape) if place != axis]
    if not kept:
        return None

    def softmax(x: te.Tensor) -> te.Tensor:
        k, j = (te.reduce_axis((0, x.shape[axis]), name) for name in ("k", "j"))

        def whole(row: Sequence[Any], at: Any) -> list[Any]:
            return [*row[:axis], at, *row[axis:]]

        def row_of(i: Sequence[Any]) -> list[Any]:
            return [*i[:axis], *i[axis + 1 :]]

        largest = te.compute(kept, lambda *r: te.max(x(*whole(r, k)), axis=k), name="T_softmax_maxelem")
        power = te.compute(x.shape, lambda *i: tirx.exp(x(*i) - largest(*row_of(i))), name="T_softmax_exp")
        total = te.compute(kept, lambda *r: te.sum(power(*whole(r, j)), axis=j), name="T_softmax_expsum")
        inverse = te.compute(kept, lambda *r: tirx.const(1.0, x.dtype) / total(*r), name="T_softmax_inverse")
        return te.compute(x.shape, lambda *i: power(*i) * inverse(*row_of(i)), name="T_softmax_norm")

    return builder.call_te(softmax, call.args[0], primfunc_name_hint="softmax", primfunc_attrs={NORM: 1})
