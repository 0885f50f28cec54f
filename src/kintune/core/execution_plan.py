"""The execution plan: what a compiled network does, kernel by kernel, and where each tensor lies."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from kintune.core.dtypes import numpy_dtype
from kintune.core.extents import Formula
from kintune.core.model import IndexCheck, Tensor

__all__ = [
    "Branch",
    "Copy",
    "ExecutionPlan",
    "Jump",
    "KernelCall",
    "OpenExtent",
    "OpenExtents",
    "Operation",
    "Place",
    "PlannedTensor",
]

Place: TypeAlias = Literal["input", "output", "weights", "arena"]


class PlannedTensor(msgspec.Struct, frozen=True):
    """A row-major tensor that a kernel takes.

    `offset` is in bytes, a multiple of 64, into the arena or the packed weights; for an input or output it is the
    number of that input or output, in the plan's order.
    """

    place: Place
    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize


class KernelCall(msgspec.Struct, frozen=True, tag="call"):
    """Calls a kernel of the library with tensors, by their number, in the order of its parameters.

    It runs on at most `threads` threads; 0 means all of the context's.  `title` says for messages, in the user's words,
    what it computes; it is empty where that is not known.
    """

    kernel: str
    tensors: tuple[int, ...]
    threads: int = 0
    title: str = ""


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    """Copies the bytes of tensor `source` to tensor `target`, which has as many."""

    source: int
    target: int


class Branch(msgspec.Struct, frozen=True, tag="branch"):
    """Continues with the operation number `otherwise`, a later one, if the first element of `condition` is zero."""

    condition: int
    otherwise: int


class Jump(msgspec.Struct, frozen=True, tag="jump"):
    """Continues with the operation number `target`, a later one."""

    target: int


Operation: TypeAlias = KernelCall | Copy | Branch | Jump


class OpenExtent(msgspec.Struct, frozen=True):
    """A dimension called `name`: the extent of input number `input` along `axis`, from `least` on in steps.

    Formulas count it in steps, rounded down: so they are right for the extents that are possible, and need not be
    for those between.
    """

    name: str
    input: int
    axis: int
    least: int
    greatest: int
    step: int = 1

    def steps(self, extent: int) -> int:
        """The extent as formulas have it."""
        return extent // self.step

    def extent(self, steps: int) -> int:
        """The extent that formulas have as this number."""
        return steps * self.step + self.least % self.step

    @property
    def extents(self) -> range:
        """All extents that are possible."""
        return range(self.least, self.greatest + 1, self.step)


class OpenExtents(msgspec.Struct, frozen=True):
    """How a plan for the greatest extents becomes the plan for others.

    Formulas are of the names of `dimensions`: `shapes` has those of the extents of tensors, by their numbers, `offsets`
    those of their offsets, and `sizes` those of the sizes of checks, by their numbers.  What is not there stays.
    """

    dimensions: tuple[OpenExtent, ...]
    shapes: dict[int, tuple[Formula, ...]]
    offsets: dict[int, Formula]
    sizes: dict[int, tuple[Formula, ...]]


class ExecutionPlan(msgspec.Struct, frozen=True):
    """Operations in order, and the tensors they name by number.

    `inputs` and `outputs` are the model's, in its order; `input_tensors` and `output_tensors` are their numbers among
    `tensors`.  After the outputs of the model comes one for each of `checks`, in their order: an integer tensor of
    indices that is verified after a run and not handed out.  `IndexCheck.result` counts from the first of those.

    With `open` extents all of this is what the plan is for the greatest ones.
    """

    tensors: tuple[PlannedTensor, ...]
    operations: tuple[Operation, ...]
    input_tensors: tuple[int, ...]
    output_tensors: tuple[int, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    arena_bytes: int
    checks: tuple[IndexCheck, ...] = ()
    open: OpenExtents | None = None
