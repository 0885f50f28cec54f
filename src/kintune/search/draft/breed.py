"""Random draw, mutation and crossover of thousands of candidates at once.

This is what `kintune.search.evolve` does to one candidate, done to the columns of a population.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Choice, Location, NamedChoice, Tile
from kintune.search.evolve import is_open
from kintune.search.features.encoding import Encoding, Population, Rows

__all__ = ["cross", "draw", "mutate"]

_SPREAD = 0.7  # Dirichlet parameter of tile parts; below 1, uneven factors are more likely
_SECOND = 0.4  # share of children with two changed decisions
_SWAP = 0.15  # share of changed tiles in which two parts are swapped
_FURTHER = 0.5  # probability that another equal prime moves along with a moved one
_POWER = 3  # equal primes moved at once, at most
_HOP = 0.1  # share of children that move to a random sketch of the encoding


def draw(encoding: Encoding, count: int, rng: np.random.Generator) -> Population:
    """Return `count` candidates with every decision drawn at random."""
    rows = np.ones((count, encoding.width), dtype=np.int64)
    for axis, column in zip(encoding.axes, encoding.columns, strict=True):
        if isinstance(axis, Tile):
            rows[:, column] = _draw_tiles(axis, count, rng)
        elif isinstance(axis, Choice):
            weights = np.asarray(axis.weights) / sum(axis.weights)
            rows[:, column.start] = rng.choice(len(axis.values), size=count, p=weights)
        elif isinstance(axis, NamedChoice):
            rows[:, column] = np.asarray(axis.values)[rng.integers(len(axis.values), size=count)]
        else:
            rows[:, column.start] = rng.integers(-2, axis.choices, size=count)
    return Population(rng.integers(len(encoding.sketches), size=count), rows)


def mutate(encoding: Encoding, population: Population, rng: np.random.Generator) -> Population:
    """Return each candidate with one or two decisions changed, sometimes moved to another sketch."""
    count = len(population)
    rows, sketch = population.rows.copy(), population.sketch.copy()
    numbers = [i for i, axis in enumerate(encoding.axes) if is_open(axis)]
    if numbers:
        for share in (1.0, _SECOND):
            chosen = np.asarray(numbers)[rng.integers(len(numbers), size=count)]
            chosen = np.where(rng.random(count) < share, chosen, -1)
            for number in numbers:
                which = np.flatnonzero(chosen == number)
                if which.size:
                    _change(encoding, number, rows, which, rng)
    hopping = rng.random(count) < (_HOP if numbers else 1.0)
    sketch = np.where(hopping, rng.integers(len(encoding.sketches), size=count), sketch)
    return Population(sketch, rows)


def cross(encoding: Encoding, left: Population, right: Population, rng: np.random.Generator) -> Population:
    """Return candidates with each decision from one of two parents; the sketch is the left one's."""
    rows = left.rows.copy()
    for column in encoding.columns:
        which = rng.random(len(left)) < 0.5
        rows[which, column] = right.rows[which, column]
    return Population(left.sketch, rows)


def _change(encoding: Encoding, number: int, rows: Rows, which: Rows, rng: np.random.Generator) -> None:
    axis, column = encoding.axes[number], encoding.columns[number]
    if isinstance(axis, Tile):
        swapping = rng.random(which.size) < _SWAP
        _swap_parts(axis, column, rows, which[swapping], rng)
        _move_factors(axis, column, rows, which[~swapping], rng)
    elif isinstance(axis, Choice):
        beside = rng.integers(1, len(axis.values), size=which.size)
        rows[which, column.start] = (rows[which, column.start] + beside) % len(axis.values)
    elif isinstance(axis, NamedChoice):
        values = np.asarray(axis.values)
        place = (rows[which, None, column] == values).all(axis=2).argmax(axis=1)
        beside = rng.integers(1, len(values), size=which.size)
        rows[which, column] = values[(place + beside) % len(values)]
    else:
        _move_places(axis, column, rows, which, rng)


def _move_places(axis: Location, column: slice, rows: Rows, which: Rows, rng: np.random.Generator) -> None:
    nearby = rows[which, column.start] + rng.choice((-1, 1), size=which.size)
    anywhere = rng.integers(-2, axis.choices, size=which.size)
    moved = np.where(rng.random(which.size) < 0.5, nearby, anywhere)
    rows[which, column.start] = np.clip(moved, -2, axis.choices - 1)


def _move_factors(axis: Tile, column: slice, rows: Rows, which: Rows, rng: np.random.Generator) -> None:
    """Move a factor from one part of the tile to another: a prime, or a small power of it."""
    old = rows[which, column]
    primes = np.array(sorted(set(_primes(axis.extent))))
    holds = old[:, :, None] % primes == 0
    source, prime = np.divmod(_any_of(holds.reshape(which.size, axis.parts * primes.size), rng), primes.size)
    target = (source + rng.integers(1, axis.parts, size=which.size)) % axis.parts
    new, moved = old.copy(), primes[prime]
    going = np.ones(which.size, dtype=bool)
    at = np.arange(which.size)
    for _ in range(_POWER):
        going &= new[at, source] % moved == 0
        new[at[going], source[going]] //= moved[going]
        new[at[going], target[going]] *= moved[going]
        going &= rng.random(which.size) < _FURTHER
    rows[which, column] = np.where(_allowed(axis, old, new)[:, None], new, old)


def _swap_parts(axis: Tile, column: slice, rows: Rows, which: Rows, rng: np.random.Generator) -> None:
    old = rows[which, column]
    at = np.arange(which.size)
    source = rng.integers(axis.parts, size=which.size)
    target = (source + rng.integers(1, axis.parts, size=which.size)) % axis.parts
    new = old.copy()
    new[at, source], new[at, target] = old[at, target], old[at, source]
    rows[which, column] = np.where(_allowed(axis, old, new)[:, None], new, old)


def _allowed(axis: Tile, old: Rows, new: Rows) -> NDArray[np.bool_]:
    """Return, for each row, whether the innermost part is within its limit or at most as large as before."""
    allowed: NDArray[np.bool_] = new[:, -1] <= np.maximum(axis.max_inner, old[:, -1])
    return allowed


def _draw_tiles(axis: Tile, count: int, rng: np.random.Generator) -> Rows:
    """Give every prime factor of the extent to a random part; each candidate has its own probabilities of the parts."""
    factors = np.ones((count, axis.parts), dtype=np.int64)
    favour = np.cumsum(rng.dirichlet([_SPREAD] * axis.parts, size=count), axis=1)
    at = np.arange(count)
    for prime in reversed(_primes(axis.extent)):
        part = np.minimum((rng.random(count)[:, None] > favour).sum(axis=1), axis.parts - 1)
        if axis.parts > 1:
            full = (part == axis.parts - 1) & (factors[:, -1] * prime > axis.max_inner)
            part = np.where(full, rng.integers(axis.parts - 1, size=count), part)
        factors[at, part] *= prime
    return factors


def _any_of(allowed: NDArray[np.bool_], rng: np.random.Generator) -> Rows:
    """Return for each row a random index of a true entry, each as likely; there is at least one."""
    chosen: Rows = np.argmax(np.where(allowed, rng.random(allowed.shape), -1.0), axis=1)
    return chosen


@lru_cache(maxsize=4096)
def _primes(number: int) -> tuple[int, ...]:
    """Return the prime factors of `number`, ascending, each as often as it occurs."""
    return tuple(_factorise(number))


def _factorise(number: int) -> Iterator[int]:
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            yield divisor
            number //= divisor
        divisor += 1
    if number > 1:
        yield number
