"""The context of converters of PyTorch's operators: the node at hand, and methods that emit Relax operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import tvm
from tvm import relax

from kintune.models.bfloat16 import Shortened
from kintune.models.emitter import Emitter
from kintune.models.formulas import Real
from kintune.models.index_marks import mark_index

if TYPE_CHECKING:
    from types import SimpleNamespace

__all__ = ["Converter", "NotConvertible", "TranslatedNode", "Translation", "function_of"]

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


class Translation(Emitter):
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

    def finish(self, value: Expression) -> Expression:
        """`value` with the element type of the node's result."""
        return self.cast(value, self.result.dtype)

    def index(self, index: Expression, size: int, axis: int, *, negative: bool = False) -> Expression:
        """Indices of an axis of `size` elements, marked by `mark_index`; if `negative`, they may count from the end."""
        return mark_index(self.builder, index, [size], axis, negative=negative, name=self.name)

    def nothing(self) -> Expression:
        """The node's result where it has no elements, or does not depend on any."""
        return self.full(self.result.shape, 0, self.result.dtype)


def function_of(formula: Callable[[Real], Real]) -> Converter:
    """A converter of a function of one tensor; half precision is computed in float32, integers in the result's type."""
    return lambda t, a: t.finish(formula(Real(t, t.wide(t.cast(a.self, t.result.dtype)))).value)


def constant(tensor: torch.Tensor) -> Expression:
    """A constant that shares its memory with `tensor` where that is possible."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    if tensor.data_ptr() % _ALIGNMENT:
        tensor = tensor.clone()  # PyTorch's own allocations are aligned
    return relax.const(tvm.runtime.from_dlpack(tensor))
