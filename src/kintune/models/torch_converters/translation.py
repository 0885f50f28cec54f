"""The context of converters of PyTorch's operators: the node at hand, and methods that emit Relax operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import tvm
from tvm import relax

from kintune.models.bfloat16 import Shortened
from kintune.models.expressions import HALVES, dtype_of, is_integer, shape_of
from kintune.models.index_marks import mark_index

if TYPE_CHECKING:
    from types import SimpleNamespace

__all__ = ["Converter", "NotConvertible", "TranslatedNode", "Translation"]

_ALIGNMENT = 64  # bytes that TVM requires of a tensor's memory

Expression: TypeAlias = Any
"""A Relax expression; TVM has no type annotations that a checker could use."""

Converter: TypeAlias = "Callable[[Translation, SimpleNamespace], Any]"
"""Converts one node to its result; the namespace has the node's arguments by the names of the operator's schema."""


class NotConvertible(Exception):
    """An operator has a converter, but not for these arguments; the message names them."""


@dataclass(frozen=True)
class TranslatedNode:
    """The shape and the element type that PyTorch states for a tensor."""

    shape: tuple[int, ...]
    dtype: str


def torch_type(dtype: str) -> torch.dtype:
    """PyTorch's element type of this name."""
    found: torch.dtype = getattr(torch, dtype)
    return found


class Translation:
    """The Relax function that is being built, and the node that is being converted.

    `result` has the shape and type that PyTorch states for the node's result if it is one tensor; `results` has them
    for each tensor of a tuple.  `first` is the node's first operand as PyTorch describes it, with its strides.  `used`
    has the numbers of the results of a tuple that another node reads.  `name` is the node's name, and `sources` maps
    the variables emitted so far to the names of their nodes.
    `shortened` knows the tensors that the program casts from float32 to bfloat16.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder
        self.result = TranslatedNode((), "float32")
        self.results: tuple[TranslatedNode | None, ...] = ()
        self.first: Any = None
        self.used: frozenset[int] = frozenset()
        self.name = "value"
        self.sources: dict[str, str] = {}
        self.shortened = Shortened()

    def emit(self, expression: Expression) -> Expression:
        """Bind `expression` to a variable named after the node at hand."""
        variable = self.builder.emit(expression, self.name)
        self.sources[variable.name] = self.name
        return variable

    def const(self, value: Any, dtype: str) -> Expression:
        """A constant of rank 0 (from a number) or of the array's own rank."""
        exact = torch.float64 if isinstance(value, float) else None  # by default, it would be rounded to float32
        tensor = torch.as_tensor(value, dtype=exact).to(torch_type(dtype))
        return constant(tensor)

    def cast(self, value: Expression, dtype: str) -> Expression:
        """`value` with elements of type `dtype`."""
        source = dtype_of(value)
        if source == dtype:
            return value
        if dtype == "bool":
            return self.emit(relax.op.not_equal(value, self.const(0, source)))
        if source in HALVES and is_integer(dtype):  # by way of float32, from which every target converts
            value = self.emit(relax.op.astype(value, "float32"))
        if is_integer(source) and dtype in HALVES:
            value = self.emit(relax.op.astype(value, "float32"))
        if source == "bool" and dtype in HALVES:
            value = self.emit(relax.op.astype(value, "float32"))
        if source in HALVES and dtype in HALVES:
            value = self.emit(relax.op.astype(value, "float32"))
        return self.emit(relax.op.astype(value, dtype))

    def wide(self, value: Expression) -> Expression:
        """`value`, cast to float32 if it is of half precision."""
        return self.cast(value, "float32") if dtype_of(value) in HALVES else value

    def finish(self, value: Expression) -> Expression:
        """`value` with the element type of the node's result."""
        return self.cast(value, self.result.dtype)

    def reshape(self, value: Expression, shape: Sequence[int]) -> Expression:
        """`value` with another shape of as many elements."""
        if shape_of(value) == tuple(shape):
            return value
        if 0 in shape:  # in Relax's reshape, 0 means that a size does not change
            return self.emit(relax.op.full(list(shape), self.const(0, dtype_of(value)), dtype_of(value)))
        return self.emit(relax.op.reshape(value, list(shape)))

    def expand(self, value: Expression, shape: Sequence[int]) -> Expression:
        """`value` repeated along its dimensions of size 1, and along new ones in front."""
        if shape_of(value) == tuple(shape):
            return value
        return self.emit(relax.op.broadcast_to(value, list(shape)))

    def slice(self, value: Expression, axis: int, begin: int, end: int, step: int = 1) -> Expression:
        """The elements begin, begin + step, ... before `end` along one axis."""
        if (begin, end, step) == (0, shape_of(value)[axis], 1):
            return value
        return self.emit(relax.op.strided_slice(value, [axis], [begin], [end], [step]))

    def concat(self, values: Sequence[Expression], axis: int) -> Expression:
        """`values` one after another along an axis."""
        return values[0] if len(values) == 1 else self.emit(relax.op.concat(list(values), axis=axis))

    def take(self, value: Expression, indices: Any, axis: int) -> Expression:
        """The slices of `value` at constant indices along an axis."""
        return self.emit(relax.op.take(value, self.const(indices, "int64"), axis=axis))

    def index(self, index: Expression, size: int, axis: int, *, negative: bool = False) -> Expression:
        """Indices of an axis of `size` elements, marked by `mark_index`; if `negative`, they may count from the end."""
        return mark_index(self.builder, index, [size], axis, negative=negative, name=self.name)

    def nothing(self) -> Expression:
        """The node's result where it has no elements, or does not depend on any."""
        return self.full(self.result.shape, 0, self.result.dtype)

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Expression:
        """A tensor of equal elements."""
        return self.expand(self.const(value, dtype), shape)  # Relax's full does not take infinities


def constant(tensor: torch.Tensor) -> Expression:
    """A constant that shares its memory with `tensor` where that is possible."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    if tensor.data_ptr() % _ALIGNMENT:
        tensor = tensor.clone()  # PyTorch's own allocations are aligned
    return relax.const(tvm.runtime.from_dlpack(tensor))
