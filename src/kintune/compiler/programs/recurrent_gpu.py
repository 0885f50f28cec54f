"""Recurrent layers on a GPU: a thread block for each sequence and direction, whose threads share its units.

A kernel runs on a GPU only if its loops are bound to threads.  This is the schedule that binds them; it is not tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from kintune.compiler.programs.program import pattern_of
from kintune.compiler.tir import SCHEDULED
from kintune.models.recurrence import GRU, LSTM, Recurrence, parse_recurrence
from kintune.models.recurrent_equations import QuantisedState, Unit

__all__ = ["spread_recurrence"]

_WARP = 32
_MOST_THREADS = 512
_QUANTISED = QuantisedState("bounds[0]", "bounds[1]", "counts[0]", "counts[1]")  # each thread finds out all of it
_SYNC = 'T.evaluate(T.tvm_storage_sync("shared"))'


def spread_recurrence(function: Any, _module: tvm.IRModule, _context: Any) -> Any:
    """Return an unscheduled recurrent kernel with its loops bound to threads, and any other function as it is."""
    if not isinstance(function, tirx.PrimFunc) or SCHEDULED in (function.attrs or {}):
        return function
    recurrence = parse_recurrence(pattern_of(function))
    if recurrence is None:
        return function
    from tvm.script import tirx as script  # not the module tvm.tirx, as which the parser's defaults would resolve it

    spread = tvm.script.from_source("\n".join(_Kernel(recurrence).lines()), extra_vars={"T": script})
    for name, value in function.attrs.items():
        spread = spread.with_attr(name, value)
    return spread.with_attr(SCHEDULED, True)


_BOUNDS = [
    'bounds = T.sblock_alloc_buffer((2,), scope="local")',
    'counts = T.sblock_alloc_buffer((2,), "int32", scope="local")',
]


class _Kernel:
    """The text of the kernel: thread `lane` computes the units `lane`, `lane + threads` and so on.

    It keeps the sums of their gates to itself.  States are in `last_h` and `last_c`.  Where a product needs all reset
    gates, `y` has the reset states meanwhile.
    """

    def __init__(self, recurrence: Recurrence) -> None:
        self.r = recurrence
        self.threads = min(-(-recurrence.hidden // _WARP) * _WARP, _MOST_THREADS)
        self.rounds = -(-recurrence.hidden // self.threads)
        direction, sequence = f"(block // {recurrence.batch})", f"(block % {recurrence.batch})"
        number = f"(i * {self.threads} + lane)"
        self.unit = Unit(recurrence, direction, sequence, number, lambda gate: f"sums[i, {gate}]")
        self.state, self.cell = f"last_h[{self.unit.where}]", f"last_c[{self.unit.where}]"

    def lines(self) -> list[str]:
        r = self.r
        first = [f"{self.state} = {r.initial('initial_h', self.unit.where, self.unit.sequence)}"]
        if r.cell == LSTM:
            first.append(f"{self.cell} = {r.initial('initial_c', self.unit.where, self.unit.sequence)}")
        body = [
            f'sums = T.sblock_alloc_buffer(({self.rounds}, {r.gates}), scope="local")',
            *(_BOUNDS if r.quantised else []),
            *self._units(first),
            _SYNC,
            f"for s in T.serial({r.steps}):",
            *_indented(self._step()),
        ]
        return [
            "@T.prim_func(s_tir=True, private=True)",
            f"def main({r.parameters}):",
            f'    for block in T.thread_binding({r.directions * r.batch}, thread="blockIdx.x"):',
            f'        for lane in T.thread_binding({self.threads}, thread="threadIdx.x"):',
            '            with T.sblock("recurrence"):',
            *_indented(body, 4),
        ]

    def _step(self) -> list[str]:
        unit, last = self.unit, self.cell
        if self.r.cell == LSTM:
            cell = f"{last} = {unit.kept(unit.lstm_cell(last), last)}"
            return self._phase(range(4), self._read("last_h"), [cell], unit.lstm_hidden(last))
        if self.r.cell == GRU:
            return self._gru()
        return self._phase([0], self._read("last_h"), [], unit.rnn_state())

    def _gru(self) -> list[str]:
        unit, state, update = self.unit, self.state, "sums[i, 0]"
        if self.r.reset_after:
            bias = f"bias[{unit.direction}, {unit.number}]"
            before = [
                f"{update} = {unit.opened(0)}",
                f"sums[i, 1] = {unit.opened(1)} * (sums[i, 2] + {bias})",
            ]
            hidden = unit.gru_state(update, f"{unit.projected(2)} + sums[i, 1]", state)
            return self._phase(range(3), self._read("last_h"), before, hidden)
        resets = [f"{update} = {unit.opened(0)}", f"{unit.output} = {unit.opened(1)} * {state}"]
        reset = self._read("y", f"{self.r.time('s', unit.direction, unit.sequence)}, ")
        return [
            *self._products([0, 1], self._read("last_h")),
            *self._units(resets),
            _SYNC,
            *self._phase([2], reset, [], unit.gru_state(update, unit.gate(2), state)),
        ]

    def _phase(self, gates: Sequence[int], source: str, before: Sequence[str], hidden: str) -> list[str]:
        """Compute the gates, then the new states, which are written once all threads have read the old ones."""
        cell = [
            *before,
            f"{self.state} = {self.unit.kept(hidden, self.state)}",
            f"{self.unit.output} = {self.unit.kept(self.state, 'T.float32(0)')}",
        ]
        return [*self._products(gates, source), _SYNC, *self._units(cell), _SYNC]

    def _products(self, gates: Sequence[int], source: str) -> list[str]:
        zeros = [f"sums[i, {gate}] = T.float32(0)" for gate in gates]
        weight = f"recurrent[{self.unit.direction}, k, {{}}, {self.unit.number}]"
        before, after = [], []
        if self.r.quantised:
            before, source, weight = (
                _QUANTISED.by_steps(source, self.r.hidden),
                _QUANTISED.level(source),
                f'T.cast({weight}, "float32")',
            )
            places = [f"{self.unit.direction}, {g}, {self.unit.number}" for g in gates]
            sums = [f"sums[i, {g}]" for g in gates]
            after = [f"{each} = {_QUANTISED.product(each, at)}" for each, at in zip(sums, places, strict=True)]
        each = [f"sums[i, {gate}] = sums[i, {gate}] + {source} * {weight.format(gate)}" for gate in gates]
        return [*before, *self._units([*zeros, f"for k in T.serial({self.r.hidden}):", *_indented(each), *after])]

    def _read(self, tensor: str, before: str = "") -> str:
        """The element of unit `k` in a tensor."""
        return f"{tensor}[{before}{self.unit.direction}, {self.unit.sequence}, k]"

    def _units(self, lines: Sequence[str]) -> list[str]:
        """For each unit of the thread."""
        return [
            f"for i in T.serial({self.rounds}):",
            f"    if {self.unit.number} < {self.r.hidden}:",
            *_indented(lines, 2),
        ]


def _indented(lines: Sequence[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line for line in lines]
