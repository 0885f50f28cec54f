"""Norms, softmax, other functions that reduce rows and those that reduce nothing, written in passes over rows."""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from kintune.compiler.programs.program import Program
from kintune.compiler.programs.row_passes import read_rows
from kintune.compiler.programs.rows import LANES, write_rows
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.search.processor import Processor

__all__ = ["RowProgram"]


class RowProgram(Program):
    """Computes functions that are passes over rows; a variant is the number of accumulators."""

    name = "rows"
    version = 4

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The number of accumulators, then half as many where rows are reduced; for CPUs."""
        if (rows := read_rows(module["main"])) is None:
            return ()
        reduces = any(each.combine is not None for each in rows.passes)
        numbers = (LANES, LANES // 2) if reduces else (LANES,)
        return tuple(map(str, numbers)) if write_rows(module["main"]) is not None else ()

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """No axes: a variant is one program."""
        return ()

    def written(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: frozenset[int]
    ) -> tvm.IRModule:
        """Write the function."""
        written = write_rows(module["main"], int(variant))
        if written is None:
            raise BuildError("no passes over rows")
        return tvm.IRModule({"main": written}, attrs=module.attrs)

    def open_ended(
        self, modules: Sequence[tvm.IRModule], variant: str, decisions: tuple[Decision, ...]
    ) -> list[tvm.IRModule]:
        """Return the functions, if their rows are of one length, whose elements lie side by side."""
        lengths = {rows and rows.column_extents for rows in (read_rows(module["main"]) for module in modules)}
        written = [write_rows(module["main"], int(variant), is_open=True) for module in modules]
        if len(lengths) > 1 or not all(written):
            return super().open_ended(modules, variant, decisions)
        return [tvm.IRModule({"main": each}, attrs=module.attrs) for module, each in zip(modules, written, strict=True)]

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """The only decisions, which are empty."""
        return [()]
