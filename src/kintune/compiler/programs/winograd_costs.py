"""An estimate of the times of blockings of Winograd's convolution, from the machine."""

from __future__ import annotations

from kintune.compiler.programs.winograd_blocked import Blocking
from kintune.compiler.programs.winograd_tiles import Geometry
from kintune.search.processor import Processor

__all__ = ["OPERATIONS", "estimated_cycles"]

OPERATIONS = {2: (32, 24), 4: (144, 120)}
"""Operations of the transforms of one tile of data, and of one tile of results, by size of tiles."""

_AT_ONCE = 2.0  # vector instructions a cycle: products, and loads
_LATENCY = 4.0  # cycles of a product that is added
_START = 12.0  # cycles until the first products of a tile are there
_MOVED = 72.0  # loads and stores of a transform, with the values that do not fit into registers
_SHARED_BYTES = 8.0  # a cycle and core, from the shared cache
_OWN = 0.75  # of the second cache, for a block
_FLOAT = 4


def _fits(g: Geometry, b: Blocking, machine: Processor) -> bool:
    """Whether the sums and one row of weights are in registers, and the parts are whole panels."""
    width = -(-g.lanes // machine.lanes)
    panels = g.filters // (b.vectors * g.lanes)
    in_registers = (b.rows + 1) * b.vectors * width + 1 <= machine.registers
    return in_registers and panels % b.parts == 0 and b.blocks * b.rows <= g.tiles + b.rows


def estimated_cycles(g: Geometry, b: Blocking, machine: Processor, size: int = _FLOAT) -> float | None:
    """The estimated cycles of the core that has the most tasks; None where `_fits` says no.

    `size` is that of a value that is multiplied, in bytes: 4, or 2 for bf16.
    """
    if not _fits(g, b, machine):
        return None
    tiles = -(-g.tiles // (b.blocks * b.rows)) * b.rows
    filters = g.filters // b.parts
    width = -(-g.lanes // machine.lanes)
    vectors = b.vectors * width
    step = max(b.rows * vectors / _AT_ONCE, (b.rows + vectors) / _AT_ONCE, _LATENCY)
    sums = g.channels * size / _FLOAT * step + b.rows * vectors + _START
    products = g.places * (tiles / b.rows) * (filters / (b.vectors * g.lanes)) * sums
    data, results = (each + _MOVED for each in OPERATIONS[g.m])
    transforms = tiles * (data * g.channels + results * filters) / machine.lanes / _AT_ONCE
    weights = size * g.places * g.channels * filters
    own = g.places * tiles * (size * g.channels + _FLOAT * filters)
    beyond = weights + (2 * own if own > _OWN * machine.caches[1] else 0)
    tasks = -(-b.blocks * b.parts // machine.threads)
    return tasks * (products + transforms + beyond / _SHARED_BYTES)
