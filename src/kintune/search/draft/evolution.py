"""Evolution of a population of encoded candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kintune.search.draft.breed import cross, draw, mutate
from kintune.search.features.encoding import Encoding, Population

__all__ = ["Judge", "Ranked", "evolve"]

_BRED = 0.9  # share of the first generation that is bred from the seeds
_ELITE = 0.2  # share of the ranked candidates that have children
_CROSSED = 0.25  # share of children that have two parents
_FRESH = 0.1  # share of every generation that is drawn

Judge: TypeAlias = Callable[[Population], NDArray[np.float32]]
"""Returns scores, shape (n,), for a population of n candidates; higher is faster."""


class Ranked(NamedTuple):
    """Candidates and their scores, the highest first."""

    population: Population
    scores: NDArray[np.float32]


def evolve(
    encoding: Encoding, seeds: Population, judge: Judge, rng: np.random.Generator, *, size: int, generations: int
) -> Ranked:
    """Return all different candidates of all generations, ranked by `judge`.

    The first generation has the `seeds`, the most promising first, their children, and random candidates.
    """
    bred = int(size * _BRED) if len(seeds) else 0
    offspring = mutate(encoding, seeds.take(_favoured(len(seeds), bred, rng)), rng)
    drawn = draw(encoding, max(1, size - bred - len(seeds)), rng)
    children = Population.join([seeds, offspring, drawn]).unique()
    known = _ranked(children, judge(children))
    for _ in range(generations - 1):
        most = min(size, len(known.population))
        elite = known.population.take(np.arange(max(1, int(_ELITE * most))))
        count = int(size * (1 - _FRESH))
        left, right = (elite.take(_favoured(len(elite), count, rng)) for _ in range(2))
        paired = rng.random(count) < _CROSSED
        crossed = cross(encoding, left.take(paired), right.take(paired), rng)
        parents = Population.join([crossed, left.take(~paired)])
        population = Population.join(
            [known.population, mutate(encoding, parents, rng), draw(encoding, size - count, rng)]
        )
        fresh = _new_in(population, len(known.population))
        if not len(fresh):
            break
        known = _ranked(Population.join([known.population, fresh]), np.concatenate([known.scores, judge(fresh)]))
    return known


def _new_in(population: Population, known: int) -> Population:
    """Return the candidates after the first `known` ones that are not among those, each once."""
    different = population.unique()
    return different.take(np.arange(known, len(different)))


def _ranked(population: Population, scores: NDArray[np.float32]) -> Ranked:
    order = np.argsort(-scores, kind="stable")
    return Ranked(population.take(order), scores[order])


def _favoured(length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return `count` random indices below `length`; the first ones are more likely."""
    return (length * rng.random(count) ** 2).astype(np.int64)
