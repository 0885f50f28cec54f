"""Which tilings of a sum in panels are tried first: an estimate of their times from the machine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kintune.compiler.programs.panel_form import AMX, FMA, Form, Inner, Tiling
from kintune.search.processor import Processor

__all__ = ["estimated_cycles", "promising"]

_OWN_BYTES, _SHARED_BYTES = 40.0, 8.0  # a cycle and core, from the second and from the shared cache
_PAIR_OF_TILES = 64.0  # cycles of the products of two by two tiles, for one step
_CALL = 150.0  # cycles of a call of an inner kernel beside its products
_MOVED = 0.15  # cycles of a byte that is written as a row for the inner kernel
_STORED = 10.0  # cycles of 16 results
_TASK = 500.0
_INSIDE, _OWN = 0.6, 0.7  # of the first and second cache, for what is read again


def promising(form: Form, inner: Inner, machine: Processor, choices: Sequence[Sequence[int]]) -> list[Tiling]:
    """All tilings out of the choices, those of the least estimated time first."""
    found = [Tiling(*values) for values in itertools.product(*choices)]
    return sorted(found, key=lambda tiling: (estimated_cycles(form, inner, tiling, machine), tiling))


def estimated_cycles(form: Form, inner: Inner, tiling: Tiling, machine: Processor) -> float:
    """The estimated cycles of the core that has the most tasks."""
    rows = tiling.units * inner.rows
    blocks = form.images * -(-form.rows // rows)
    own = -(-form.panels // tiling.parts)
    parts = -(-form.panels // own)
    tasks = -(-blocks * parts // machine.threads)
    steps = -(-form.steps // tiling.depth)
    at_once = inner.rows
    groups = tiling.units
    cycles = inner.rows * inner.columns * (1.0 if inner.kind != FMA else 1 / 32)
    if inner.kind == AMX:
        groups, cycles, at_once = -(-tiling.units // 2), _PAIR_OF_TILES, 2 * inner.rows
    value = inner.step * inner.size
    row_bytes, panel_bytes = form.steps * value, form.steps * value * inner.columns
    inside = _INSIDE * machine.caches[0]
    read = 0.0 if rows * row_bytes <= inside else steps * value * at_once / _OWN_BYTES
    read += 0.0 if steps * value * inner.columns <= inside else steps * value * inner.columns / _OWN_BYTES
    products = own * tiling.depth * groups * (max(steps * cycles, read) + _CALL)
    weights = own * panel_bytes
    fits = weights + rows * row_bytes <= _OWN * machine.caches[1]
    again = (tasks - 1) * weights / (_OWN_BYTES if fits else _SHARED_BYTES)
    packed = rows * row_bytes * _MOVED * (1.0 if form.runs == form.pieces == 1 else 1.3)
    results = own * rows * (inner.columns / 16) * _STORED
    return tasks * (packed + products + results + _TASK) + 0.5 * (weights / _SHARED_BYTES + again)
