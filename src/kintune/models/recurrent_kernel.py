"""The kernel of a recurrent layer as it is imported: plain loops over time, correct and not fast.

`kintune.compiler.programs.recurrent` writes the fast one from the same `Recurrence`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relax

from kintune.models.recurrence import GRU, LSTM, VECTOR, Recurrence
from kintune.models.recurrent_equations import QuantisedState, Unit

__all__ = ["call_recurrence", "recurrent_kernel"]

_PATTERN = "kintune.pattern"  # attribute by which Kintune's own programs recognise what the kernel computes
_OPAQUE = 8  # TVM's operator pattern kOpaque: it is fused with nothing


def call_recurrence(
    builder: relax.BlockBuilder, emit: Callable[[relax.Expr], Any], recurrence: Recurrence, operands: Sequence[Any]
) -> list[Any]:
    """Call the kernel; returns `y`, `last_h`, and for an LSTM `last_c`.

    `emit` binds an expression to a variable.  See `Recurrence` for the operands and the results.

    Raises:
        ValueError: when an operand has another shape than the recurrence needs.
    """
    for (name, shape), operand in zip(recurrence.operands, operands, strict=True):
        given = tuple(int(size) for size in operand.ty.shape.values)
        if given != shape:
            raise ValueError(f"{name} of shape {given} where {shape} is needed")
    kernel = builder.add_func(recurrent_kernel(recurrence), recurrence.cell)
    types = [relax.TensorType(list(shape), "float32") for _, shape in recurrence.results]
    whole = emit(relax.call_tir(kernel, relax.Tuple(list(operands)), types))
    return [emit(relax.TupleGetItem(whole, i)) for i in range(len(types))]


def recurrent_kernel(recurrence: Recurrence) -> Any:
    """The PrimFunc; see `Recurrence` for its parameters."""
    from tvm.script import tirx  # its name is not that of a module, which the parser's own defaults take it for

    return tvm.script.from_source(_text(recurrence), extra_vars={"T": tirx})


def _text(r: Recurrence) -> str:
    lines = [
        "@T.prim_func(s_tir=True, private=True)",
        f"def {r.cell}({r.parameters}):",
        f'    T.func_attr({{"tirx.noalias": True, "op_pattern": {_OPAQUE}, "{_PATTERN}": "{r.text}"}})',
        f'    sums = T.alloc_buffer(({r.gates}, {r.padded}), "float32")',
        f'    reset = T.alloc_buffer(({r.hidden},), "float32")',
        *(_LEVELS if r.quantised else []),
        f"    for d, b in T.grid({r.directions}, {r.batch}):",
        f"        for u in T.serial({r.hidden}):",
        f"            last_h[d, b, u] = {r.initial('initial_h', 'd, b, u', 'b')}",
        *([f"            last_c[d, b, u] = {r.initial('initial_c', 'd, b, u', 'b')}"] if r.cell == LSTM else []),
        f"        for s in T.serial({r.steps}):",
    ]
    return "\n".join(lines + [" " * 12 + line for line in _step(r)])


def _step(r: Recurrence) -> list[str]:
    unit = Unit(r, "d", "b", "u", lambda gate: f"sums[{gate}, u]")
    if r.cell == GRU and not r.reset_after:
        return [
            *_products(r, 0, 2, "last_h[d, b, k]"),
            f"for u in T.serial({r.hidden}):",
            f"    sums[0, u] = {unit.opened(0)}",
            f"    reset[u] = {unit.opened(1)} * last_h[d, b, u]",
            *_products(r, 2, 1, "reset[k]"),
            f"for u in T.serial({r.hidden}):",
            *_states(unit, unit.gru_state("sums[0, u]", unit.gate(2), "last_h[d, b, u]")),
        ]
    products = _quantised_products if r.quantised else _products
    lines = [*products(r, 0, r.gates, "last_h[d, b, k]"), f"for u in T.serial({r.hidden}):"]
    if r.cell == LSTM:
        lines.append(f"    last_c[d, b, u] = {unit.kept(unit.lstm_cell('last_c[d, b, u]'), 'last_c[d, b, u]')}")
        return lines + _states(unit, unit.lstm_hidden("last_c[d, b, u]"))
    if r.cell == GRU:
        return [
            *lines,
            f"    sums[0, u] = {unit.opened(0)}",
            f"    sums[1, u] = {unit.opened(1)} * (sums[2, u] + bias[d, u])",
            *_states(unit, unit.gru_state("sums[0, u]", f"{unit.projected(2)} + sums[1, u]", "last_h[d, b, u]")),
        ]
    return lines + _states(unit, unit.rnn_state())


_LEVELS = [
    '    bounds = T.alloc_buffer((2,), "float32")',
    '    counts = T.alloc_buffer((2,), "int32")',
]
_QUANTISED = QuantisedState("bounds[0]", "bounds[1]", "counts[0]", "counts[1]")


def _quantised_products(r: Recurrence, first: int, count: int, state: str) -> list[str]:
    """Lines that compute the gates as `_products` does, with the state quantised by its own range."""
    return [
        *_QUANTISED.by_steps(state, r.hidden),
        *_products(r, first, count, _QUANTISED.level(state)),
        f"for g, u in T.grid({count}, {r.hidden}):",
        f"    sums[g, u] = {_QUANTISED.product('sums[g, u]', 'd, g, u')}",
    ]


def _products(r: Recurrence, first: int, count: int, state: str) -> list[str]:
    """Lines that compute the `count` gates from `first` on: sums over k of `state`, at unit k, times the weights."""
    gate = f"{first} + g" if first else "g"
    unit = f"w * {VECTOR} + v"
    weight = f"recurrent[d, k, {gate}, {unit}]"
    if r.quantised:
        weight = f'T.cast({weight}, "float32")'
    return [
        f"for g, u in T.grid({count}, {r.padded}):",
        f"    sums[{gate}, u] = T.float32(0)",
        f"for k, g, w in T.grid({r.hidden}, {count}, {r.padded // VECTOR}):",
        f"    for v in T.vectorized({VECTOR}):",
        f"        sums[{gate}, {unit}] = sums[{gate}, {unit}] + {state} * {weight}",
    ]


def _states(unit: Unit, hidden: str) -> list[str]:
    return [
        f"    last_h[d, b, u] = {unit.kept(hidden, 'last_h[d, b, u]')}",
        f"    {unit.output} = {unit.kept('last_h[d, b, u]', 'T.float32(0)')}",
    ]
