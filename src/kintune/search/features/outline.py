"""The outline of a sketch: the structure of the loops around its core block that no decision changes."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from kintune.core.candidate import Sketch, Tile
from kintune.search.access_patterns import AccessPatterns

__all__ = ["LEVELS", "Outline", "outline_of"]

LEVELS = "SSRSRS"
"""The tiling levels of a CPU sketch, outermost first: all spatial loops (S), or all reduction loops (R)."""

_SPATIAL_PARTS, _REDUCED_PARTS = LEVELS.count("S"), LEVELS.count("R")


class Outline(NamedTuple):
    """The outline of a sketch.

    `tiles` are the indices of the axes of the core block's loops, in the order of the block.  `epilogue` is the level
    at whose innermost loop the consumer is computed, -1 if it is computed after the whole block.  `buffered` says
    whether the core block writes to a buffer of its own.
    """

    tiles: tuple[int, ...]
    epilogue: int
    buffered: bool


def outline_of(sketch: Sketch, patterns: AccessPatterns) -> Outline | None:
    """Return the outline of a sketch that tiles the core block as `LEVELS` says; None for any other sketch."""
    tiles = tuple(i for i, axis in enumerate(sketch.axes) if isinstance(axis, Tile))
    if len(tiles) != len(patterns.extents):
        return None
    for position, number in enumerate(tiles):
        axis = sketch.axes[number]
        reduces = patterns.reduces[position]
        wanted = (patterns.extents[position], _REDUCED_PARTS if reduces else _SPATIAL_PARTS)
        if not isinstance(axis, Tile) or (axis.extent, axis.parts) != wanted:
            return None
        if not axis.loop.startswith(f"{'r' if reduces else 's'}{position}:"):
            return None
    epilogue, buffered = _fixed(sketch.trace, patterns.reduces)
    return Outline(tiles, epilogue, buffered)


@lru_cache(maxsize=4096)
def _fixed(trace: bytes, reduces: tuple[bool, ...]) -> tuple[int, bool]:
    """Return `Outline.epilogue` and `Outline.buffered` of a trace."""
    try:
        instructions: list[Any] = json.loads(trace)["insts"]
    except (ValueError, KeyError, TypeError):
        return -1, False  # a trace of another space, in another format
    order: list[str] = []
    epilogue, buffered = -1, False
    for kind, inputs, _, _ in instructions:
        if kind == "Reorder" and not order:
            order = [str(loop) for loop in inputs]
        elif kind == "ReverseComputeAt" and str(inputs[1]) in order:
            epilogue = _level(order.index(str(inputs[1])), reduces)
        buffered = buffered or kind == "CacheWrite"
    return epilogue, buffered


def _level(position: int, reduces: tuple[bool, ...]) -> int:
    """Return the level of the loop at `position` of the reordered loop nest."""
    for level, kind in enumerate(LEVELS):
        position -= sum(reduces) if kind == "R" else len(reduces) - sum(reduces)
        if position < 0:
            return level
    return len(LEVELS) - 1
