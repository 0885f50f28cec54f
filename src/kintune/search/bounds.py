"""The bounds of a GPU sketch: limits on products of tile factors, such as the number of threads of a block.

A candidate that breaks a bound is not a valid program, and nearly all candidates drawn without the bounds break one.  A
candidate within the bounds may still be invalid: its tiles may not fit into shared memory.  Sketches for CPUs have no
bounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kintune.core.candidate import Decision, Sketch, Tile

__all__ = ["TileBound", "admits", "bounds_of", "divisors", "repair"]


_VIRTUAL, _THREADS = "vthread", "threadIdx"  # kinds of threads that loops are bound to


_MOST_VIRTUAL = 8  # as in MetaSchedule's post-processor VerifyGPUCode


_MOST_THREADS = 1024  # of a block


_LOW, _HIGH = "meta_schedule.thread_extent_low_inclusive", "meta_schedule.thread_extent_high_inclusive"


_STEPS = 64  # moves of a repair for each bound, at most; no tile has as many prime factors


class TileBound(NamedTuple):
    """The product of `factors`, each given as (axis, part), must lie between `least` and `most`, both included."""

    factors: tuple[tuple[int, int], ...]
    least: int
    most: int

    def product(self, decisions: Sequence[Decision]) -> int:
        """Return the product of the factors in these decisions."""
        return math.prod(decisions[axis][part] for axis, part in self.factors)

    def holds(self, decisions: Sequence[Decision]) -> bool:
        """Return whether the decisions are within the bound."""
        return self.least <= self.product(decisions) <= self.most


def bounds_of(sketch: Sketch) -> tuple[TileBound, ...]:
    """Return the bounds of a sketch; none if its loops are not bound to threads."""
    return _bounds(sketch.trace, tuple(axis.extent if isinstance(axis, Tile) else 0 for axis in sketch.axes))


def admits(sketch: Sketch, decisions: Sequence[Decision]) -> bool:
    """Return whether the decisions are within all bounds of the sketch."""
    return all(bound.holds(decisions) for bound in bounds_of(sketch))


def repair(sketch: Sketch, decisions: Sequence[Decision], rng: np.random.Generator) -> tuple[Decision, ...]:
    """Return the decisions with prime factors moved within tiles until all bounds hold or no move is left.

    Where a product is too large, a prime moves to the outermost loop of the tile.  Where it is too small, a prime comes
    from a loop without a bound, or else from a loop of another bound.
    """
    bounds = bounds_of(sketch)
    changed = [list(decision) for decision in decisions]
    bounded = {factor for bound in bounds for factor in bound.factors}
    for bound in bounds:
        for _ in range(_STEPS):
            product = math.prod(changed[axis][part] for axis, part in bound.factors)
            if bound.least <= product <= bound.most:
                break
            if product > bound.most:
                moves = list(_shrinking(bound, changed))
            else:
                found = list(_growing(bound, changed, bounded)) or list(_growing(bound, changed, set(bound.factors)))
                moves = [move for move in found if product * _prime(changed[move[0]][move[1]]) <= bound.most]
            if not moves:
                break
            axis, source, target = moves[int(rng.integers(len(moves)))]
            prime = _prime(changed[axis][source])
            changed[axis][source] //= prime
            changed[axis][target] *= prime
    return tuple(map(tuple, changed))


def _prime(factor: int) -> int:
    """Return the smallest prime factor of `factor`, which is above 1."""
    return next(d for d in divisors(factor) if d > 1)


def _shrinking(bound: TileBound, decisions: Sequence[Sequence[int]]) -> Iterator[tuple[int, int, int]]:
    return ((axis, part, 0) for axis, part in bound.factors if part and decisions[axis][part] > 1)


def _growing(
    bound: TileBound, decisions: Sequence[Sequence[int]], kept: set[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    for axis, part in bound.factors:
        for other, factor in enumerate(decisions[axis]):
            if factor > 1 and (axis, other) not in kept:
                yield axis, other, part


@lru_cache(maxsize=4096)
def _bounds(trace: bytes, extents: tuple[int, ...]) -> tuple[TileBound, ...]:
    try:
        content = json.loads(trace)
        instructions: list[Any] = content["insts"]
        sampled: list[int] = content["sampled"]
    except (ValueError, KeyError, TypeError):
        return ()  # a trace of another space, in another format
    drawn = _drawn(instructions, sampled)
    annotated = {str(attributes[0]): inputs[1] for kind, inputs, attributes, _ in instructions if kind == "Annotate"}
    bounds = []
    for thread, loops in _bound_loops(instructions):
        factors = tuple(drawn[loop] for loop in loops if loop in drawn)
        if not factors or len(factors) < len(loops):
            continue  # the number of threads does not depend on tiles alone
        if thread == _VIRTUAL:
            bounds.append(TileBound(factors, 1, _MOST_VIRTUAL))
        elif thread == _THREADS:
            high = min(_MOST_THREADS, _number(annotated.get(_HIGH), _MOST_THREADS))
            reachable = math.prod(extents[axis] for axis, _ in factors)
            bounds.append(TileBound(factors, min(_number(annotated.get(_LOW), 1), reachable), high))
    return tuple(bounds)


def _drawn(instructions: Sequence[Any], sampled: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Return, for each loop whose extent is a tile factor, which factor it is: (axis, part)."""
    factors: dict[str, tuple[int, int]] = {}
    loops: dict[str, tuple[int, int]] = {}
    for index, (kind, inputs, _, outputs) in enumerate(instructions):
        if kind == "SamplePerfectTile" and index in sampled:
            axis = sampled.index(index)
            factors.update((str(factor), (axis, part)) for part, factor in enumerate(outputs))
        elif kind == "Split":
            pairs = zip(outputs, inputs[1:], strict=False)
            loops.update((str(loop), factors[str(factor)]) for loop, factor in pairs if str(factor) in factors)
    return loops


def _bound_loops(instructions: Sequence[Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each kind of thread with the loops that are bound to it."""
    fused: dict[str, list[str]] = {}
    for kind, inputs, attributes, outputs in instructions:
        if kind == "Fuse":
            fused[str(outputs[0])] = [loop for each in inputs for loop in fused.get(str(each), [str(each)])]
        elif kind == "Bind":
            yield str(attributes[0]).partition(".")[0], fused.get(str(inputs[0]), [str(inputs[0])])


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """Return all divisors of `n` (at least 1), ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(small + [n // d for d in reversed(small) if d * d != n])
