"""Programs of our own: a program recognises the workloads that it can compute, and rewrites them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import tvm

from kintune.compiler.programs.kept_parameters import keep
from kintune.core.candidate import FULL_PRECISION, Axis, Decision
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["PATTERN", "Program", "pattern_of"]

PATTERN = "kintune.pattern"
"""The attribute of a PrimFunc that a pass made for a pattern of operators: the pattern's name, then its parameters."""


class Program(ABC):
    """Another way to compute the workloads of a pattern.

    A program is written for a *variant*, a short text of parameters such as the size of a tile.  `write` gives the
    whole program for decisions on all axes; nothing is scheduled afterwards.

    `name` is unique.  `version` grows with each change of what `write` gives, so that records never name another
    program than the one that was measured.  `patterns` has the names of the patterns whose functions the program
    computes.  It is empty where the program computes functions that no pass made for a pattern.  `precision` is "bf16"
    or "int8" where it computes with shorter numbers than the workload itself does.
    """

    name = ""
    version = 1
    patterns: tuple[str, ...] = ()
    precision = FULL_PRECISION

    @abstractmethod
    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """Return the variants for the workload `module` (function `main`), the most promising first.

        It is empty where the workload is not of the program's pattern, or the target lacks what the program needs.
        """

    @abstractmethod
    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Return the open decisions.

        Raises:
            BuildError: the program does not compute the workload, or there is no such variant.
        """

    def write(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: Collection[int] = ()
    ) -> tvm.IRModule:
        """Return a module whose `main` has the parameters of the workload's and computes the same.

        `decisions` answer the axes.  The body of `main` is one root block.  The parameters at the positions `kept`,
        which must be among `keepable`, are of bf16 instead of fp32.

        Raises:
            BuildError: the program does not compute the workload, there is no such variant, or the decisions make none.
        """
        written = self.written(module, variant, decisions, frozenset(kept))
        return tvm.IRModule({"main": keep(written["main"], kept)}, attrs=written.attrs) if kept else written

    @abstractmethod
    def written(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: frozenset[int]
    ) -> tvm.IRModule:
        """Return what `write` gives with all parameters of the workload's types; those `kept` become bf16 afterwards.

        Raises:
            BuildError: as for `write`.
        """

    def open_ended(
        self, modules: Sequence[tvm.IRModule], variant: str, decisions: tuple[Decision, ...]
    ) -> list[tvm.IRModule]:
        """Return what is written for a workload at each of several extents, of which `generalise` makes one program.

        `modules` are the workload at these extents, the greatest of its range last; `decisions` answer the axes there.
        All that is written computes any extents, from their numbers and in the same statements.

        Raises:
            BuildError: as for `write`, or the program is written for known extents alone.
        """
        raise BuildError(f"{self.name}: programs are written for known extents alone")

    @abstractmethod
    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Return decisions for the first candidates, the most promising first."""

    def saved_flops(self, module: tvm.IRModule, variant: str) -> float:
        """Return how many FLOPs fewer one run takes; what is computed when the network is built does not count."""
        return 0.0

    def instructions(self, variant: str) -> tuple[str, ...]:
        """Return the extensions of a CPU that kernels of a variant need, beyond those which any kernel may use."""
        return ()

    def keepable(self, module: tvm.IRModule, *, rounded: bool = False) -> frozenset[int]:
        """Return the positions of the parameters that may be of bf16; with `rounded`, those that are rounded anyway.

        Raises:
            BuildError: the program does not compute the workload.
        """
        return frozenset()


def pattern_of(function: tvm.tirx.PrimFunc) -> str:
    """The pattern for which a pass made the function, with its parameters; empty for any other function."""
    attributes = function.attrs
    return str(attributes[PATTERN]) if attributes is not None and PATTERN in attributes else ""
