"""The equations of recurrent cells, as expressions of a kernel's text.

All kernels of recurrent layers are written with them: the plain one, the fast ones for CPUs, and that for GPUs.  Gates
are given as expressions too: the sum of a gate's products, without activation.  ONNX's LSTM, GRU and RNN define them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kintune.models.recurrence import ACTIVATIONS, PEEPHOLES, Recurrence

__all__ = [
    "ACTIVATION_FUNCTIONS",
    "Quantised",
    "activation",
    "clipped",
    "gru_state",
    "lstm_cell",
    "lstm_hidden",
    "rnn_state",
]

_GATE, _NEW, _OUT = range(3)

ACTIVATION_FUNCTIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    "sigmoid": ("T.sigmoid({x})", ()),
    "tanh": ("T.tanh({x})", ()),
    "relu": ("T.max(T.float32(0), {x})", ()),
    "softsign": ("{x} / (T.float32(1) + T.abs({x}))", ()),
    "softplus": ("T.max({x}, T.float32(0)) + T.log(T.float32(1) + T.exp(-T.abs({x})))", ()),
    "leakyrelu": ("T.Select({x} >= T.float32(0), {x}, {a} * {x})", (0.01,)),
    "thresholdedrelu": ("T.Select({x} > {a}, {x}, T.float32(0))", (1.0,)),
    "elu": ("T.Select({x} >= T.float32(0), {x}, {a} * (T.exp({x}) - T.float32(1)))", (1.0,)),
    "affine": ("{a} * {x} + {b}", (1.0, 0.0)),
    "scaledtanh": ("{a} * T.tanh({b} * {x})", (1.0, 1.0)),
    "hardsigmoid": ("T.max(T.float32(0), T.min(T.float32(1), {a} * {x} + {b}))", (0.2, 0.5)),
}
"""Activation -> its expression of `x` and of its parameters `a` (alpha) and `b` (beta), and their defaults in ONNX."""


def activation(r: Recurrence, role: int, direction: str, x: str) -> str:
    """The activation in this place of `ACTIVATIONS`, applied to an expression; `direction` is an expression too."""
    usual = ACTIVATIONS[r.cell]
    given = r.activations or usual * r.directions
    each = [_applied(given[number * len(usual) + role], x) for number in range(r.directions)]
    if len(set(each)) == 1:
        return each[0]
    return f"T.Select({direction} == 0, {each[0]}, {each[1]})"


def _applied(name: str, x: str) -> str:
    name, *numbers = name.split(":")
    text, _ = ACTIVATION_FUNCTIONS[name]
    parameters = {key: f"T.float32({number})" for key, number in zip("ab", numbers, strict=False)}
    return f"({text.format(x=f'({x})', **parameters)})"


def clipped(r: Recurrence, x: str) -> str:
    """The input of an activation, limited where the recurrence limits it."""
    return f"T.max(T.float32({-r.clip!r}), T.min(T.float32({r.clip!r}), {x}))" if r.clip else x


def _peephole(r: Recurrence, gate: int, direction: str, unit: str, cell: str) -> str:
    return f" + peepholes[{direction}, {gate}, {unit}] * {cell}" if r.peepholes else ""


def lstm_cell(r: Recurrence, direction: str, unit: str, gates: Sequence[str], last: str) -> str:
    """The new cell of an LSTM; `last` is the previous one, `unit` its number, for the peepholes."""

    def gate(number: int) -> str:
        total = f"{gates[number]}{_peephole(r, number, direction, unit, last)}"
        return activation(r, _GATE, direction, clipped(r, total))

    forget = f"(T.float32(1) - {gate(0)})" if r.coupled else gate(PEEPHOLES - 1)
    return f"{forget} * {last} + {gate(0)} * {activation(r, _NEW, direction, clipped(r, gates[3]))}"


def lstm_hidden(r: Recurrence, direction: str, unit: str, gates: Sequence[str], cell: str) -> str:
    """The new state of an LSTM; `cell` is the new cell."""
    total = f"{gates[1]}{_peephole(r, 1, direction, unit, cell)}"
    return f"{activation(r, _GATE, direction, clipped(r, total))} * {activation(r, _OUT, direction, cell)}"


def gru_state(r: Recurrence, direction: str, update: str, new: str, last: str) -> str:
    """The new state of a GRU; `update` is the value of its gate, `new` the input of the new value."""
    return f"(T.float32(1) - {update}) * {activation(r, _NEW, direction, clipped(r, new))} + {update} * {last}"


def rnn_state(r: Recurrence, direction: str, total: str) -> str:
    """The new state of an RNN."""
    return activation(r, _GATE, direction, clipped(r, total))


class Quantised(NamedTuple):
    """The elements in which a kernel keeps how a state is quantised: `level = round(state / step) + zero`.

    `low` and `step` are of float32, `zero` and `total`, the sum of all levels, of int32.
    """

    low: str
    step: str
    zero: str
    total: str

    def of_range(self) -> list[str]:
        """Lines that set `step` and `zero`, after `low` and `step` were set to the least and the largest value."""
        extent = f"({self.step} - {self.low})"
        return [
            f"{self.step} = T.Select({extent} > T.float32(0), {extent} / T.float32(255), T.float32(1))",
            f'{self.zero} = T.cast(T.nearbyint(-{self.low} / {self.step}), "int32")',
        ]

    def level(self, state: str) -> str:
        """The level of a state, as float32."""
        moved = f'T.nearbyint({state} / {self.step}) + T.cast({self.zero}, "float32")'
        return f"T.max(T.float32(0), T.min(T.float32(255), {moved}))"

    def by_steps(self, state: str, steps: int) -> list[str]:
        """Lines that set all elements, from the `state` at unit `k`."""
        return [
            f"{self.low} = T.float32(0)",
            f"{self.step} = T.float32(0)",
            f"{self.total} = 0",
            f"for k in T.serial({steps}):",
            f"    {self.low} = T.min({self.low}, {state})",
            f"    {self.step} = T.max({self.step}, {state})",
            *self.of_range(),
            f"for k in T.serial({steps}):",
            f'    {self.total} = {self.total} + T.cast({self.level(state)}, "int32")',
        ]

    def product(self, total: str, where: str) -> str:
        """The product that the sum `total` of levels times weights stands for; `where` is direction, gate and unit.

        Sums of float32 are exact up to 2^24.
        """
        rest = f"{self.zero} * offsets[{where}] + {self.total} * zeros[{where}]"
        return f'({total} - T.cast({rest}, "float32")) * ({self.step} * scales[{where}])'
