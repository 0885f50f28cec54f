"""The text of a recurrent kernel: panels of weights, sums in registers, gates and states in vectors.

States have two places, which are read and written in turns, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kintune.models.recurrence import GRU, LSTM, PEEPHOLES, Recurrence

__all__ = ["ROWS", "SINGLE", "STEPS", "Tiling", "phases", "recurrent_text"]

ROWS, SINGLE, STEPS = "rows", "single", "steps"

_INDENT = "    "
_NOW, _NEXT = "s % 2", "(s + 1) % 2"


class Tiling(NamedTuple):
    """A tile has `units` hidden units of `rows` sequences; `unroll` steps of its products are written out."""

    units: int
    rows: int
    unroll: int

    def tiles(self, recurrence: Recurrence) -> int:
        """The number of tiles of a direction."""
        return -(-recurrence.hidden // self.units)


class _Place(NamedTuple):
    """Where a tile is, as expressions: its direction, its number among those of the direction, its first sequence."""

    direction: str
    tile: str
    first: str


def phases(recurrence: Recurrence) -> tuple[tuple[int, ...], ...]:
    """The gates of each pass through all units in a step: a GRU may need all reset gates before its last product."""
    if recurrence.cell == GRU and not recurrence.reset_after:
        return (0, 1), (2,)
    return (tuple(range(recurrence.gates)),)


def recurrent_text(recurrence: Recurrence, variant: str, tiling: Tiling) -> str:
    """The kernel as a text for TVM's parser; `variant` is `ROWS`, `STEPS` or `SINGLE`."""
    return "\n".join(_Kernel(recurrence, variant, tiling).lines())


