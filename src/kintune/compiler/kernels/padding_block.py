"""Reading a block that copies a tensor with a border of one value around it."""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.blocks import Loops, constant_shape, is_offset_of
from kintune.compiler.tir import called

__all__ = ["Padding", "padding_of"]

_MOST = 1 << 40


class Padding(NamedTuple):
    """The buffer that a block copies, and how many elements of `value` it puts before and after it along each axis.

    The value is None where there are none.
    """

    data: Any
    before: tuple[int, ...]
    after: tuple[int, ...]
    value: Any

    @property
    def is_any(self) -> bool:
        """Whether there is a border."""
        return any(self.before) or any(self.after)


def padding_of(nest: Loops) -> Padding | None:
    """What a block copies with a border around; None for any other block."""
    store = nest.block.body
    variables = [variable.var for variable in nest.block.iter_vars]
    same = len(store.indices) == len(variables) and all(
        a.same_as(b) for a, b in zip(store.indices, variables, strict=True)
    )
    if not same:  # nor is a sum, which has further variables
        return None
    inside, load, value = _guarded(store.value)
    if load is None:
        return None
    shape = constant_shape(load.source)
    if shape is None or len(shape) != len(variables) or load.source.dtype != store.buffer.dtype:
        return None
    if constant_shape(store.buffer) != nest.extents:
        return None
    offsets = [is_offset_of(index, (variable,)) for index, variable in zip(load.indices, variables, strict=True)]
    starts = tuple(-offset for offset in offsets if offset is not None)
    if len(starts) != len(variables) or min(starts) < 0:
        return None
    ends = tuple(start + extent for start, extent in zip(starts, shape, strict=True))
    if _bounds(inside, variables, nest.extents) != list(zip(starts, ends, strict=True)):
        return None
    after = tuple(whole - end for whole, end in zip(nest.extents, ends, strict=True))
    return Padding(load.source, starts, after, value)


def _guarded(value: Any) -> tuple[list[Any], Any, Any]:
    """The conditions and the load of a value that is the load where they hold, and the other value elsewhere.

    There are no conditions for a plain load.  The load is None for any other value.
    """
    if isinstance(value, tvm.ir.TensorLoad):
        return [], value, None
    if not called(value).endswith(".if_then_else"):
        return [], None, None
    inside, load, other = value.args
    return [inside], load if isinstance(load, tvm.ir.TensorLoad) else None, other


def _bounds(conditions: list[Any], variables: list[Any], extents: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """The ranges [from, to) of the variables in which all conditions hold; None where these are no such ranges."""
    bounds = [(0, extent) for extent in extents]
    pending = list(conditions)
    while pending:
        term = pending.pop()
        if isinstance(term, tvm.tirx.And):
            pending += [term.a, term.b]
            continue
        limit = _limit(term, variables)
        if limit is None:
            return None
        at, low, high = limit
        bounds[at] = (max(bounds[at][0], low), min(bounds[at][1], high))
    return bounds


def _limit(term: Any, variables: list[Any]) -> tuple[int, int, int] | None:
    """Which variable a comparison with a constant limits, and to which range [from, to)."""
    turned: dict[type[Any], Any] = {
        tvm.tirx.GE: lambda a, b: (b, a, 0),
        tvm.tirx.GT: lambda a, b: (b, a, 1),
        tvm.tirx.LE: lambda a, b: (a, b, 0),
        tvm.tirx.LT: lambda a, b: (a, b, 1),
    }
    if type(term) not in turned:
        return None
    low, high, strict = turned[type(term)](term.a, term.b)  # low <= high, or low < high
    for at, variable in enumerate(variables):
        above, below = is_offset_of(low, (variable,)), is_offset_of(high, (variable,))
        if above is not None and isinstance(high, tvm.tirx.IntImm):
            return at, -_MOST, int(high) - above + 1 - strict
        if below is not None and isinstance(low, tvm.tirx.IntImm):
            return at, int(low) - below + strict, _MOST
    return None
