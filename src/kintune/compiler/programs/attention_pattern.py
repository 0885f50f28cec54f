"""What attention a function computes, as a value: its sizes, where it reads its operands, and what is done to scores.

A graph pass finds attention in a network and makes a function of it.  The function says by its attribute
`kintune.pattern` what it computes; the program of our own reads that and writes the function anew.

Attention is computed over *coordinates*, numbered in this order: those of the batch (heads among them), the rows
(queries), the columns (keys), the depth (of which a score is the sum), and the width (of a row of values).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import tvm

from kintune.compiler.kernels.loops import index
from kintune.compiler.programs.program import pattern_of
from kintune.errors import BuildError

__all__ = [
    "NAME", "Access", "AttentionPattern", "Index", "Step", "StepKind", "Term", "attention_of", "element",
    "pattern_text", "place", "require_attention", "scored",
]  # fmt: skip

NAME = "attention"


class Term(msgspec.Struct, frozen=True, array_like=True):
    """A part of an index: `coordinate // divisor % modulus * factor`; a `modulus` of 0 stands for no modulo."""

    coordinate: int
    divisor: int = 1
    modulus: int = 0
    factor: int = 1


class Index(msgspec.Struct, frozen=True, array_like=True):
    """The index along one axis of a tensor: a sum."""

    offset: int
    terms: tuple[Term, ...]


class Access(msgspec.Struct, frozen=True, array_like=True):
    """Where a tensor is read or written: the position of the parameter, and its index along each axis."""

    parameter: int
    indices: tuple[Index, ...]

    def uses(self, coordinate: int) -> bool:
        """Whether the place depends on a coordinate."""
        return any(term.coordinate == coordinate for index in self.indices for term in index.terms)

    def is_contiguous(self, coordinate: int) -> bool:
        """Whether steps of a coordinate are steps of one element."""
        *outer, last = ([term for term in index.terms if term.coordinate == coordinate] for index in self.indices)
        return not any(outer) and last == [Term(coordinate)]


class StepKind(enum.Enum):
    """What is done to each score before the softmax."""

    ADD = "add"
    """A tensor is added."""
    SELECT = "select"
    """Where a boolean tensor equals `kept`, the score stays; elsewhere it becomes `number`."""
    CAUSAL = "causal"
    """A row sees its own column, those before it, and `number` more; the others do not count."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step between scores and softmax; `number` is a float as text, since JSON has no infinity."""

    kind: StepKind
    access: Access | None = None
    number: str = ""
    kept: bool = True

    @property
    def value(self) -> float:
        """`number` as a float."""
        return float.fromhex(self.number)


class AttentionPattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """softmax(query @ key^T * scale, changed by `steps`) @ value.

    `batch` are the extents of the coordinates of the batch, `rows`, `columns`, `depth` and `width` those of the others.
    `blank` reads a boolean tensor: a row where it is true becomes zero.  With `zero_nan`, so does a row of which the
    softmax is not a number.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    width: int
    scale: float
    query: Access
    key: Access
    value: Access
    result: Access
    steps: tuple[Step, ...] = ()
    blank: Access | None = None
    zero_nan: bool = False

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of all coordinates."""
        return (*self.batch, self.rows, self.columns, self.depth, self.width)

    @property
    def heads(self) -> int:
        """How many independent attentions there are."""
        return math.prod(self.batch)

    def batch_of(self, head: Any) -> list[Any]:
        """The coordinates of the batch of a head, by its number: an expression, or a number."""
        inner, found = self.heads, []
        for extent in self.batch:
            inner //= extent
            found.append(head // inner % extent)
        return found

    @property
    def row(self) -> int:
        """The number of the coordinate of rows; columns, depth and width follow."""
        return len(self.batch)

    @property
    def shift(self) -> int | None:
        """How many columns after its own a row sees; None where it may see all."""
        shifts = [int(step.value) for step in self.steps if step.kind is StepKind.CAUSAL]
        return min(shifts) if shifts else None

    def reads(self) -> Iterator[Access]:
        """All accesses but that of the result."""
        yield from (self.query, self.key, self.value)
        yield from (step.access for step in self.steps if step.access is not None)
        if self.blank is not None:
            yield self.blank


def pattern_text(pattern: AttentionPattern) -> str:
    """The attribute of a function that computes this attention."""
    return f"{NAME} {msgspec.json.encode(pattern).decode()}"


def attention_of(function: Any) -> AttentionPattern | None:
    """The attention that a function was made for; None where it was made for something else."""
    name, _, text = pattern_of(function).partition(" ")
    return msgspec.json.decode(text, type=AttentionPattern) if name == NAME else None


def require_attention(module: tvm.IRModule) -> AttentionPattern:
    """The attention of a workload.

    Raises:
        BuildError: the workload is none.
    """
    pattern = attention_of(module["main"])
    if pattern is None:
        raise BuildError(f"the workload is no {NAME}")
    return pattern


def place(access: Access, coordinates: Sequence[Any]) -> list[Any]:
    """The indices of an access at these coordinates: expressions, or numbers."""
    return [_sum(index, coordinates) for index in access.indices]


def element(buffers: Sequence[Any], access: Access, coordinates: Sequence[Any]) -> Any:
    """The element of one of these buffers that is read or written at these coordinates."""
    return buffers[access.parameter][tuple(map(index, place(access, coordinates)))]


def _sum(index: Index, coordinates: Sequence[Any]) -> Any:
    total: Any = None
    for term in index.terms:
        value = coordinates[term.coordinate]
        if term.divisor > 1:
            value = value // term.divisor
        if term.modulus:
            value = value % term.modulus
        if term.factor > 1:
            value = value * term.factor
        total = value if total is None else total + value
    if total is None:
        return index.offset
    return total + index.offset if index.offset else total


def scored(pattern: AttentionPattern, score: Any, coordinates: Sequence[Any], read: Any) -> Any:
    """A score after all steps; `read(access, coordinates)` gives an element of an operand."""
    from tvm import tirx

    for step in pattern.steps:
        if step.access is None:
            row, column = coordinates[pattern.row], coordinates[pattern.row + 1]
            score = tirx.Select(column <= row + int(step.value), score, tirx.const(-math.inf, "float32"))
            continue
        other = read(step.access, coordinates)
        if step.kind is StepKind.ADD:
            score = score + other
        else:
            filled = tirx.const(step.value, "float32")
            score = tirx.Select(other, score, filled) if step.kept else tirx.Select(other, filled, score)
    return score
