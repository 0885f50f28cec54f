"""How long the tasks of a program take: an estimate, from the table of instructions and the processor.

It ranks tilings of one workload.  A nest around a micro-kernel is described by its `Work`, any other program by the
innermost loops of its tasks.  Rates are of one core of a server.  They were chosen so that the records in
`notebook/records` are ranked best (`benchmarks/estimates.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from kintune.compiler.kernels.instructions import Instruction, fused
from kintune.compiler.kernels.microkernel import Kernel
from kintune.search.processor import Processor

__all__ = ["Calls", "Loop", "Tasks", "Work", "cycles", "cycles_of_tasks"]

_LOADS, _STORES = 1.5, 1.0  # vectors, words or rows of tiles that are loaded a cycle, and that are stored
_OWN_BYTES, _SHARED_BYTES, _FAR_BYTES = 28.0, 12.0, 6.0  # a cycle: from the second cache, the shared one, and memory
_COPIED_BYTES = 16.0  # a cycle
_INSIDE = 0.5  # the share of a cache for what is read again
_START = 30.0  # cycles of a call of a kernel beside its products
_TURN = 0.1  # of a step, for the turn of a loop in which it is the only one
_AFTER = 24.0  # cycles for what follows a vector of sums
_BESIDE = 0.05  # of the shorter of computing and reading from far, which does not go on beside the longer
_TASK = 300.0
_LAUNCH = 5000.0  # cycles of another parallel loop
_WAKE = 1500.0  # cycles until other threads have begun
_COVERED = 0.5  # of the reads in order from the second cache, which the hardware begins early enough
_FULL = 1.1  # times as long where sums and weights leave no register for the data
_WAY, _OF_WAYS, _EVICTED = 4096, 0.75, 1.6
"""Rows at a distance that share too many of the sets of a way of the first cache take so many times as long."""
_FUNCTION = 12.0  # of an elementary function of a vector, such as the exponential one
_CONTENDED = 60.0  # cycles of a row of results of which another core writes to the same cache lines
_FUSED = fused(16, 32)


class Loop(NamedTuple):
    """An innermost loop of so many `turns`.

    In each turn a core multiplies and adds `products` vectors (any other operation of vectors counts as one), loads
    `loads` vectors or words, stores `stores` vectors, and computes elementary functions of `functions` vectors.
    `waits` products of a sum wait for each other.  The loop begins `starts` times.
    """

    turns: float
    products: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    functions: float = 0.0
    waits: float = 0.0
    starts: float = 0.0

    @property
    def cycles(self) -> float:
        """The estimated cycles of all turns."""
        busy = _busy(self.products, self.loads, self.waits, _FUSED)
        return self.turns * (busy + self.stores / _STORES + self.functions * _FUNCTION) + self.starts * _START


class Calls(NamedTuple):
    """So many calls of a micro-kernel."""

    kernel: Kernel
    number: float

    @property
    def cycles(self) -> float:
        """The estimated cycles of all calls."""
        k = self.kernel
        steps = k.segments.number * k.steps * _step(k) * (1 + _TURN / k.unroll)
        return self.number * (steps + k.rows * k.vectors / _STORES + _START)


class Tasks(NamedTuple):
    """`number` tasks, each of so many `loops`, which it runs so many `times`.

    A task reads bytes from its `own` second cache, anywhere or in `order`, from the `shared` one, and from `far`.
    Other cores write to the cache lines of `contended` rows of its results as well.
    """

    number: int
    loops: Sequence[Loop | Calls]
    times: float = 1.0
    own: float = 0.0
    order: float = 0.0
    shared: float = 0.0
    far: float = 0.0
    contended: float = 0.0


def cycles_of_tasks(tasks: Tasks, machine: Processor) -> float:
    """The estimated cycles of the core that has the most tasks."""
    own = tasks.own + (1 - _COVERED) * tasks.order
    read = own / _OWN_BYTES + tasks.shared / _SHARED_BYTES + tasks.far / _FAR_BYTES + tasks.contended * _CONTENDED
    return -(-tasks.number // machine.threads) * (tasks.times * sum(loop.cycles for loop in tasks.loops) + read + _TASK)


def _busy(products: float, loads: float, waits: float, instruction: Instruction) -> float:
    """The cycles of a step without those for memory that is far."""
    return max(products / instruction.rate, loads / _LOADS, waits * instruction.latency)


def _step(k: Kernel, extra: float = 0.0) -> float:
    """The cycles of a step of a micro-kernel, with so many further instructions of vectors."""
    instruction = k.instruction
    rows = k.rows * (k.height if instruction.tiles else 1)
    each = 1 if instruction.tiles else k.words  # products of a step for each of its sums
    products = each * (rows + instruction.signed) * k.vectors + extra
    loads = each * rows + k.vectors * (k.words if instruction.tiles else 1)
    is_full = k.rows > 1 and (k.rows + 1) * k.vectors >= instruction.registers
    return _busy(products, loads, each / k.ways, instruction) * (_FULL if is_full else 1.0)


class Work(NamedTuple):
    """What the tasks do: each calls a kernel with each of its `panels` for `groups` groups of units.

    The sum of a group is computed in `shares` calls.  A row has `row_bytes` bytes of data.  With `panels_first` a panel
    is used for all groups before the next one is.  There are `tasks` in all.  If each has one of `parts` of the
    panels, a core's weights may stay in its own cache, and its data comes from far; with 0 that is not known.  Rows
    that are read at once lie `pitch` bytes apart; 0 if that is not known.

    A task writes `copied` bytes of data first, and all threads together `brought` bytes before the tasks begin.  It
    runs `prepared` cycles before the kernels of a panel, and a kernel `extra` instructions of vectors more in a step.
    A panel has `beside` bytes beside those that the kernel reads as weights.
    """

    kernel: Kernel
    groups: float
    panels: int
    tasks: int
    row_bytes: float
    panels_first: bool = True
    shares: int = 1
    copied: float = 0.0
    brought: float = 0.0
    prepared: float = 0.0
    extra: float = 0.0
    beside: float = 0.0
    parts: int = 0
    pitch: int = 0


def cycles(work: Work, machine: Processor) -> float:
    """The estimated cycles of the core that has the most tasks."""
    k = work.kernel
    instruction = k.instruction
    rows = k.rows * (k.height if instruction.tiles else 1)
    steps, panel = k.segments.number * k.steps, k.segments.number * k.steps * k.step_bytes
    busy = _step(k, work.extra)
    if work.pitch and rows * math.gcd(work.pitch, _WAY) > _OF_WAYS * machine.caches[0]:
        busy *= _EVICTED
    near, own = (_INSIDE * size for size in machine.caches[:2])
    again, data = (panel, work.groups * rows) if work.panels_first else (work.panels * panel, rows)
    read = 0.0
    if again / work.shares > near:
        read += k.step_bytes / (_OWN_BYTES if again <= own else _SHARED_BYTES)
    if data * work.row_bytes / work.shares > near:
        read += rows * work.row_bytes / steps / _OWN_BYTES
    call = steps * max(busy, read) * (1 + _TURN / k.unroll) + work.shares * _START + _AFTER * rows * k.vectors
    products_of_task = work.panels * (work.prepared + work.groups * call)
    of_core = work.panels * work.parts / max(1, min(work.parts, machine.threads)) * panel
    rate = _OWN_BYTES if 0 < of_core <= own else _FAR_BYTES
    fetched = work.panels * (panel + work.beside) / rate  # once
    exposed = 0.0
    if work.parts:
        fetched += data * work.row_bytes / _FAR_BYTES
        exposed = _BESIDE * min(products_of_task, fetched)
    task = max(products_of_task, fetched) + exposed + work.copied / _COPIED_BYTES + _TASK
    before = work.brought / machine.threads * (1 / _COPIED_BYTES + 1 / _SHARED_BYTES)
    started = (_WAKE if work.tasks > 1 else 0.0) + (before + _LAUNCH if before else 0.0)
    return -(-work.tasks // machine.threads) * task + started
