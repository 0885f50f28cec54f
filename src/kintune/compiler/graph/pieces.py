"""Marks kernels that only split, slice or concatenate tensors, where these copies can be avoided.

Along the first axis with more than one element, a part of a tensor is a contiguous piece of its memory.  Then the
execution plan needs no kernel: a part is an offset into the whole, and operands of a concatenation are computed in
place.  Kernels take data pointers that are multiples of 64 bytes, so this holds only for pieces that start at such
offsets.

Along the last axis, the rows of a part have equal strides.  Kernels that copy such parts are marked as well: see
`kintune.compiler.graph.strided_pieces`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

import tvm
from tvm import relax

from kintune.compiler.graph.rewriting import CALL_KERNEL, integers_in, operator_of, shape_of, static_shape
from kintune.core.dtypes import numpy_dtype
from kintune.runtime.tvm_state import OperatorAttribute

__all__ = [
    "ALIGNED",
    "ANY_SIZE",
    "JOINS",
    "SLICES",
    "STRIDED_JOINS",
    "STRIDED_SLICES",
    "least_strided",
    "piece_rules",
    "pieces_of",
]

SLICES = "kintune.slices"
"""The attribute of a PrimFunc whose results are pieces of its operand: their offsets in bytes."""

JOINS = "kintune.joins"
"""The attribute of a PrimFunc whose operands are the pieces of its result: their offsets in bytes."""

STRIDED_SLICES = "kintune.strided_slices"
"""The attribute of a PrimFunc whose results are parts of its operand along the last axis: where they begin there."""

STRIDED_JOINS = "kintune.strided_joins"
"""The attribute of a PrimFunc whose operands are parts of its result along the last axis: where they begin there."""

ALIGNED = 64
"""The alignment in bytes of the tensors that kernels take."""

ANY_SIZE = "kintune.any_size"
"""The attribute of `main` where tensors are of any size: what is decided by a size is decided as for a large one."""

_LEAST_STRIDED = 64 << 10

_LEGALISE = "FLegalize"


def piece_rules() -> Iterator[OperatorAttribute]:
    """The rules that mark kernels of `split`, `strided_slice` and `concat` that copy pieces."""
    for name, attributes, cut_of in (
        ("relax.split", (SLICES, STRIDED_SLICES), _of_split),
        ("relax.strided_slice", (SLICES, STRIDED_SLICES), _of_slice),
        ("relax.concat", (JOINS, STRIDED_JOINS), _of_concat),
    ):
        usual = tvm.ir.Op.get(name).get_attr(_LEGALISE)
        yield OperatorAttribute(name, _LEGALISE, _marking(usual, attributes, cut_of))


def least_strided(main: relax.Function) -> int:
    """The bytes of a whole from which on parts along its last axis are read and written in place.

    For smaller ones, compiling more kernels costs more than it gains.
    """
    return 0 if _of_any_size(main) else _LEAST_STRIDED


def _of_any_size(main: Any) -> bool:
    return bool(main.attrs) and ANY_SIZE in main.attrs


def pieces_of(function: Any, attribute: str) -> tuple[int, ...]:
    """The offsets with which a PrimFunc is marked by `attribute` (see there for their unit); empty if it is not."""
    attributes = getattr(function, "attrs", None)
    return tuple(map(int, attributes[attribute])) if attributes is not None and attribute in attributes else ()


def _marking(
    usual: Any, attributes: tuple[str, str], cut_of: Callable[[relax.Call], _Cut | None]
) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        made = usual(builder, call)
        cut = cut_of(call)
        if cut is None or operator_of(made) != CALL_KERNEL:
            return made
        module = builder.get()
        any_size = "main" in {each.name_hint for each in module.get_global_vars()} and _of_any_size(module["main"])
        if (found := cut.mark(*attributes, any_size=any_size)) is None:
            return made
        attribute, offsets = found
        function = module[made.args[0]]
        if not pieces_of(function, attribute):
            builder.update_func(made.args[0], function.with_attr(attribute, offsets))
        return made

    return legalise


class _Cut(NamedTuple):
    """Parts of a tensor of the shape `whole` along an axis, and the index at which each of them begins."""

    whole: tuple[int, ...]
    axis: int
    starts: list[int]
    dtype: str

    def mark(self, pieces: str, strided: str, *, any_size: bool) -> tuple[str, list[int]] | None:
        """The attribute, of these two, for a kernel that copies the parts, and its offsets; None for neither.

        Parts of `any_size` count as aligned where those of one element along the axis are.
        """
        step = self._step()
        if step is not None and not any(start * step % ALIGNED for start in ([1] if any_size else self.starts)):
            return pieces, [start * step for start in self.starts]
        return (strided, self.starts) if 0 < self.axis == len(self.whole) - 1 else None

    def _step(self) -> int | None:
        """The bytes from one element along the axis to the next; None where parts are not contiguous in memory."""
        if any(extent != 1 for extent in self.whole[: self.axis]):
            return None
        return math.prod(self.whole[self.axis + 1 :]) * numpy_dtype(self.dtype).itemsize


def _of_split(call: relax.Call) -> _Cut | None:
    return _of_parts(call.args[0].ty, call.ty, call.attrs.axis)


def _of_concat(call: relax.Call) -> _Cut | None:
    return _of_parts(call.ty, call.args[0].ty, call.attrs.axis)


def _of_parts(kind: Any, parts: Any, along: Any) -> _Cut | None:
    """A tensor of a type, and all its parts along an axis, of a tuple of types."""
    whole, shapes = shape_of(kind), list(map(shape_of, parts.fields if isinstance(parts, relax.TupleType) else []))
    if whole is None or along is None or not shapes or any(shape is None or 0 in shape for shape in shapes):
        return None
    axis = int(along) % len(whole)
    extents = [shape[axis] for shape in shapes if shape]
    return _Cut(whole, axis, list(accumulate([0, *extents[:-1]])), str(kind.dtype))


def _of_slice(call: relax.Call) -> _Cut | None:
    whole = static_shape(call.args[0])
    part = static_shape(call)
    if whole is None or part is None or len(whole) != len(part) or 0 in part:
        return None
    numbers = [integers_in(argument) for argument in call.args[1:]]
    if any(found is None for found in numbers):
        return None
    axes, starts, *_ = (found for found in numbers if found is not None)
    steps = numbers[3] if len(numbers) > 3 else None
    cut = [axis for axis in range(len(whole)) if whole[axis] != part[axis]]
    if len(cut) > 1 or any(step != 1 for step in steps or ()):
        return None
    axis = cut[0] if cut else 0
    start = dict(zip((each % len(whole) for each in axes), starts, strict=True)).get(axis, 0)
    start = start + whole[axis] if start < 0 else start
    if not 0 <= start <= whole[axis] - part[axis]:
        return None
    return _Cut(whole, axis, [start], str(call.ty.dtype))
