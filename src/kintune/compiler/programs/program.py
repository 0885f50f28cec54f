"""The interface of programs of our own: a program recognises the workloads that it can compute, and rewrites them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, runtime_checkable

import tvm

from kintune.core.candidate import FULL_PRECISION, Axis, Decision
from kintune.search.processor import Processor

__all__ = [
    "PATTERN",
    "KeepsBf16",
    "Narrow",
    "NeedsInstructions",
    "Program",
    "SavesArithmetic",
    "pattern_of",
    "precision_of_program",
]

PATTERN = "kintune.pattern"
"""The attribute of a PrimFunc that a pass made for a pattern of operators: the pattern's name, then its parameters."""


class Program(Protocol):
    """Another way to compute the workloads of a pattern.

    A program is written for a *variant*, a short text of parameters such as the size of a tile.  `write` gives the
    whole program for decisions on all axes; nothing is scheduled afterwards.

    `name` is unique.  `version` grows with each change of what `write` gives, so that records never name another
    program than the one that was measured.  `patterns` has the names of the patterns whose functions the program
    computes.  It is empty where the program computes functions that no pass made for a pattern.
    """

    name: str
    version: int
    patterns: tuple[str, ...]

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return the variants for the workload `module` (function `main`), the most promising first.

        It is empty where the workload is not of the program's pattern, or the target lacks what the program needs.
        """
        ...

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Return the open decisions."""
        ...

    def write(self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...]) -> tvm.IRModule:
        """Return a module whose `main` has the parameters of the workload's and computes the same.

        `decisions` answer the axes.  The body of `main` is one root block.

        Raises:
            BuildError: the decisions make no program.
        """
        ...

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Return decisions for the first candidates, the most promising first."""
        ...


@runtime_checkable
class SavesArithmetic(Protocol):
    """A program that computes a workload with fewer operations than the workload itself has."""

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """Return how many FLOPs fewer one run takes; what is computed when the network is built does not count."""
        ...


@runtime_checkable
class NeedsInstructions(Protocol):
    """A program whose kernels have instructions that the compiler never chooses by itself."""

    def instructions(self, variant: str) -> tuple[str, ...]:
        """Return the extensions of a CPU that kernels of a variant need, beyond those which any kernel may use."""
        ...


@runtime_checkable
class Narrow(NeedsInstructions, Protocol):
    """A program that computes with shorter numbers than the workload itself does.

    Its `precision` is "bf16" or "int8".
    """

    precision: str


@runtime_checkable
class KeepsBf16(Protocol):
    """A program that can take some tensors in bf16 which the workload has in fp32: they need half the memory."""

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """Return the positions of the parameters that may be of bf16; with `rounded`, those that are rounded anyway.

        Raises:
            BuildError: the program does not compute the workload.
        """
        ...

    def write(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: Collection[int] = ()
    ) -> tvm.IRModule:
        """Return what `Program.write` does, with the parameters at the positions `kept` in bf16.

        Raises:
            BuildError: the decisions make no program.
        """
        ...


def precision_of_program(program: Program) -> str:
    """The precision of what a program computes; "fp32" where it takes the types of the workload."""
    return program.precision if isinstance(program, Narrow) else FULL_PRECISION


def pattern_of(function: tvm.tirx.PrimFunc) -> str:
    """The pattern for which a pass made the function, with its parameters; empty for any other function."""
    attributes = function.attrs
    return str(attributes[PATTERN]) if attributes is not None and PATTERN in attributes else ""