class _Kernel:
    def __init__(self, recurrence: Recurrence, variant: str, tiling: Tiling) -> None:
        self.r = recurrence
        self.variant = variant
        self.units, self.rows, self.unroll = tiling
        self.tiles = tiling.tiles(recurrence)
        self.blocks = recurrence.batch // tiling.rows
        self.phases = phases(recurrence)

    def lines(self) -> list[str]:
        r = self.r
        ports = [(name, shape, "int32" if name == "lengths" else "float32") for name, shape in r.operands + r.results]
        parameters = ", ".join(f'{name}: T.Buffer({shape}, "{dtype}")' for name, shape, dtype in ports)
        state = (r.directions, r.batch, r.hidden)
        body = [f"panels = T.sblock_alloc_buffer({self._panels})", f"state = T.sblock_alloc_buffer({(2, *state)})"]
        if len(self.phases) > 1:
            body += [f"{name} = T.sblock_alloc_buffer({state})" for name in ("update", "reset")]
        body += self._packed()
        body += _within('with T.sblock("recurrence"):', [*self._regions(), *self._recurrence()])
        return [
            "@T.prim_func(s_tir=True, private=True)",
            *_within(f"def main({parameters}):", _within('with T.sblock("root"):', body)),
        ]

    @property
    def _panels(self) -> tuple[int, ...]:
        """The shape of the weights in panels; gates that are read in different phases lie apart."""
        r = self.r
        inner = (r.hidden, r.gates) if len(self.phases) == 1 else (r.gates, r.hidden)
        return (r.directions, r.padded // self.units, *inner, self.units)

    def _panel(self, direction: str, tile: str, gate: str, unit: str, place: str) -> str:
        inner = f"{unit}, {gate}" if len(self.phases) == 1 else f"{gate}, {unit}"
        return f"panels[{direction}, {tile}, {inner}, {place}]"

    def _packed(self) -> list[str]:
        """The weights are put into panels, once."""
        r = self.r
        target = self._panel("vd", f"vu // {self.units}", "vg", "vk", f"vu % {self.units}")
        source = "recurrent[vd, vk, vg, vu]"
        block = [
            'vd, vk, vg, vu = T.axis.remap("SSSS", [d, k, g, u])',
            f"T.reads({source})",
            f"T.writes({target})",
            'T.sblock_attr({"meta_schedule.layout_rewrite_preproc": True})',
            f"{target} = {source}",
        ]
        grid = f"{r.directions}, {r.hidden}, {r.gates}, {r.padded}"
        return _within(f"for d, k, g, u in T.grid({grid}):", _within('with T.sblock("panels"):', block))

    def _regions(self) -> list[str]:
        """What the recurrence reads and writes."""
        read = [("panels", self._panels), *(port for port in self.r.operands if port[0] != "recurrent")]
        reads = ", ".join(_whole(name, shape) for name, shape in read)
        writes = ", ".join(_whole(name, shape) for name, shape in self.r.results)
        return [f"T.reads({reads})", f"T.writes({writes})"]

    def _recurrence(self) -> list[str]:
        r = self.r
        grid = f"for d, b, u in T.grid({r.directions}, {r.batch}, {r.hidden}):"
        first = [f"state[0, d, b, u] = {r.initial('initial_h', 'd, b, u', 'b')}"]
        if r.cell == LSTM:
            first.append(f"last_c[d, b, u] = {r.initial('initial_c', 'd, b, u', 'b')}")
        last = [f"last_h[d, b, u] = state[{r.steps % 2}, d, b, u]"]
        return [*_within(grid, first), *self._loops(), *_within(grid, last)]

    def _loops(self) -> list[str]:
        """The loop over time, and those around it and in it."""
        r, blocks, tiles = self.r, self.blocks, self.tiles
        body: list[str] = []
        if self.variant == ROWS:
            direction, block = _parted("task", r.directions, blocks)
            for gates in self.phases:
                body += _loop("n", "serial", tiles, self._tile(_Place(direction, "n", f"{block} * {self.rows}"), gates))
            return _loop("task", "parallel", r.directions * blocks, _loop("s", "serial", r.steps, body))
        direction, tile = _parted("task", r.directions, tiles)
        for gates in self.phases:
            inner = self._tile(_Place(direction, tile, f"m * {self.rows}"), gates)
            kind = "parallel" if self.variant == STEPS else "serial"
            body += _loop("task", kind, r.directions * tiles, _loop("m", "serial", blocks, inner))
        return _loop("s", "serial", r.steps, body)

    def _tile(self, place: _Place, gates: Sequence[int]) -> list[str]:
        """The gates of one tile, and what follows from them.

        Once all sequences of the tile have ended, states are carried over and outputs are zero.
        """
        sums = [_sum(row, gate) for row in range(self.rows) for gate in gates]
        lines = [f"{name} = T.sblock_alloc_buffer(({self.units},))" for name in sums]
        body = [line for name in sums for line in _vector(self.units, f"{name}[v] = T.float32(0)")]
        body += self._products(place, gates)
        body += self._units(place, partial(self._cells, place, gates))
        if not self.r.lengths:
            return _within('with T.sblock("tile"):', [*lines, *body])
        running = " or ".join(f"s < lengths[{place.first} + {row}]" for row in range(self.rows))
        lines += _within(f"if {running}:", body)
        if gates == self.phases[-1]:  # the others write nothing that outlives a step
            lines += _within("else:", self._units(place, partial(self._ended, place)))
        return _within('with T.sblock("tile"):', lines)

    def _units(self, place: _Place, statements: Callable[[int], list[str]]) -> list[str]:
        """The statements for the tile's units, of which the last tile may have fewer."""
        whole, rest = divmod(self.r.hidden, self.units)
        if not rest:
            return statements(self.units)
        if not whole:
            return statements(rest)
        return [
            *_within(f"if {place.tile} < {whole}:", statements(self.units)),
            *_within("else:", statements(rest)),
        ]

    def _products(self, place: _Place, gates: Sequence[int]) -> list[str]:
        """The sums of the gates: each unit's state times its weights."""
        unit = f"k * {self.unroll} + j"
        body: list[str] = []
        for gate in gates:
            weights = self._panel(place.direction, place.tile, str(gate), unit, "v")
            for row in range(self.rows):
                where = f"{place.direction}, {place.first} + {row}, {unit}"
                state = f"reset[{where}]" if gate == 2 and len(self.phases) > 1 else f"state[{_NOW}, {where}]"
                name = _sum(row, gate)
                body += _vector(self.units, f"{name}[v] = {name}[v] + {state} * {weights}")
        return _loop("k", "serial", self.r.hidden // self.unroll, _loop("j", "unroll", self.unroll, body))

    def _cells(self, place: _Place, gates: Sequence[int], lanes: int) -> list[str]:
        """What follows from the gates, for the first `lanes` units of the tile."""
        cells = (_Cell(self.r, place, row, self.units) for row in range(self.rows))
        return [line for cell in cells for statement in cell.statements(gates) for line in _vector(lanes, statement)]

    def _ended(self, place: _Place, lanes: int) -> list[str]:
        """What a step does after the end of all sequences of the tile."""
        cells = (_Cell(self.r, place, row, self.units) for row in range(self.rows))
        return [line for cell in cells for statement in cell.ended() for line in _vector(lanes, statement)]


class _Cell:
    """The statements of a cell, for one unit of a tile."""

    def __init__(self, recurrence: Recurrence, place: _Place, row: int, units: int) -> None:
        self.r = recurrence
        self.row = row
        self.sequence = f"{place.first} + {row}"
        self.direction = place.direction
        self.where = f"{place.direction}, {self.sequence}, {place.tile} * {units} + v"
        self.unit = f"{place.tile} * {units} + v"
        self.time = recurrence.time("s", place.direction, self.sequence)

    def statements(self, gates: Sequence[int]) -> list[str]:
        if self.r.cell == LSTM:
            return self._lstm()
        if self.r.cell == GRU:
            if self.r.reset_after:
                return self._gru_reset_after()
            return self._gru_gates() if 0 in gates else self._gru_hidden()
        return self._rnn()

    def ended(self) -> list[str]:
        """The state stays, and the output is 0."""
        return [f"state[{_NEXT}, {self.where}] = {self._state}", f"y[{self.time}, {self.where}] = T.float32(0)"]

    def _lstm(self) -> list[str]:
        cell, hidden, last = self._sum(2), self._sum(1), f"last_c[{self.where}]"
        read = [self.r.peephole(g, self.direction, self.unit, cell if g == 1 else last) for g in range(PEEPHOLES)]
        i, o, f, c = (f"{self._gate(g)}{peephole}" for g, peephole in enumerate([*read, ""]))
        return [
            f"{cell} = T.sigmoid({f}) * {last} + T.sigmoid({i}) * T.tanh({c})",
            f"{hidden} = T.sigmoid({o}) * T.tanh({cell})",
            f"{last} = {self._kept(cell, last)}",
            *self._states(hidden),
        ]

    def _gru_reset_after(self) -> list[str]:
        update, reset, hidden = map(self._sum, range(3))
        return [
            f"{update} = T.sigmoid({self._gate(0)})",
            f"{reset} = T.sigmoid({self._gate(1)}) * ({hidden} + bias[{self.direction}, {self.unit}])",
            f"{hidden} = (T.float32(1) - {update}) * T.tanh({self._projected(2)} + {reset}) + {update} * {self._state}",
            *self._states(hidden),
        ]

    def _gru_gates(self) -> list[str]:
        return [
            f"update[{self.where}] = T.sigmoid({self._gate(0)})",
            f"reset[{self.where}] = T.sigmoid({self._gate(1)}) * {self._state}",
        ]

    def _gru_hidden(self) -> list[str]:
        update, hidden = f"update[{self.where}]", self._sum(2)
        return [
            f"{hidden} = (T.float32(1) - {update}) * T.tanh({self._gate(2)}) + {update} * {self._state}",
            *self._states(hidden),
        ]

    def _rnn(self) -> list[str]:
        hidden, total = self._sum(0), self._gate(0)
        value = f"T.max(T.float32(0), {total})" if self.r.relu else f"T.tanh({total})"
        return [f"{hidden} = {value}", *self._states(hidden)]

    def _states(self, hidden: str) -> list[str]:
        return [
            f"state[{_NEXT}, {self.where}] = {self._kept(hidden, self._state)}",
            f"y[{self.time}, {self.where}] = {self._kept(hidden, 'T.float32(0)')}",
        ]

    @property
    def _state(self) -> str:
        return f"state[{_NOW}, {self.where}]"

    def _sum(self, gate: int) -> str:
        return f"{_sum(self.row, gate)}[v]"

    def _gate(self, gate: int) -> str:
        return f"{self._sum(gate)} + {self._projected(gate)}"

    def _projected(self, gate: int) -> str:
        return f"projected[{self.time}, {self.sequence}, {self.direction}, {gate}, {self.unit}]"

    def _kept(self, value: str, otherwise: str) -> str:
        """The value while the sequence lasts."""
        return f"T.Select(s < lengths[{self.sequence}], {value}, {otherwise})" if self.r.lengths else value


def _sum(row: int, gate: int) -> str:
    return f"sum_{row}_{gate}"


def _whole(name: str, shape: Sequence[int]) -> str:
    return f"{name}[{', '.join(f'0:{extent}' for extent in shape)}]"


def _within(head: str, body: Iterable[str]) -> list[str]:
    return [head, *(_INDENT + line for line in body)]


def _loop(variable: str, kind: str, extent: int, body: Iterable[str]) -> list[str]:
    return _within(f"for {variable} in T.{kind}({extent}):", body)


def _vector(lanes: int, statement: str) -> list[str]:
    return _loop("v", "vectorized", lanes, [statement])


def _parted(variable: str, outer: int, inner: int) -> tuple[str, str]:
    """Two indices in one variable, as expressions."""
    if outer == 1:
        return "0", variable
    return f"({variable} // {inner})", f"({variable} % {inner})"
