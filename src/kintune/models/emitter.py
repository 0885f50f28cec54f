"""What converters of both importers emit Relax operators with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from kintune.core.dtypes import numpy_dtype
from kintune.models.expressions import HALVES, dtype_of, is_integer, shape_of

__all__ = ["Emitter"]


class Emitter:
    """The function that is being built; importers differ in how they `emit` an expression, and share all else."""

    builder: relax.BlockBuilder

    def emit(self, expression: Any) -> Any:
        """The expression bound to a variable, or in normal form; its type is inferred."""
        raise NotImplementedError

    def const(self, value: Any, dtype: str) -> Any:
        """A constant of rank 0 (from a number) or of the array's own rank."""
        with np.errstate(over="ignore", invalid="ignore"):
            return relax.const(np.asarray(value).astype(numpy_dtype(dtype)), dtype)

    def cast(self, value: Any, dtype: str) -> Any:
        """`value` with elements of type `dtype`; between half precision and integers by way of float32."""
        source = dtype_of(value)
        if source == dtype:
            return value
        if dtype == "bool":
            return self.emit(relax.op.not_equal(value, self.const(0, source)))
        by_single = [kind in HALVES or kind == "bool" or is_integer(kind) for kind in (source, dtype)]
        if all(by_single) and {source, dtype} & HALVES:
            value = self.emit(relax.op.astype(value, "float32"))
        return self.emit(relax.op.astype(value, dtype))

    def wide(self, value: Any) -> Any:
        """`value`, cast to float32 if it is of half precision."""
        return self.cast(value, "float32") if dtype_of(value) in HALVES else value

    def reshape(self, value: Any, shape: Sequence[int]) -> Any:
        """`value` with another shape of as many elements."""
        if shape_of(value) == tuple(shape):
            return value
        if 0 in shape:  # in Relax's reshape, 0 means that a size does not change
            return self.emit(relax.op.full(list(shape), self.const(0, dtype_of(value)), dtype_of(value)))
        return self.emit(relax.op.reshape(value, list(shape)))

    def permute(self, value: Any, order: Sequence[int]) -> Any:
        """`value` with its axes in another order."""
        if list(order) == sorted(order):
            return value
        return self.emit(relax.op.permute_dims(value, list(order)))

    def expand(self, value: Any, shape: Sequence[int]) -> Any:
        """`value` repeated along its dimensions of size 1, and along new ones in front."""
        if shape_of(value) == tuple(shape):
            return value
        return self.emit(relax.op.broadcast_to(value, list(shape)))

    def slice(self, value: Any, axis: int, begin: int, end: int, step: int = 1) -> Any:
        """The elements begin, begin + step, ... before `end` along one axis."""
        if (begin, end, step) == (0, shape_of(value)[axis], 1):
            return value
        return self.emit(relax.op.strided_slice(value, [axis], [begin], [end], [step]))

    def concat(self, values: Sequence[Any], axis: int) -> Any:
        """`values` one after another along an axis."""
        return values[0] if len(values) == 1 else self.emit(relax.op.concat(list(values), axis=axis))

    def take(self, value: Any, indices: Any, axis: int) -> Any:
        """The slices of `value` at constant indices along an axis."""
        return self.emit(relax.op.take(value, self.const(indices, "int64"), axis=axis))

    def per_channel(self, values: Any, rank: int) -> Any:
        """Values of the channels reshaped to broadcast along the second dimension of a tensor of `rank`."""
        return self.reshape(values, [1, *shape_of(values), *[1] * (rank - 2)])

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Any:
        """A tensor of equal elements."""
        return self.expand(self.const(value, dtype), shape)  # Relax's full does not take infinities
