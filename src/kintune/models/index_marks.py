"""Marks on indices: converters note the bounds of an index as a call, which `index_guard` replaces later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

__all__ = ["Mark", "mark_index", "read_mark"]


_NAME = "kintune.index"


class Mark(NamedTuple):
    """The bounds of an index.

    With one entry in `sizes`, each value indexes an axis of `sizes[0]` entries.  With several, the last dimension of
    the index has one value for each axis.  `axis` is the first of these axes.  Where `negative`, values below 0 count
    from the end.  An index that is not `checked` may be out of range, since the value read with it is not used: it is
    in a branch of a condition.
    """

    index: Any
    sizes: tuple[int, ...]
    axis: int
    negative: bool = True
    checked: bool = True

    @property
    def least(self) -> tuple[int, ...]:
        """The least valid index of each axis."""
        return tuple(-size if self.negative else 0 for size in self.sizes)


def mark_index(
    builder: relax.BlockBuilder,
    index: Any,
    sizes: Sequence[int],
    axis: int,
    *,
    negative: bool = True,
    checked: bool = True,
    name: str = "",
) -> Any:
    """Returns `index` counted from the start: a constant at once, another one as a call that `index_guard` replaces.

    `name` is the name hint of the variable that holds the call.  See `Mark` for the other arguments.

    Raises:
        ValueError: when an axis to be indexed has no elements, or a constant index is out of range.
    """
    shape = tuple(int(size) for size in index.ty.shape.values)
    if 0 in shape:
        return index
    if 0 in sizes:
        raise ValueError("it reads from an axis without elements")
    dtype = str(index.ty.dtype)
    wide = dtype if max(sizes) <= np.iinfo(dtype).max else "int64"
    if isinstance(index, tvm.ir.GenericConst):
        values = index.value.numpy().astype(wide)
        lowest = -np.asarray(sizes) if negative else np.zeros(len(sizes), np.int64)
        outside = (values < lowest) | (values >= np.asarray(sizes))
        if outside.any() and checked:
            place = tuple(np.argwhere(np.broadcast_to(outside, values.shape))[0]) if values.ndim else ()
            offset = int(place[-1]) if len(sizes) > 1 else 0
            raise ValueError(
                f"index {int(values[place])} is outside of axis {axis + offset}, which has {sizes[offset]} elements"
            )
        values = np.clip(values, lowest, np.asarray(sizes) - 1)
        wrapped = np.where(values < 0, values + np.asarray(sizes), values) if negative else values
        return relax.const(wrapped.astype(wide).reshape(shape), wide)
    if wide != dtype:
        index = builder.emit(relax.op.astype(index, wide))
    flags = relax.ShapeExpr([axis, int(negative), int(checked)])
    call = relax.op.call_pure_packed(_NAME, index, relax.ShapeExpr(list(sizes)), flags, ty_args=index.ty)
    return builder.emit(call, name)


def read_mark(call: Any) -> Mark | None:
    """Reads the mark from a call that `mark_index` has made; returns None for any other expression."""
    if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.call_pure_packed":
        return None
    function = call.args[0]
    if not isinstance(function, relax.ExternFunc) or str(function.global_symbol) != _NAME:
        return None
    axis, negative, checked = (int(value) for value in call.args[3].values)
    sizes = tuple(int(value) for value in call.args[2].values)
    return Mark(call.args[1], sizes, axis, bool(negative), bool(checked))
