"""Candidate programs as values: the decisions that make them, independent of any compiler's representation.

A *sketch* is the skeleton of a program with open decisions; each open decision is described by an *axis*.  A
*candidate* fills them in.  All three are free of TVM, frozen, hashable and small: they can be sent, stored, compared
and evolved anywhere.
"""

from __future__ import annotations

import hashlib
import math
from typing import ClassVar, TypeAlias

import msgspec

__all__ = [
    "FULL_PRECISION",
    "UNTUNED",
    "Axis",
    "Candidate",
    "Choice",
    "Decision",
    "Location",
    "NamedChoice",
    "Sketch",
    "Tile",
    "answers",
    "described",
    "digest_of",
    "fits",
]

Decision: TypeAlias = tuple[int, ...]
"""One filled-in axis: the factors of a tile (outermost first), a single index, or the values of a `NamedChoice`."""

FULL_PRECISION = "fp32"
"""The precision of a program that computes in the types of its workload."""

UNTUNED = ""
"""The sketch digest of the untuned program: the workload under the compiler's default schedule."""


def digest_of(*parts: bytes) -> str:
    """Content digest (128 bits of SHA-256, hex) of the parts, each framed by its length."""
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.hexdigest()[:32]


class Tile(msgspec.Struct, frozen=True, tag="tile"):
    """Split a loop of `extent` iterations into `parts` nested loops whose extents multiply to `extent`.

    `max_inner` limits the innermost factor of random draws; a candidate of a rule may exceed it.  `loop` names the loop
    if that is known.  It tells which tiles of two sketches correspond; replay does not use it.
    """

    extent: int
    parts: int
    max_inner: int = 64
    loop: str = ""

    @property
    def spatial(self) -> bool:
        """Whether the loop is spatial: such a one is split into four parts at least, one of a reduction into fewer."""
        return self.parts > 3

    @property
    def width(self) -> int:
        """The numbers of a decision."""
        return self.parts

    def described(self, decision: Decision) -> str:
        """The decision for people, such as "s0:i=1*4*2*8"."""
        return f"{self.loop or 'tile'}={'*'.join(map(str, decision))}"


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """Pick one of `values` (for example the unroll limit), drawn with `weights` when drawn at random."""

    values: tuple[int, ...]
    weights: tuple[float, ...]

    width: ClassVar[int] = 1

    def described(self, decision: Decision) -> str:
        """The decision for people: the value, such as "choice=16"."""
        return f"choice={self.values[decision[0]]}"


class NamedChoice(msgspec.Struct, frozen=True, tag="named"):
    """Pick the values of `names` together, one of the rows `values`, all as likely; the decision is the row itself.

    Such a decision, as rows=6 vectors=4, means the same whatever else can be picked: rows may be added, removed, or
    listed in another order.  A row that can no longer be picked makes no program.
    """

    names: tuple[str, ...]
    values: tuple[Decision, ...]

    @property
    def width(self) -> int:
        """The numbers of a decision."""
        return len(self.names)

    def described(self, decision: Decision) -> str:
        """The decision for people, such as "rows=6 vectors=4"."""
        return " ".join(f"{name}={value}" for name, value in zip(self.names, decision, strict=True))


class Location(msgspec.Struct, frozen=True, tag="location"):
    """Where a producer is computed: -2 inlined, -1 at the root, otherwise at a loop of its consumer, by index.

    Indices are below `choices`.  Which of them are valid depends on the other decisions; an invalid one is replaced at
    replay, and the replayed candidate says by what.
    """

    choices: int

    width: ClassVar[int] = 1

    def described(self, decision: Decision) -> str:
        """The decision for people, such as "at=3"."""
        return f"at={decision[0]}"


Axis: TypeAlias = Tile | Choice | NamedChoice | Location


class Sketch(msgspec.Struct, frozen=True):
    """A program skeleton for one workload.

    `trace` is the serialised instruction list that replays it (opaque here), `axes` its open decisions in order.
    """

    workload: str
    digest: str
    trace: bytes
    axes: tuple[Axis, ...]

    @property
    def spatial(self) -> list[int]:
        """The positions of the axes that split spatial loops."""
        return [i for i, axis in enumerate(self.axes) if isinstance(axis, Tile) and axis.spatial]


class Candidate(msgspec.Struct, frozen=True, order=True):
    """A program: (workload, sketch, decisions).  `decisions[i]` answers `sketch.axes[i]`."""

    workload: str
    sketch: str
    decisions: tuple[Decision, ...]

    @classmethod
    def untuned(cls, workload: str) -> Candidate:
        """The program that the compiler's default schedule makes of the workload."""
        return cls(workload, UNTUNED, ())

    @property
    def digest(self) -> str:
        """Content digest, the identity of the candidate in records."""
        return digest_of(msgspec.msgpack.encode((self.workload, self.sketch, self.decisions)))


def fits(axes: tuple[Axis, ...], decisions: tuple[Decision, ...]) -> bool:
    """Whether the decisions answer the axes: tiles multiply to their extents, indices exist, names have values.

    Which values a name may have, its program says.
    """
    if len(axes) != len(decisions):
        return False
    return all(answers(axis, decision) for axis, decision in zip(axes, decisions, strict=True))


def described(axes: tuple[Axis, ...], decisions: tuple[Decision, ...]) -> str:
    """The decisions, which must fit the axes, for people: "rows=6 vectors=4 blocks=2"."""
    return " ".join(axis.described(decision) for axis, decision in zip(axes, decisions, strict=True))


def answers(axis: Axis, decision: Decision) -> bool:
    """Whether the decision answers the axis."""
    if len(decision) != axis.width:
        return False
    match axis:
        case Tile():
            return min(decision) > 0 and math.prod(decision) == axis.extent
        case Choice():
            return 0 <= decision[0] < len(axis.values)
        case Location():
            return -2 <= decision[0] < axis.choices
        case NamedChoice():
            return True
