"""Reading a block that copies a tensor with zeros around it."""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm

from kintune.compiler.programs.blocks import Nest, constant_shape, is_offset_of

__all__ = ["ZeroPadding", "zero_padding"]

_TYPE = "float32"
_MOST = 1 << 40


class ZeroPadding(NamedTuple):
    """The buffer that a block copies, and how many zeros it puts before it along each axis."""

    data: Any
    before: tuple[int, ...]


def zero_padding(nest: Nest) -> ZeroPadding | None:
    """What a block in fp32 copies with zeros around; None for any other block."""
    store = nest.block.body
    variables = [variable.var for variable in nest.block.iter_vars]
    same = len(store.indices) == len(variables) and all(
        a.same_as(b) for a, b in zip(store.indices, variables, strict=True)
    )
    if nest.block.init is not None or not same:
        return None
    inside, load = _guarded(store.value)
    if load is None:
        return None
    shape = constant_shape(load.source)
    if shape is None or len(shape) != len(variables) or str(load.source.dtype) != _TYPE:
        return None
    if constant_shape(store.buffer) != nest.extents:
        return None
    offsets = [is_offset_of(index, (variable,)) for index, variable in zip(load.indices, variables, strict=True)]
    starts = tuple(-offset for offset in offsets if offset is not None)
    if len(starts) != len(variables) or min(starts) < 0:
        return None
    bounds = _bounds(inside, variables, nest.extents)
    wanted = [(start, start + extent) for start, extent in zip(starts, shape, strict=True)]
    return ZeroPadding(load.source, starts) if bounds == wanted else None


def _guarded(value: Any) -> tuple[list[Any], Any]:
    """The conditions and the load of a value that is the load where they hold, else zero.

    There are no conditions for a plain load.  The load is None for any other value.
    """
    if isinstance(value, tvm.ir.TensorLoad):
        return [], value
    if not isinstance(value, tvm.ir.Call) or not str(getattr(value.op, "name", "")).endswith(".if_then_else"):
        return [], None
    inside, load, other = value.args
    is_zero = isinstance(other, tvm.tirx.FloatImm) and float(other.value) == 0.0
    return [inside], load if is_zero and isinstance(load, tvm.ir.TensorLoad) else None


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
