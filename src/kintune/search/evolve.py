"""Random draw, mutation and crossover of candidates, as arithmetic on their decisions.

This is the evolution of Ansor (OSDI 2020, section 5.1) on decision vectors instead of programs.  Nothing is replayed,
so a child may be an invalid program; `SearchSpace.verify` tells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kintune.core.candidate import Axis, Candidate, Choice, Decision, Location, NamedChoice, Sketch, Tile
from kintune.search.bounds import bounds_of, divisors, repair

__all__ = ["cross", "draw", "is_open", "mutate"]


def draw(sketch: Sketch, rng: np.random.Generator) -> Candidate:
    """Return a candidate with every decision drawn at random."""
    return Candidate(sketch.workload, sketch.digest, _bounded(sketch, [_draw(axis, rng) for axis in sketch.axes], rng))


def mutate(candidate: Candidate, sketches: Sequence[Sketch], rng: np.random.Generator) -> Candidate:
    """Return the candidate with one or two decisions changed, or sometimes on another sketch with the same axes."""
    sketch = next(s for s in sketches if s.digest == candidate.sketch)
    alike = [s for s in sketches if s.axes == sketch.axes and s.digest != sketch.digest]
    if alike and rng.random() < 0.15:
        other = alike[int(rng.integers(len(alike)))]
        return Candidate(candidate.workload, other.digest, _bounded(other, candidate.decisions, rng))
    open_axes = [i for i, axis in enumerate(sketch.axes) if is_open(axis)]
    if not open_axes:
        return candidate
    decisions = list(candidate.decisions)
    for _ in range(1 + int(rng.random() < 0.4)):
        i = open_axes[int(rng.integers(len(open_axes)))]
        decisions[i] = _mutate(sketch.axes[i], decisions[i], rng)
    return Candidate(candidate.workload, candidate.sketch, _bounded(sketch, decisions, rng))


def cross(left: Candidate, right: Candidate, rng: np.random.Generator) -> Candidate:
    """Return a candidate with each decision from one of two parents; `left` if the sketches of the parents differ."""
    if left.sketch != right.sketch:
        return left
    pairs = zip(left.decisions, right.decisions, strict=True)
    return Candidate(left.workload, left.sketch, tuple(a if rng.random() < 0.5 else b for a, b in pairs))


def _bounded(sketch: Sketch, decisions: Sequence[Decision], rng: np.random.Generator) -> tuple[Decision, ...]:
    return repair(sketch, decisions, rng) if bounds_of(sketch) else tuple(decisions)


def is_open(axis: Axis) -> bool:
    """Return whether there is more than one decision to choose from."""
    if isinstance(axis, Tile):
        return axis.extent > 1 and axis.parts > 1
    if isinstance(axis, Choice | NamedChoice):
        return len(axis.values) > 1
    return True


def _draw(axis: Axis, rng: np.random.Generator) -> Decision:
    if isinstance(axis, Tile):
        return _draw_tile(axis, rng)
    if isinstance(axis, Choice):
        weights = np.asarray(axis.weights) / sum(axis.weights)
        return (int(rng.choice(len(axis.values), p=weights)),)
    if isinstance(axis, NamedChoice):
        return axis.values[int(rng.integers(len(axis.values)))]
    return (int(rng.integers(-2, axis.choices)),)


def _draw_tile(axis: Tile, rng: np.random.Generator) -> Decision:
    """Return random factors; the innermost is drawn first, so that its limit holds."""
    left = axis.extent
    factors: list[int] = []
    for part in range(axis.parts - 1):
        fitting = [d for d in divisors(left) if part > 0 or d <= axis.max_inner]
        factors.append(fitting[int(rng.integers(len(fitting)))])
        left //= factors[-1]
    if not factors:
        return (left,)
    inner, *outer = factors
    rng.shuffle(outer)
    return (left, *outer, inner)


def _mutate(axis: Axis, decision: Decision, rng: np.random.Generator) -> Decision:
    if isinstance(axis, Tile):
        return _move_factor(axis, decision, rng)
    if isinstance(axis, Choice):
        others = [i for i in range(len(axis.values)) if i != decision[0]]
        return (others[int(rng.integers(len(others)))],)
    if isinstance(axis, NamedChoice):
        rows = [row for row in axis.values if row != decision]
        return rows[int(rng.integers(len(rows)))]
    return _move_location(axis, decision, rng)


def _move_factor(axis: Tile, decision: Decision, rng: np.random.Generator) -> Decision:
    """Move a factor from one loop of the tile to another."""
    sources = [i for i, factor in enumerate(decision) if factor > 1]
    source = sources[int(rng.integers(len(sources)))]
    target = int(rng.integers(axis.parts - 1))
    target += target >= source
    moved = [d for d in divisors(decision[source]) if d > 1]
    if target == axis.parts - 1:
        moved = [d for d in moved if decision[target] * d <= axis.max_inner]
    if not moved:
        return decision
    factor = moved[int(rng.integers(len(moved)))]
    factors = list(decision)
    factors[source] //= factor
    factors[target] *= factor
    return tuple(factors)


def _move_location(axis: Location, decision: Decision, rng: np.random.Generator) -> Decision:
    if rng.random() < 0.5:
        return (int(np.clip(decision[0] + rng.choice((-1, 1)), -2, axis.choices - 1)),)
    return (int(rng.integers(-2, axis.choices)),)
