"""What programs that are written as a whole have in common: their decisions are the values of a tiling."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import tvm

from kintune.compiler.kernels.cost import Work, cycles
from kintune.compiler.kernels.cutting import restored
from kintune.compiler.kernels.reading import Joined
from kintune.compiler.kernels.stages import Stages, with_stages
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.program import Program
from kintune.core.candidate import Axis, Decision, described
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["NestProgram", "SumProgram", "TilingProgram"]

_FIRST = 32  # candidates of the rule


class SumCase(Protocol):
    """A sum of products as a program reads it."""

    @property
    def sums(self) -> Joined:
        """The workload with what follows its sums in one block."""
        ...


C = TypeVar("C")
S = TypeVar("S", bound=SumCase)
T = TypeVar("T", bound=tuple[Any, ...])


class TilingProgram(Program, Generic[C, T]):
    """A program of workloads that are read as a case `C`, by tilings `T`, which `tiling` makes of named values."""

    tiling: Callable[..., T]

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Return the choices."""
        return self._choices(self.case(module, variant)).axes()

    def written(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: frozenset[int]
    ) -> tvm.IRModule:
        """Return the program."""
        case = self.case(module, variant)
        return self.module(module, case, self.picked(case, decisions), kept)

    def open_ended(
        self, modules: Sequence[tvm.IRModule], variant: str, decisions: tuple[Decision, ...]
    ) -> list[tvm.IRModule]:
        """Return the programs."""
        greatest = self.case(modules[-1], variant)
        tiling = self.picked(greatest, decisions)
        cases = [self.opened(self.case(module, variant), greatest) for module in modules]
        return [self.module(module, case, tiling, frozenset()) for module, case in zip(modules, cases, strict=True)]

    def opened(self, case: C, greatest: C) -> C:
        """The case, to be written for any extents up to those of the `greatest`.

        Raises:
            BuildError: it is written for its own extents alone.
        """
        raise BuildError(f"{self.name}: a program for this workload is written for known extents alone")

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Return the decisions of the least estimated times."""
        case = self.case(module, variant)
        choices = self._choices(case)

        def cost(*values: Any) -> float | None:
            tiling = self._tiling(choices, values)
            return self.cost(case, tiling, machine) if self.fits(case, tiling) else None

        return choices.cheapest(_FIRST, cost)

    def picked(self, case: C, decisions: Sequence[Decision]) -> T:
        """The tiling that the decisions name.

        Raises:
            BuildError: the decisions make no program.
        """
        choices = self._choices(case)
        tiling = self._tiling(choices, choices.picked(decisions))
        if not self.fits(case, tiling):
            said = described(choices.axes(), tuple(decisions))
            raise BuildError(f"{self.name}: the tiling {said} does not fit the registers or the workload")
        return tiling

    def _choices(self, case: C) -> ChoiceLists:
        return ChoiceLists(self.name, self.lists(case))

    def _tiling(self, choices: ChoiceLists, values: Sequence[Any]) -> T:
        """The tiling of these values of the lists."""
        named: dict[str, Any] = {}
        for names, value in zip(map(str.split, choices.lists), values, strict=True):
            named.update(zip(names, value if len(names) > 1 else (value,), strict=True))
        return self.tiling(**named)

    @abstractmethod
    def case(self, module: tvm.IRModule, variant: str) -> C:
        """The workload as the program reads it.

        Raises:
            BuildError: the program does not compute the workload, or there is no such variant.
        """

    @abstractmethod
    def lists(self, case: C) -> Mapping[str, Sequence[Any]]:
        """The values that are offered, by their names; those that are picked together have names with a space."""

    def fits(self, case: C, tiling: T) -> bool:
        """Whether the tiling makes a program."""
        return True

    @abstractmethod
    def cost(self, case: C, tiling: T, machine: Processor) -> float | None:
        """The estimated cycles of the core that has most tasks; None for a tiling that is no first candidate."""

    @abstractmethod
    def module(self, module: tvm.IRModule, case: C, tiling: T, kept: frozenset[int]) -> tvm.IRModule:
        """The workload `module` as the program writes it; the parameters at the positions `kept` will be of bf16."""


class SumProgram(TilingProgram[S, T]):
    """A program that puts statements of its own in the place of a sum of products, and of what follows it."""

    def module(self, module: tvm.IRModule, case: S, tiling: T, kept: frozenset[int]) -> tvm.IRModule:
        """The workload with the program in the place of its sum."""
        changed, found, epilogue = case.sums
        written = with_stages(changed, found, self.stages(case, tiling, kept), epilogue)
        return restored(written, found.prologue)

    @abstractmethod
    def stages(self, case: S, tiling: T, kept: frozenset[int]) -> Stages:
        """What computes the sums, and what follows them; the parameters at the positions `kept` will be of bf16."""


class NestProgram(SumProgram[S, T]):
    """A program of a nest around a micro-kernel (`kernels.nest`), whose time is estimated from its work."""

    def cost(self, case: S, tiling: T, machine: Processor) -> float:
        """The estimated cycles of the core that has most tasks."""
        return cycles(self.work(case, tiling), machine)

    @abstractmethod
    def work(self, case: S, tiling: T) -> Work:
        """What the tasks of the program do."""
