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
from kintune.models.recurrent_equations import (
    Quantised,
    activation,
    clipped,
    gru_state,
    lstm_cell,
    lstm_hidden,
    rnn_state,
)

__all__ = ["spread_recurrence"]

_WARP = 32
_MOST_THREADS = 512
_QUANTISED = Quantised("bounds[0]", "bounds[1]", "counts[0]", "counts[1]")  # each thread finds out all of it
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
        self.direction = f"(block // {recurrence.batch})"
        self.sequence = f"(block % {recurrence.batch})"
        self.unit = f"(i * {self.threads} + lane)"
        self.where = f"{self.direction}, {self.sequence}, {self.unit}"
        self.time = recurrence.time("s", self.direction, self.sequence)

    def lines(self) -> list[str]:
        r = self.r
        first = [f"last_h[{self.where}] = {r.initial('initial_h', self.where, self.sequence)}"]
        if r.cell == LSTM:
            first.append(f"last_c[{self.where}] = {r.initial('initial_c', self.where, self.sequence)}")
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
        if self.r.cell == LSTM:
            return self._lstm()
        if self.r.cell == GRU:
            return self._gru()
        return self._phase([0], self._read("last_h"), [], rnn_state(self.r, self.direction, self._gate(0)))

    def _lstm(self) -> list[str]:
        last, gates = f"last_c[{self.where}]", list(map(self._gate, range(4)))
        cell = lstm_cell(self.r, self.direction, self.unit, gates, last)
        hidden = lstm_hidden(self.r, self.direction, self.unit, gates, last)
        return self._phase(range(4), self._read("last_h"), [f"{last} = {self._kept(cell, last)}"], hidden)

    def _gru(self) -> list[str]:
        state, update = f"last_h[{self.where}]", "sums[i, 0]"
        if self.r.reset_after:
            bias = f"bias[{self.direction}, {self.unit}]"
            before = [
                f"{update} = {self._opened(0)}",
                f"sums[i, 1] = {self._opened(1)} * (sums[i, 2] + {bias})",
            ]
            hidden = gru_state(self.r, self.direction, update, f"{self._projected(2)} + sums[i, 1]", state)
            return self._phase(range(3), self._read("last_h"), before, hidden)
        resets = [
            f"{update} = {self._opened(0)}",
            f"y[{self.time}, {self.where}] = {self._opened(1)} * {state}",
        ]
        return [
            *self._products([0, 1], self._read("last_h")),
            *self._units(resets),
            _SYNC,
            *self._phase(
                [2],
                self._read("y", f"{self.time}, "),
                [],
                gru_state(self.r, self.direction, update, self._gate(2), state),
            ),
        ]

    def _opened(self, gate: int) -> str:
        """The value of a GRU's gate."""
        return activation(self.r, 0, self.direction, clipped(self.r, self._gate(gate)))

    def _phase(self, gates: Sequence[int], source: str, before: Sequence[str], hidden: str) -> list[str]:
        """Compute the gates, then the new states, which are written once all threads have read the old ones."""
        state = f"last_h[{self.where}]"
        cell = [
            *before,
            f"{state} = {self._kept(hidden, state)}",
            f"y[{self.time}, {self.where}] = {self._kept(state, 'T.float32(0)')}",
        ]
        return [*self._products(gates, source), _SYNC, *self._units(cell), _SYNC]

    def _products(self, gates: Sequence[int], source: str) -> list[str]:
        zeros = [f"sums[i, {gate}] = T.float32(0)" for gate in gates]
        weight = f"recurrent[{self.direction}, k, {{}}, {self.unit}]"
        before, after = [], []
        if self.r.quantised:
            before, source, weight = (
                _QUANTISED.by_steps(source, self.r.hidden),
                _QUANTISED.level(source),
                f'T.cast({weight}, "float32")',
            )
            after = [
                f"sums[i, {g}] = {_QUANTISED.product(f'sums[i, {g}]', f'{self.direction}, {g}, {self.unit}')}"
                for g in gates
            ]
        each = [f"sums[i, {gate}] = sums[i, {gate}] + {source} * {weight.format(gate)}" for gate in gates]
        return [*before, *self._units([*zeros, f"for k in T.serial({self.r.hidden}):", *_indented(each), *after])]

    def _read(self, tensor: str, before: str = "") -> str:
        """The element of unit `k` in a tensor."""
        return f"{tensor}[{before}{self.direction}, {self.sequence}, k]"

    def _units(self, lines: Sequence[str]) -> list[str]:
        """For each unit of the thread."""
        return [
            f"for i in T.serial({self.rounds}):",
            f"    if {self.unit} < {self.r.hidden}:",
            *_indented(lines, 2),
        ]

    def _gate(self, gate: int) -> str:
        return f"sums[i, {gate}] + {self._projected(gate)}"

    def _projected(self, gate: int) -> str:
        return f"projected[{self.time}, {self.sequence}, {self.direction}, {gate}, {self.unit}]"

    def _kept(self, value: str, otherwise: str) -> str:
        return f"T.Select(s < lengths[{self.sequence}], {value}, {otherwise})" if self.r.lengths else value


def _indented(lines: Sequence[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line for line in lines]
