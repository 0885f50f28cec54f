"""Candidate programs as values: the decisions that make them, independent of any compiler's representation.

A *sketch* is the skeleton of a program with open decisions; each open decision is described by an *axis*.  A
*candidate* fills them in.  All three are free of TVM, frozen, hashable and small: they can be sent, stored, compared
and evolved anywhere.
"""

from __future__ import annotations

import hashlib
import math
from typing import TypeAlias

import msgspec

__all__ = [
    "FULL_PRECISION",
    "UNTUNED",
    "Axis",
    "Candidate",
    "Choice",
    "Decision",
    "Location",
    "Sketch",
    "Tile",
    "digest_of",
    "fits",
]

Decision: TypeAlias = tuple[int, ...]
"""One filled-in axis: the factors of a tile (outermost first), or a single index."""

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


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """Pick one of `values` (for example the unroll limit), drawn with `weights` when drawn at random."""

    values: tuple[int, ...]
    weights: tuple[float, ...]


class Location(msgspec.Struct, frozen=True, tag="location"):
    """Where a producer is computed: -2 inlined, -1 at the root, otherwise at a loop of its consumer, by index.

    Indices are below `choices`.  Which of them are valid depends on the other decisions; an invalid one is replaced at
    replay, and the replayed candidate says by what.
    """

    choices: int


Axis: TypeAlias = Tile | Choice | Location


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
    """Whether the decisions answer the axes: tiles multiply to their extents, indices exist."""
    if len(axes) != len(decisions):
        return False
    return all(_answers(axis, decision) for axis, decision in zip(axes, decisions, strict=True))


def _answers(axis: Axis, decision: Decision) -> bool:
    if isinstance(axis, Tile):
        return len(decision) == axis.parts and min(decision) > 0 and math.prod(decision) == axis.extent
    if len(decision) != 1:
        return False
    if isinstance(axis, Choice):
        return 0 <= decision[0] < len(axis.values)
    return -2 <= decision[0] < axis.choices
