"""Recurrent layers on a GPU: a thread block for each sequence and direction, whose threads share its units.

It is the default schedule of such a kernel there, since threads must be bound for it to run at all; it is not tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from kintune.compiler.programs.program import pattern_of
from kintune.models.recurrence import GRU, LSTM, Recurrence, parse_recurrence

__all__ = ["spread_recurrence"]

_WARP = 32
_MOST_THREADS = 512
_SCHEDULED = "tirx.is_scheduled"
_SYNC = 'T.evaluate(T.tvm_storage_sync("shared"))'


def spread_recurrence(function: Any, _module: tvm.IRModule, _context: Any) -> Any:
    """Return a recurrent kernel that is not scheduled yet spread over threads; any other function as it is."""
    if not isinstance(function, tirx.PrimFunc) or _SCHEDULED in (function.attrs or {}):
        return function
    recurrence = parse_recurrence(pattern_of(function))
    if recurrence is None:
        return function
    from tvm.script import tirx as script  # not that of the module, which the parser's own defaults take it for

    spread = tvm.script.from_source("\n".join(_Kernel(recurrence).lines()), extra_vars={"T": script})
    for name, value in function.attrs.items():
        spread = spread.with_attr(name, value)
    return spread.with_attr(_SCHEDULED, True)


class _Kernel:
    """The text; thread `lane` has the units `lane`, `lane + threads` ..., whose gates' sums are its own."""

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
        ports = [(name, shape, "int32" if name == "lengths" else "float32") for name, shape in r.operands + r.results]
        parameters = ", ".join(f'{name}: T.Buffer({shape}, "{dtype}")' for name, shape, dtype in ports)
        first = [f"state[{self.unit}] = {r.initial('initial_h', self.where, self.sequence)}"]
        if r.cell == LSTM:
            first.append(f"last_c[{self.where}] = {r.initial('initial_c', self.where, self.sequence)}")
        body = [
            f'state = T.sblock_alloc_buffer(({r.hidden},), scope="shared")',
            f'reset = T.sblock_alloc_buffer(({r.hidden},), scope="shared")',
            f'sums = T.sblock_alloc_buffer(({self.rounds}, {r.gates}), scope="local")',
            *self._units(first),
            _SYNC,
            f"for s in T.serial({r.steps}):",
            *_indented(self._step()),
            *self._units([f"last_h[{self.where}] = state[{self.unit}]"]),
        ]
        return [
            "@T.prim_func(s_tir=True, private=True)",
            f"def main({parameters}):",
            f'    for block in T.thread_binding({r.directions * r.batch}, thread="blockIdx.x"):',
            f'        for lane in T.thread_binding({self.threads}, thread="threadIdx.x"):',
            '            with T.sblock("recurrence"):',
            *_indented(body, 4),
        ]

    def _step(self) -> list[str]:
        state, update = f"state[{self.unit}]", "sums[i, 0]"
        if self.r.cell == LSTM:
            last, gates = f"last_c[{self.where}]", [self._gate(gate) for gate in range(4)]
            cell = f"T.sigmoid({gates[2]}) * {last} + T.sigmoid({gates[0]}) * T.tanh({gates[3]})"
            return self._phase(
                range(4), "state", [f"{last} = {self._kept(cell, last)}"], f"T.sigmoid({gates[1]}) * T.tanh({last})"
            )
        if self.r.cell != GRU:
            total = self._gate(0)
            return self._phase([0], "state", [], f"T.max(T.float32(0), {total})" if self.r.relu else f"T.tanh({total})")
        gated = f"(T.float32(1) - {update}) * T.tanh({{}}) + {update} * {state}"
        if self.r.reset_after:
            bias = f"bias[{self.direction}, {self.unit}]"
            before = [
                f"{update} = T.sigmoid({self._gate(0)})",
                f"sums[i, 1] = T.sigmoid({self._gate(1)}) * (sums[i, 2] + {bias})",
            ]
            return self._phase(range(3), "state", before, gated.format(f"{self._projected(2)} + sums[i, 1]"))
        resets = [
            f"{update} = T.sigmoid({self._gate(0)})",
            f"reset[{self.unit}] = T.sigmoid({self._gate(1)}) * {state}",
        ]
        return [
            *self._products([0, 1], "state"),
            *self._units(resets),
            _SYNC,
            *self._phase([2], "reset", [], gated.format(self._gate(2))),
        ]

    def _phase(self, gates: Sequence[int], source: str, before: Sequence[str], hidden: str) -> list[str]:
        """The gates, and the new states, which are written when all threads have read the old ones."""
        state = f"state[{self.unit}]"
        cell = [
            *before,
            f"{state} = {self._kept(hidden, state)}",
            f"y[{self.time}, {self.where}] = {self._kept(state, 'T.float32(0)')}",
        ]
        return [*self._products(gates, source), _SYNC, *self._units(cell), _SYNC]

    def _products(self, gates: Sequence[int], source: str) -> list[str]:
        zeros = [f"sums[i, {gate}] = T.float32(0)" for gate in gates]
        each = [
            f"sums[i, {gate}] = sums[i, {gate}] + {source}[k] * recurrent[{self.direction}, k, {gate}, {self.unit}]"
            for gate in gates
        ]
        return self._units([*zeros, f"for k in T.serial({self.r.hidden}):", *_indented(each)])

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
