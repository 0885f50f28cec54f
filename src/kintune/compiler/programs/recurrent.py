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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import tvm

from kintune.compiler.kernels.cost import Calls, Loop, Tasks, cycles_of_tasks
from kintune.compiler.kernels.instructions import BYTES, WORD_BYTES, Instruction, best, byte_instruction
from kintune.compiler.programs.program import pattern_of
from kintune.compiler.programs.recurrent_text import ROWS, SINGLE, STEPS, Tiling, kernels_of, recurrent_text
from kintune.compiler.programs.tiling_program import TilingProgram
from kintune.compiler.space.weights import LAYOUT_FREE
from kintune.errors import BuildError
from kintune.models.recurrence import Recurrence, parse_recurrence
from kintune.search.processor import Processor

__all__ = ["RecurrentProgram"]

_RECURRENT = 1  # the position of the recurrent weights among the parameters
_UNITS = (8, 16, 32, 64)
_MOST_ROWS = 8
_UNROLL = (1, 2, 4, 8)
_LARGE = 400_000  # bytes that take a core longer to read than threads take to meet
_OWN = 0.75  # of the second cache, for weights


class _Case(NamedTuple):
    """A layer, how its work is spread over threads, and the instruction that multiplies bytes, if one does.

    It may be written for any number of steps, and of sequences.
    """

    recurrence: Recurrence
    way: str
    instruction: Instruction | None
    any_batch: bool = False


class RecurrentProgram(TilingProgram[_Case, Tiling]):
    """Writes recurrent kernels; see `kintune.models.recurrence.Recurrence` for what they compute."""

    name = "recurrent"
    version = 4
    patterns = ("lstm", "gru", "rnn")
    tiling = Tiling

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

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The layer, and how a variant computes it."""
        found = parse_recurrence(pattern_of(module["main"]))
        if found is None:
            raise BuildError("the workload is no recurrent layer")
        way, _, name = variant.partition("-")
        return _Case(found, way, byte_instruction(name) if name else None)

    def lists(self, case: _Case) -> Mapping[str, Sequence[int]]:
        """Units of a tile, sequences of a tile, and steps of the products that are written out."""
        r = case.recurrence
        steps = r.hidden if case.instruction is None else r.padded // WORD_BYTES
        return {
            "units": [size for size in _UNITS if r.padded % size == 0],
            "rows": [size for size in range(1, _MOST_ROWS + 1) if r.batch % size == 0],
            "unroll": [size for size in _UNROLL if steps % size == 0],
        }

    def fits(self, case: _Case, tiling: Tiling) -> bool:
        """Whether the sums fit the registers, beside weights and data; of numbers, the compiler sees to it."""
        kernel, signed = kernels_of(case.recurrence, tiling, case.instruction)[0], case.instruction
        if signed is None:
            return True
        sums = (tiling.rows + signed.signed) * kernel.vectors
        return sums + kernel.vectors + signed.signed + 1 <= signed.registers

    def cost(self, case: _Case, tiling: Tiling, machine: Processor) -> float | None:
        """The estimated cycles of a step of the core that has most tasks; None where the sums do not fit registers."""
        r, lanes = case.recurrence, min(machine.lanes, tiling.units)
        kernels = kernels_of(r, tiling, case.instruction, machine.lanes)
        if any((k.rows + (k.rows > 1)) * k.vectors >= machine.registers for k in kernels):
            return None
        tiles, blocks = r.directions * tiling.tiles(r), r.batch // tiling.rows
        number = {ROWS: r.directions * blocks, STEPS: tiles}.get(case.way, 1)
        each = tiles * blocks / number  # tiles of a task
        weights = sum(kernel.panel_bytes for kernel in kernels) * tiles  # of all directions
        read = weights / {ROWS: r.directions, STEPS: tiles}.get(case.way, 1)
        of_core = weights / min(number, machine.threads) if case.way == STEPS else read
        cells = Loop(each * tiling.rows * tiling.units / lanes, 2 * r.gates, r.gates, r.gates, functions=r.gates + 1)
        loops: list[Loop | Calls] = [*(Calls(kernel, each) for kernel in kernels), cells]
        tasks, is_own = Tasks(number, loops), of_core <= _OWN * machine.caches[1]
        return cycles_of_tasks(tasks._replace(own=read) if is_own else tasks._replace(shared=read), machine)

    def module(self, module: tvm.IRModule, case: _Case, tiling: Tiling, kept: frozenset[int]) -> tvm.IRModule:
        """The module whose `main` is the kernel."""
        if case.any_batch and tiling.rows > 1:
            raise BuildError(f"tiles of {tiling.rows} sequences do not divide any number of these")
        from tvm.script import tirx  # not the module tvm.tirx, as which the parser's defaults would resolve the name

        text = recurrent_text(case.recurrence, case.way, tiling, case.instruction)
        written = tvm.script.from_source(text, extra_vars={"T": tirx})
        for name, value in module["main"].attrs.items():
            written = written.with_attr(name, value)
        return tvm.IRModule({"main": written}, attrs=module.attrs)

    def opened(self, case: _Case, greatest: _Case) -> _Case:
        """The layer, to be written for any number of steps, and of sequences if a tile has one."""
        own, last = case.recurrence, greatest.recurrence
        if _apart_from_extents(own) != _apart_from_extents(last):
            return super().opened(case, greatest)
        return case._replace(any_batch=own.batch != last.batch)


def _apart_from_extents(recurrence: Recurrence) -> Recurrence:
    return replace(recurrence, steps=0, batch=0)


def _ways(recurrence: Recurrence) -> tuple[str, ...]:
    """The variants for several threads.

    A step takes a thread about as long as reading its weights from the second-level cache, and a barrier of the threads
    about a microsecond.  Where threads share sequences instead of units, each of them reads all weights of a direction.
    """
    size = 1 if recurrence.quantised else WORD_BYTES
    weights = size * recurrence.hidden * recurrence.gates * recurrence.padded
    if recurrence.directions > 1:
        return ROWS, STEPS, SINGLE
    if recurrence.batch > 1:
        return (STEPS, ROWS, SINGLE) if weights > _LARGE else (ROWS, SINGLE, STEPS)
    return (STEPS, SINGLE) if weights > _LARGE else (SINGLE, STEPS)
