"""The equations of recurrent cells, as expressions of a kernel's text.

All kernels of recurrent layers are written with them: the plain one, the fast ones for CPUs, and that for GPUs.  Gates
are given as expressions too: the sum of a gate's products, without activation.  ONNX's LSTM, GRU and RNN define them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kintune.models.recurrence import ACTIVATIONS, PEEPHOLES, Recurrence

__all__ = ["ACTIVATION_FUNCTIONS", "QuantisedState", "Unit"]

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


class Unit(NamedTuple):
    """One unit of a layer where step `s` of a kernel's text computes it: its direction, sequence and number.

    These are expressions.  `total(gate)` gives the sum of a gate's products, without what is projected from the input.
    """

    r: Recurrence
    direction: str
    sequence: str
    number: str
    total: Callable[[int], str]

    @property
    def where(self) -> str:
        """The indices of the unit in a state."""
        return f"{self.direction}, {self.sequence}, {self.number}"

    @property
    def output(self) -> str:
        """The element of the output of this step."""
        return f"y[{self.r.time('s', self.direction, self.sequence)}, {self.where}]"

    def projected(self, gate: int) -> str:
        """What a gate gets from the input."""
        time = self.r.time("s", self.direction, self.sequence)
        return f"projected[{time}, {self.sequence}, {self.direction}, {gate}, {self.number}]"

    def gate(self, gate: int) -> str:
        """A gate without activation."""
        return f"{self.total(gate)} + {self.projected(gate)}"

    def opened(self, gate: int) -> str:
        """The value of a GRU's gate."""
        return self._activated(_GATE, self.gate(gate))

    def kept(self, value: str, otherwise: str) -> str:
        """`value` while step `s` is within the sequence, else `otherwise`."""
        return f"T.Select(s < lengths[{self.sequence}], {value}, {otherwise})" if self.r.lengths else value

    def lstm_cell(self, last: str) -> str:
        """The new cell of an LSTM; `last` is the previous one."""
        forget = f"(T.float32(1) - {self._peeping(0, last)})" if self.r.coupled else self._peeping(PEEPHOLES - 1, last)
        return f"{forget} * {last} + {self._peeping(0, last)} * {self._activated(_NEW, self.gate(3))}"

    def lstm_hidden(self, cell: str) -> str:
        """The new state of an LSTM; `cell` is the new cell."""
        return f"{self._peeping(1, cell)} * {self._activation(_OUT, cell)}"

    def gru_state(self, update: str, new: str, last: str) -> str:
        """The new state of a GRU; `update` is the value of its gate, `new` the input of the new value."""
        return f"(T.float32(1) - {update}) * {self._activated(_NEW, new)} + {update} * {last}"

    def rnn_state(self) -> str:
        """The new state of an RNN."""
        return self._activated(_GATE, self.gate(0))

    def _peeping(self, gate: int, cell: str) -> str:
        """The value of a gate of an LSTM, which may see a cell."""
        seen = f" + peepholes[{self.direction}, {gate}, {self.number}] * {cell}" if self.r.peepholes else ""
        return self._activated(_GATE, f"{self.gate(gate)}{seen}")

    def _activated(self, role: int, x: str) -> str:
        """The activation of an expression, limited where the recurrence limits it."""
        clip = self.r.clip
        return self._activation(role, f"T.max(T.float32({-clip!r}), T.min(T.float32({clip!r}), {x}))" if clip else x)

    def _activation(self, role: int, x: str) -> str:
        """The activation in this place of `ACTIVATIONS`, applied to an expression."""
        usual = ACTIVATIONS[self.r.cell]
        given = self.r.activations or usual * self.r.directions
        each = [_applied(given[number * len(usual) + role], x) for number in range(self.r.directions)]
        return each[0] if len(set(each)) == 1 else f"T.Select({self.direction} == 0, {each[0]}, {each[1]})"


def _applied(name: str, x: str) -> str:
    name, *numbers = name.split(":")
    text, _ = ACTIVATION_FUNCTIONS[name]
    parameters = {key: f"T.float32({number})" for key, number in zip("ab", numbers, strict=False)}
    return f"({text.format(x=f'({x})', **parameters)})"


class QuantisedState(NamedTuple):
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
