"""The text of a recurrent kernel: panels of weights, sums in registers, gates and states in vectors.

States have two places, which are read and written in turns, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from kintune.compiler.kernels.calls import IMPORT
from kintune.compiler.kernels.instructions import WORD_BYTES, Instruction, fused
from kintune.compiler.kernels.microkernel import Kernel, text_of
from kintune.models.recurrence import GRU, LSTM, VECTOR, Recurrence
from kintune.models.recurrent_equations import QuantisedState, Unit

__all__ = ["ROWS", "SINGLE", "STEPS", "Tiling", "kernels_of", "recurrent_text"]

ROWS, SINGLE, STEPS = "rows", "single", "steps"

_INDENT = "    "
_REGISTERS = 32  # by which kernels are named
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


def _phases(recurrence: Recurrence) -> tuple[tuple[int, ...], ...]:
    """The gates of each pass through all units in a step: a GRU may need all reset gates before its last product."""
    if recurrence.cell == GRU and not recurrence.reset_after:
        return (0, 1), (2,)
    return (tuple(range(recurrence.gates)),)


def kernels_of(
    recurrence: Recurrence, tiling: Tiling, instruction: Instruction | None, lanes: int = VECTOR
) -> list[Kernel]:
    """The micro-kernels of the phases: by the instruction for bytes, if there is one, or in fp32 in so many lanes."""
    units, rows, unroll = tiling
    multiplies = instruction or fused(min(units, lanes), _REGISTERS)
    steps = recurrence.hidden if instruction is None else recurrence.padded // WORD_BYTES
    columns = (len(gates) * units for gates in _phases(recurrence))
    return [Kernel(multiplies, rows, number // multiplies.lanes, steps, unroll) for number in columns]


def recurrent_text(recurrence: Recurrence, variant: str, tiling: Tiling, instruction: Instruction | None = None) -> str:
    """The kernel as a text for TVM's parser; `variant` is `ROWS`, `STEPS` or `SINGLE`.

    A layer that is quantised multiplies bytes by the `instruction`; without one, it multiplies their values in fp32.
    """
    return "\n".join(_Kernel(recurrence, variant, tiling, instruction).lines())


class _Kernel:
    def __init__(self, recurrence: Recurrence, variant: str, tiling: Tiling, instruction: Instruction | None) -> None:
        self.r = recurrence
        self.instruction = instruction
        self.variant = variant
        self.units, self.rows, _ = tiling
        self.tiles = tiling.tiles(recurrence)
        self.blocks = recurrence.batch // tiling.rows
        self.kernels = dict(zip(_phases(recurrence), kernels_of(recurrence, tiling, instruction), strict=True))

    def lines(self) -> list[str]:
        r = self.r
        state = (r.directions, r.batch, r.hidden)
        kind = "int8" if self.instruction else "float32"
        body = [f'panels = T.sblock_alloc_buffer({self._panels}, "{kind}")']
        body.append(f"state = T.sblock_alloc_buffer({(2, *state)})")
        if r.quantised:
            body += _allocated({"step": "float32", "low": "float32", "zero": "int32", "total": "int32"}, state[:2])
            body += _allocated({"levels": "uint8" if self.instruction else "float32"}, (*state[:2], r.padded))
        if len(self.kernels) > 1:
            body += [f"{name} = T.sblock_alloc_buffer({state})" for name in ("update", "reset")]
        body += self._packed()
        body += _within('with T.sblock("recurrence"):', [*self._regions(), *self._recurrence()])
        return [
            "@T.prim_func(s_tir=True, private=True)",
            *_within(f"def main({r.parameters}):", _within('with T.sblock("root"):', body)),
        ]

    @property
    def _panels(self) -> tuple[int, int, int]:
        """The shape of all weights in panels, by directions and tiles."""
        r, steps = self.r, self.r.padded if self.instruction else self.r.hidden
        return r.directions, r.padded // self.units, steps * r.gates * self.units

    def _first(self, gates: Sequence[int]) -> int:
        """Where the weights of a phase begin in a panel; no layer of bytes has several."""
        return self.r.hidden * gates[0] * self.units

    def _packed(self) -> list[str]:
        """The weights are put into panels, once: those of the first phase, then those of the next."""
        r, units, instruction = self.r, self.units, self.instruction
        source = value = "recurrent[vd, vk, vg, vu]"
        steps, at = r.hidden, ""
        for gates in reversed(self.kernels):
            column = f"(vg - {gates[0]}) * {units} + vu % {units}"
            place = f"{self._first(gates)} + vk * {len(gates) * units} + {column}"
            at = f"T.Select(vg <= {gates[-1]}, {place}, {at})" if at else place
        if instruction:  # bytes that are multiplied at once lie side by side
            row = f"vk // {WORD_BYTES} * {r.gates * units} + vg * {units} + vu % {units}"
            at, steps = f"({row}) * {WORD_BYTES} + vk % {WORD_BYTES}", r.padded
            source = f"recurrent[vd, T.min(vk, {r.hidden - 1}), vg, vu]"
            value = f"T.Select(vk < {r.hidden}, {source}, T.int8(0))" if r.padded > r.hidden else source
        elif r.quantised:
            value = f'T.cast({source}, "float32")'
        target = f"panels[vd, vu // {units}, {at}]"
        block = [
            'vd, vk, vg, vu = T.axis.remap("SSSS", [d, k, g, u])',
            f"T.reads({source})",
            f"T.writes({target})",
            'T.sblock_attr({"meta_schedule.layout_rewrite_preproc": True})',
            f"{target} = {value}",
        ]
        grid = f"{r.directions}, {steps}, {r.gates}, {r.padded}"
        return _within(f"for d, k, g, u in T.grid({grid}):", _within('with T.sblock("panels"):', block))

    def _regions(self) -> list[str]:
        """What the recurrence reads and writes; the parser does not find out what the micro-kernel does."""
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
        if self.variant == ROWS:
            direction, block = _parted(r.directions, blocks)
            rows = [f"{block} * {self.rows} + {row}" for row in range(self.rows)]
            body = [line for row in rows for line in self._levels(f"{direction}, {row}")]
            for gates in self.kernels:
                body += _loop("n", "serial", tiles, self._tile(_Place(direction, "n", f"{block} * {self.rows}"), gates))
            return _loop("task", "parallel", r.directions * blocks, _loop("s", "serial", r.steps, body))
        direction, tile = _parted(r.directions, tiles)
        body = _within(f"for d, b in T.grid({r.directions}, {r.batch}):", self._levels("d, b")) if r.quantised else []
        for gates in self.kernels:
            inner = self._tile(_Place(direction, tile, f"m * {self.rows}"), gates)
            kind = "parallel" if self.variant == STEPS else "serial"
            body += _loop("task", kind, r.directions * tiles, _loop("m", "serial", blocks, inner))
        return _loop("s", "serial", r.steps, body)

    def _tile(self, place: _Place, gates: tuple[int, ...]) -> list[str]:
        """The gates of one tile, and what follows from them.

        Once all sequences of the tile have ended, states are carried over and outputs are zero.
        """
        size = self.rows * len(gates) * self.units
        lines = [*self._regions(), f"sums = T.sblock_alloc_buffer(({size},))"]
        lines += [f'products = T.sblock_alloc_buffer(({size},), "int32")'] if self.instruction else []
        body = [*self._products(place, gates), *self._units(place, partial(self._cells, place, gates))]
        if not self.r.lengths:
            return _within('with T.sblock("tile"):', [*lines, *body])
        running = " or ".join(f"s < lengths[{place.first} + {row}]" for row in range(self.rows))
        lines += _within(f"if {running}:", body)
        if gates == tuple(self.kernels)[-1]:  # the others write nothing that outlives a step
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

    def _products(self, place: _Place, gates: tuple[int, ...]) -> list[str]:
        """The sums of the gates, of each unit's state times its weights: a call of the micro-kernel."""
        r, kernel = self.r, self.kernels[gates]
        name, text = (made := text_of(kernel)).name, made.whole
        data, kind, line = ("reset" if gates[0] else "state"), "float32", r.hidden
        if r.quantised:
            data, kind, line = "levels", "uint8" if self.instruction else "float32", r.padded
        sequence = f"{place.direction} * {r.batch} + {place.first}"
        before = f"{_NOW} * {r.directions * r.batch} + " if data == "state" else ""
        _, tiles, values = self._panels
        panel = f"({place.direction} * {tiles} + {place.tile}) * {values} + {self._first(gates)}"
        size = 1 if self.instruction else WORD_BYTES
        places = [
            (data, kind, f"(({before}{sequence}) + {row}) * {line}", kernel.row_bytes // size)
            for row in range(self.rows)
        ]
        places.append(("panels", "int8" if self.instruction else "float32", panel, kernel.panel_bytes // size))
        sums = ("products", "int32") if self.instruction else ("sums", "float32")
        places.append((*sums, "0", kernel.sums_bytes // WORD_BYTES))
        arguments = ", ".join(
            f'T.tvm_access_ptr("{kind}", {each}.data, {offset}, {extent}, 3)' for each, kind, offset, extent in places
        )
        call = [f'T.evaluate(T.call_extern("int32", "{name}", {arguments}))']
        lines = _within(f'with T.attr(0, "{IMPORT}", {text!r}):', call)
        return lines + (self._scaled(place) if r.quantised else [])

    def _scaled(self, place: _Place) -> list[str]:
        """The sums of products of levels become those of states and weights."""
        lines: list[str] = []
        for row in range(self.rows):
            quantised = _quantised(f"{place.direction}, {place.first} + {row}")
            for gate in range(self.r.gates):
                at = f"{(row * self.r.gates + gate) * self.units} + v"
                total = f'T.cast(products[{at}], "float32")' if self.instruction else f"sums[{at}]"
                where = f"{place.direction}, {gate}, {place.tile} * {self.units} + v"
                lines += _vector(self.units, f"sums[{at}] = {quantised.product(total, where)}")
        return lines

    def _levels(self, where: str) -> list[str]:
        """The state of the sequence `where` (direction and sequence) is quantised; nothing where it is not."""
        r, q = self.r, _quantised(where)
        if not r.quantised:
            return []
        whole = r.hidden // VECTOR * VECTOR
        state, level = f"state[{_NOW}, {where}, {{}}]", f"levels[{where}, {{}}]"
        stored = 'T.cast({}, "uint8")' if self.instruction else "{}"

        def each(statements: Sequence[str], rest: Sequence[str]) -> list[str]:
            """Statements for the vectors of the units at `k`, and for each of the rest."""
            vectors = [line for each in statements for line in _vector(VECTOR, each.replace("@", f"w * {VECTOR} + v"))]
            lines = _loop("w", "serial", whole // VECTOR, vectors) if whole else []
            if whole < r.hidden:
                single = [each.replace("@", f"{whole} + k") for each in rest]
                lines += _loop("k", "serial", r.hidden - whole, single)
            return lines

        at = state.format("@")
        put = f"{level.format('@')} = {stored.format(q.level(at))}"
        body = [
            'least = T.sblock_alloc_buffer((16,), scope="local")',  # whose memory other buffers may not use afterwards
            'most = T.sblock_alloc_buffer((16,), scope="local")',
            'parts = T.sblock_alloc_buffer((16,), "int32", scope="local")',
            *_vector(VECTOR, "least[v] = T.float32(0)"),
            *_vector(VECTOR, "most[v] = T.float32(0)"),
            *_vector(VECTOR, "parts[v] = 0"),
            f"{q.low} = T.float32(0)",
            f"{q.step} = T.float32(0)",
            f"{q.total} = 0",
            *each(
                [f"least[v] = T.min(least[v], {at})", f"most[v] = T.max(most[v], {at})"],
                [f"{q.low} = T.min({q.low}, {at})", f"{q.step} = T.max({q.step}, {at})"],
            ),
            *_loop(
                "k",
                "serial",
                VECTOR,
                [f"{q.low} = T.min({q.low}, least[k])", f"{q.step} = T.max({q.step}, most[k])"],
            ),
            *q.of_range(),
            *each(
                [put, f'parts[v] = parts[v] + T.cast({level.format("@")}, "int32")'],
                [put, f'{q.total} = {q.total} + T.cast({level.format("@")}, "int32")'],
            ),
            *_loop("k", "serial", VECTOR, [f"{q.total} = {q.total} + parts[k]"]),
        ]
        if self.instruction and r.padded > r.hidden:
            body += _loop("k", "serial", r.padded - r.hidden, [f"{level.format(f'{r.hidden} + k')} = T.uint8(0)"])
        return _within('with T.sblock("levels"):', body)

    def _cells(self, place: _Place, gates: Sequence[int], lanes: int) -> list[str]:
        """What follows from the gates, for the first `lanes` units of the tile."""
        cells = (self._cell(place, row, gates).statements(gates) for row in range(self.rows))
        return [line for statements in cells for statement in statements for line in _vector(lanes, statement)]

    def _ended(self, place: _Place, lanes: int) -> list[str]:
        """What a step does after the end of all sequences of the tile."""
        cells = (self._cell(place, row, ()).ended() for row in range(self.rows))
        return [line for statements in cells for statement in statements for line in _vector(lanes, statement)]

    def _cell(self, place: _Place, row: int, gates: Sequence[int]) -> _Cell:
        """The unit in lane `v` of a row of the tile."""
        number = f"{place.tile} * {self.units} + v"

        def total(gate: int) -> str:
            return f"sums[{(row * len(gates) + gates.index(gate)) * self.units} + v]"

        return _Cell(self.r, place.direction, f"{place.first} + {row}", number, total)


class _Cell(Unit):
    """The statements of a cell, for one unit of a tile."""

    def statements(self, gates: Sequence[int]) -> list[str]:
        if self.r.cell == LSTM:
            return self._lstm()
        if self.r.cell == GRU:
            if self.r.reset_after:
                return self._gru_reset_after()
            return self._gru_gates() if 0 in gates else self._gru_hidden()
        return [f"{self.total(0)} = {self.rnn_state()}", *self._states(self.total(0))]

    def ended(self) -> list[str]:
        """The state stays, and the output is 0."""
        return [f"state[{_NEXT}, {self.where}] = {self._state}", f"{self.output} = T.float32(0)"]

    def _lstm(self) -> list[str]:
        cell, hidden, last = self.total(2), self.total(1), f"last_c[{self.where}]"
        return [
            f"{cell} = {self.lstm_cell(last)}",
            f"{hidden} = {self.lstm_hidden(cell)}",
            f"{last} = {self.kept(cell, last)}",
            *self._states(hidden),
        ]

    def _gru_reset_after(self) -> list[str]:
        update, reset, hidden = map(self.total, range(3))
        return [
            f"{update} = {self.opened(0)}",
            f"{reset} = {self.opened(1)} * ({hidden} + bias[{self.direction}, {self.number}])",
            f"{hidden} = {self.gru_state(update, f'{self.projected(2)} + {reset}', self._state)}",
            *self._states(hidden),
        ]

    def _gru_gates(self) -> list[str]:
        return [
            f"update[{self.where}] = {self.opened(0)}",
            f"reset[{self.where}] = {self.opened(1)} * {self._state}",
        ]

    def _gru_hidden(self) -> list[str]:
        update, hidden = f"update[{self.where}]", self.total(2)
        return [f"{hidden} = {self.gru_state(update, self.gate(2), self._state)}", *self._states(hidden)]

    def _states(self, hidden: str) -> list[str]:
        return [
            f"state[{_NEXT}, {self.where}] = {self.kept(hidden, self._state)}",
            f"{self.output} = {self.kept(hidden, 'T.float32(0)')}",
        ]

    @property
    def _state(self) -> str:
        return f"state[{_NOW}, {self.where}]"


def _quantised(where: str) -> QuantisedState:
    """How the state of the sequence `where` (direction and sequence) is quantised."""
    return QuantisedState(*(f"{name}[{where}]" for name in ("low", "step", "zero", "total")))


def _allocated(buffers: Mapping[str, str], shape: Sequence[int]) -> list[str]:
    return [f'{name} = T.sblock_alloc_buffer({tuple(shape)}, "{dtype}")' for name, dtype in buffers.items()]


def _whole(name: str, shape: Sequence[int]) -> str:
    return f"{name}[{', '.join(f'0:{extent}' for extent in shape)}]"


def _within(head: str, body: Iterable[str]) -> list[str]:
    return [head, *(_INDENT + line for line in body)]


def _loop(variable: str, kind: str, extent: int, body: Iterable[str]) -> list[str]:
    return _within(f"for {variable} in T.{kind}({extent}):", body)


def _vector(lanes: int, statement: str) -> list[str]:
    return _loop("v", "vectorized", lanes, [statement])


def _parted(outer: int, inner: int) -> tuple[str, str]:
    """The two indices that the number of a task has, as expressions."""
    return ("0", "task") if outer == 1 else (f"(task // {inner})", f"(task % {inner})")
