"""Which tilings of a narrow sum are tried first: an estimate of their times from the machine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from kintune.compiler.programs.narrow_kernel import AMX, Form, Inner, Tiling
from kintune.search.processor import Processor

__all__ = ["estimated_cycles", "promising"]

_OWN_BYTES, _SHARED_BYTES = 40.0, 8.0  # a cycle and core, from the second and from the shared cache
_PAIR_OF_TILES = 64.0  # cycles of the products of two by two tiles, for one step
_CALL = 150.0  # cycles of an inner kernel beside its products
_CHUNK = 3.0  # cycles to write 32 values of a row
_STORED = 4.0  # cycles of 16 results
_TASK = 500.0
_OWN = 0.7  # of the second cache, for the panels and rows of a task


def promising(form: Form, inner: Inner, machine: Processor, choices: Sequence[Sequence[int]]) -> list[Tiling]:
    """All tilings out of the choices, those of the least estimated time first."""
    found = [Tiling(*values) for values in itertools.product(*choices)]
    return sorted(found, key=lambda tiling: (estimated_cycles(form, inner, tiling, machine), tiling))


def estimated_cycles(form: Form, inner: Inner, tiling: Tiling, machine: Processor) -> float:
    """The estimated cycles of one core that has as many tasks as any."""
    rows = tiling.units * inner.rows
    blocks = form.images * -(-form.rows // rows)
    own = -(-form.panels // tiling.parts)
    parts = -(-form.panels // own)
    tasks = -(-blocks * parts // machine.threads)
    packed = rows * form.steps * _CHUNK * (1.0 if form.runs == 1 else 1.3)
    groups, cycles = tiling.units, 1.0 * inner.rows * inner.columns
    if inner.kind == AMX:
        groups, cycles = -(-tiling.units // 2), _PAIR_OF_TILES
    panel = form.steps * 32 * inner.columns * 2
    row_bytes = rows * form.steps * 64
    part = -(-form.steps // tiling.depth)
    read = part * 64 * (inner.rows * (2 if inner.kind == AMX else 1))  # of the rows, by one call
    inside = machine.caches[0] * 0.6
    again = 0.0 if row_bytes <= inside else read / _OWN_BYTES
    fits = part * 32 * inner.columns * 2 <= inside
    again += 0.0 if fits else part * 32 * inner.columns * 2 / _OWN_BYTES
    call = max(part * cycles, again) + _CALL
    weights = own * panel
    speed = _OWN_BYTES if weights + row_bytes <= _OWN * machine.caches[1] else _SHARED_BYTES
    first = weights / _SHARED_BYTES + (tasks - 1) * weights / speed
    products = own * tiling.depth * groups * call
    results = own * rows * (inner.columns / 16) * _STORED
    return tasks * (packed + products + results + _TASK) + 0.5 * first
