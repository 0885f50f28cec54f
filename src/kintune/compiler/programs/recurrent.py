"""Recurrent layers: the loop over time in one kernel, with the recurrent weights in panels.

The weights of a tile of hidden units lie in one panel: for each unit that is read, those of all gates, so that the sums
of a tile stay in vector registers while the panel is read once.  Gates, cell and state follow at once, also in vectors.

A step needs all of the state before it.  So there are three variants:

- `steps`: the tiles of each step are computed by several threads, which meet after each step;
- `rows`: directions and sequences are computed by several threads, which never meet;
- `single`: one thread computes all, which small layers are better off with.

Where sequences have lengths, the products of a tile end with the longest of its sequences.

Layers whose weights are bytes multiply by an instruction for bytes, where the processor has one; else in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm

from kintune.compiler.kernels.instructions import BYTES, WORD_BYTES, Instruction, best, byte_instruction
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.program import Program, pattern_of
from kintune.compiler.programs.recurrent_text import ROWS, SINGLE, STEPS, Tiling, phases, recurrent_text
from kintune.compiler.space.weights import LAYOUT_FREE
from kintune.core.candidate import Axis, Decision
from kintune.errors import BuildError
from kintune.models.recurrence import Recurrence, parse_recurrence
from kintune.search.processor import Processor

__all__ = ["RecurrentProgram"]

_RECURRENT = 1  # the position of the recurrent weights among the parameters
_UNITS = (8, 16, 32, 64)
_MOST_ROWS = 8
_UNROLL = (1, 2, 4, 8)
_BYTES = 4
_LARGE = 400_000  # bytes that take a core longer to read than threads take to meet
_FIRST = 12  # candidates of the rule


class RecurrentProgram(Program):
    """Writes recurrent kernels; see `kintune.models.recurrence.Recurrence` for what they compute."""

    name = "recurrent"
    version = 3
    patterns = ("lstm", "gru", "rnn")

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """The ways to spread the work over threads; none where the recurrent weights are no constants."""
        function = module["main"]
        recurrence = parse_recurrence(pattern_of(function))
        if recurrence is None:
            return ()
        if _RECURRENT not in map(int, function.attrs.get(LAYOUT_FREE, ())):
            return ()
        ways = _ways(recurrence) if int(target.attrs.get("num-cores", 2)) > 1 else (SINGLE,)
        instruction = best(BYTES, target) if recurrence.quantised else None
        return ways if instruction is None else tuple(f"{way}-{instruction.variant}" for way in ways)

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """Units of a tile, sequences of a tile, and steps of the products that are written out."""
        return _choices(_recurrence(module), _parsed(variant)[1]).axes()

    def written(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: frozenset[int]
    ) -> tvm.IRModule:
        """The module whose `main` is the kernel."""
        from tvm.script import tirx  # not the module tvm.tirx, as which the parser's defaults would resolve the name

        recurrence = _recurrence(module)
        way, instruction = _parsed(variant)
        tiling = Tiling(*_choices(recurrence, instruction).picked(decisions))
        if not _fits(recurrence, tiling, instruction):
            raise BuildError(f"{tiling.rows} rows of {tiling.units} units do not fit the registers")
        text = recurrent_text(recurrence, way, tiling, instruction)
        written = tvm.script.from_source(text, extra_vars={"T": tirx})
        function = module["main"]
        for name, value in function.attrs.items():
            written = written.with_attr(name, value)
        return tvm.IRModule({"main": written}, attrs=module.attrs)

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Tiles whose sums fill half of the vector registers come first, then smaller and larger ones."""
        recurrence, (way, instruction) = _recurrence(module), _parsed(variant)

        def misfit(*values: int) -> float | None:
            tiling = Tiling(*values)
            fits = _fits(recurrence, tiling, instruction)
            return _misfit(recurrence, way, tiling, machine, instruction) if fits else None

        return _choices(recurrence, instruction).cheapest(_FIRST, misfit)


def _parsed(variant: str) -> tuple[str, Instruction | None]:
    """How the work is spread over threads, and the instruction that multiplies bytes, if one does."""
    way, _, name = variant.partition("-")
    return way, byte_instruction(name) if name else None


def _ways(recurrence: Recurrence) -> tuple[str, ...]:
    """The variants for several threads.

    A step takes a thread about as long as reading its weights from the second-level cache, and a barrier of the threads
    about a microsecond.  Where threads share sequences instead of units, each of them reads all weights of a direction.
    """
    size = 1 if recurrence.quantised else _BYTES
    weights = size * recurrence.hidden * recurrence.gates * recurrence.padded
    if recurrence.directions > 1:
        return ROWS, STEPS, SINGLE
    if recurrence.batch > 1:
        return (STEPS, ROWS, SINGLE) if weights > _LARGE else (ROWS, SINGLE, STEPS)
    return (STEPS, SINGLE) if weights > _LARGE else (SINGLE, STEPS)


def _recurrence(module: tvm.IRModule) -> Recurrence:
    found = parse_recurrence(pattern_of(module["main"]))
    if found is None:
        raise BuildError("the workload is no recurrent layer")
    return found


def _choices(recurrence: Recurrence, instruction: Instruction | None) -> ChoiceLists:
    """Units, sequences, steps written out."""
    steps = recurrence.hidden if instruction is None else recurrence.padded // WORD_BYTES
    units = [size for size in _UNITS if recurrence.padded % size == 0]
    rows = [size for size in range(1, _MOST_ROWS + 1) if recurrence.batch % size == 0]
    unroll = [size for size in _UNROLL if steps % size == 0]
    return ChoiceLists(RecurrentProgram.name, {"units": units, "rows": tuple(rows), "unroll": unroll})


def _fits(recurrence: Recurrence, tiling: Tiling, instruction: Instruction | None) -> bool:
    """Whether the sums of a tile fit the registers, beside weights and data; of numbers, the compiler sees to it."""
    if instruction is None:
        return True
    rows, vectors = tiling.rows + instruction.signed, recurrence.gates * tiling.units // instruction.lanes
    return rows * vectors + vectors + rows - tiling.rows + 1 <= instruction.registers


def _misfit(
    recurrence: Recurrence, variant: str, tiling: Tiling, machine: Processor, instruction: Instruction | None
) -> float:
    """How far a tile is from what should be fast; 0 is best."""
    lanes = machine.lanes if instruction is None else instruction.lanes
    vectors = len(phases(recurrence)[0]) * tiling.rows * max(1, tiling.units // lanes)
    wanted = machine.registers / 2
    misfit = abs(math.log2(vectors / wanted)) + (2 if vectors > machine.registers - 2 else 0)
    if variant == STEPS and tiling.tiles(recurrence) < machine.threads:
        misfit += 2
    return misfit + 0.25 * abs(math.log2(tiling.unroll / 4))
