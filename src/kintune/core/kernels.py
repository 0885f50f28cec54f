"""What BUILD and PROFILE are asked and what they answer; free of TVM, so that every process can read it."""

from __future__ import annotations

import math

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.outcome import Outcome
from kintune.core.protocol import Protocol

__all__ = ["BuildContext", "BuildItem", "Built", "Operand", "ProfileContext", "ProfileItem", "kernel_name"]


class Operand(msgspec.Struct, frozen=True):
    """One argument of a built kernel, in call order; the last ones are outputs.

    `role` is "activation", "weight" (constant between runs, laid out as the candidate wants it) or "output".
    """

    shape: tuple[int, ...]
    dtype: str
    role: str


class BuildContext(msgspec.Struct, frozen=True):
    """What the items of one BUILD stage share: target (JSON), serialised workloads and sketches, both by digest."""

    target: str
    workloads: dict[str, bytes]
    sketches: dict[str, Sketch]


class BuildItem(msgspec.Struct, frozen=True):
    """Build one candidate."""

    candidate: Candidate


class Built(msgspec.Struct, frozen=True):
    """A built candidate: a shared library that exports `main`, with its operands; or the outcome that says why not.

    `object_file` holds the same kernel as the function `kernel_name(candidate)`, to be linked into the network; it is
    empty where the target's programs cannot be linked one by one.
    """

    candidate: str
    artifact: bytes = b""
    operands: tuple[Operand, ...] = ()
    failure: Outcome | None = None
    object_file: bytes = b""

    def without_object_file(self) -> Built:
        """The same for those who only run it."""
        return msgspec.structs.replace(self, object_file=b"")


def kernel_name(candidate: str) -> str:
    """The function that the object file of a built candidate (its digest) defines."""
    return f"kernel_{candidate}"


class ProfileContext(msgspec.Struct, frozen=True):
    """What the items of one PROFILE or CONFIRM stage share.

    `references` maps a workload digest to its built untuned program, against which every candidate's output is checked
    once: activations are filled from a seed, weights with one constant, so that the layout of weights does not matter.
    `best_us` has the best times known of some workloads: a candidate that takes more than `slow` times as long, or as
    the fastest of the stage so far, is not worth a second look.  `again` are candidates (digests) that were measured
    before: what they take now is what the others are compared with.
    """

    protocol: Protocol
    references: dict[str, Built]
    rtol: float = 1e-3
    atol: float = 1e-3
    best_us: dict[str, float] = {}
    slow: float = math.inf
    again: tuple[str, ...] = ()


class ProfileItem(msgspec.Struct, frozen=True):
    """Time one built candidate of `workload`; the answer is an `Outcome`."""

    workload: str
    built: Built
