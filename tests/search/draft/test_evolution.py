import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kintune.core.candidate import Sketch, Tile
from kintune.search.draft import evolution
from kintune.search.draft.breed import draw
from kintune.search.draft.evolution import _favoured, evolve
from kintune.search.features.encoding import Encoding, Population

FRAME = Encoding([Sketch("w", "s", b"", (Tile(2**12, 4, 64), Tile(2**10, 4, 64)))])
GOAL = np.array([4, 16, 2, 32, 8, 2, 4, 16])


def near(population: Population) -> NDArray[np.float32]:
    """Higher the fewer powers of two the rows are away from the goal."""
    return -np.abs(np.log2(population.rows / GOAL)).sum(axis=1).astype(np.float32)


def _nobody() -> Population:
    return FRAME.encode([])


def test_it_finds_what_hardly_any_draw_is() -> None:
    ranked = evolve(FRAME, _nobody(), near, np.random.default_rng(0), size=512, generations=5)
    assert ranked.scores[0] >= -2
    first = evolve(FRAME, _nobody(), near, np.random.default_rng(0), size=64, generations=5)
    assert ranked.scores[0] >= first.scores[0]


def test_all_are_different_and_the_best_come_first() -> None:
    ranked = evolve(FRAME, _nobody(), near, np.random.default_rng(1), size=128, generations=3)
    assert len(ranked.population.unique()) == len(ranked.population) == len(ranked.scores)
    assert (np.diff(ranked.scores) <= 0).all()
    assert np.array_equal(near(ranked.population), ranked.scores)


def test_seeds_are_among_them() -> None:
    seed = Population(np.zeros(1, np.int64), GOAL[None, :])
    ranked = evolve(FRAME, seed, near, np.random.default_rng(2), size=32, generations=2)
    assert ranked.scores[0] == 0
    assert (ranked.population.rows[0] == GOAL).all()


def test_equal_generators_evolve_equally() -> None:
    one, two = (evolve(FRAME, _nobody(), near, np.random.default_rng(5), size=64, generations=5) for _ in range(2))
    assert np.array_equal(one.population.rows, two.population.rows)


@pytest.mark.parametrize("extent", [1, 2, 3])
def test_a_tiny_space_is_known_as_a_whole(extent: int) -> None:
    encoding = Encoding([Sketch("w", "s", b"", (Tile(extent, 2),))])
    ranked = evolve(
        encoding,
        encoding.encode([]),
        lambda h: h.rows[:, 0].astype(np.float32),
        np.random.default_rng(0),
        size=64,
        generations=3,
    )
    assert sorted(ranked.population.rows[:, 0].tolist()) == sorted({1, extent})


def test_the_first_ones_have_more_children() -> None:
    """Half of all children are of the first quarter."""
    places = _favoured(1000, 20_000, np.random.default_rng(0))
    assert places.min() == 0
    assert places.max() == 999
    for share in (0.1, 0.25, 0.5, 0.9):
        assert abs((places < 1000 * share).mean() - share**0.5) < 0.015


def test_the_first_generation_has_the_seeds_their_children_and_a_tenth_drawn() -> None:
    judged: list[int] = []

    def judge(population: Population) -> NDArray[np.float32]:
        judged.append(len(population))
        return near(population)

    seeds = draw(FRAME, 10, np.random.default_rng(3)).unique()
    evolve(FRAME, seeds, judge, np.random.default_rng(2), size=1000, generations=1)
    assert len(judged) == 1
    assert 500 < judged[0] <= 1000  # many children are the same
    evolve(FRAME, _nobody(), judge, np.random.default_rng(2), size=1000, generations=3)
    assert len(judged) == 4
    assert all(500 < count <= 1000 for count in judged[1:])
    crowded = evolve(FRAME, seeds, judge, np.random.default_rng(2), size=10, generations=1)
    assert len(crowded.population) >= len(seeds)


def test_children_are_of_the_best_fifth() -> None:
    """So a generation on average is nearer to the goal than one drawn at random, and than one bred from all."""
    rng = np.random.default_rng(4)
    drawn = near(draw(FRAME, 1000, rng))
    fresh: list[float] = []

    def judge(population: Population) -> NDArray[np.float32]:
        fresh.append(float(near(population).mean()))
        return near(population)

    evolve(FRAME, _nobody(), judge, rng, size=1000, generations=4)
    first, *others = fresh
    assert abs(first - drawn.mean()) < 0.5
    assert others[0] > first + 2
    assert all(later > earlier for earlier, later in itertools.pairwise(others))


@pytest.mark.parametrize(("size", "seeds"), [(1000, 10), (1000, 0), (10, 10), (3, 1)])
def test_each_generation_has_its_shares(monkeypatch: pytest.MonkeyPatch, size: int, seeds: int) -> None:
    """Nine tenths are bred, after the first generation a quarter of these from two parents; the rest is drawn."""
    drawn: list[int] = []
    mutated: list[int] = []
    crossed: list[int] = []

    def noted(name: str, sizes: list[int]) -> None:
        plain = getattr(evolution, name)

        def wrapped(encoding: Encoding, what: Any, *more: Any) -> Population:
            sizes.append(what if isinstance(what, int) else len(what))
            found: Population = plain(encoding, what, *more)
            return found

        monkeypatch.setattr(evolution, name, wrapped)

    noted("draw", drawn)
    noted("mutate", mutated)
    noted("cross", crossed)
    bred = [9 * size // 10 if seeds else 0, *[9 * size // 10] * 2]
    rng = np.random.default_rng(7)
    ranked = evolve(FRAME, draw(FRAME, seeds, rng).unique(), near, rng, size=size, generations=3)
    assert mutated == bred
    assert drawn == [max(1, size - bred[0] - seeds), size - bred[1], size - bred[2]]
    assert all(abs(each - count / 4) <= 3 * count**0.5 for each, count in zip(crossed, bred[1:], strict=True))
    assert len(ranked.population) <= seeds + sum(bred) + sum(drawn)


def test_the_elite_is_a_fifth_of_no_more_than_a_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []

    def favoured(length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        chosen.append(length)
        return _favoured(length, count, rng)

    known: list[int] = []

    def judge(population: Population) -> NDArray[np.float32]:
        known.append(len(population))
        return near(population)

    monkeypatch.setattr(evolution, "_favoured", favoured)
    evolve(FRAME, _nobody(), judge, np.random.default_rng(0), size=100, generations=4)
    most = [min(100, sum(known[: generation + 1])) for generation in range(3)]
    assert chosen == [0, *(max(1, int(0.2 * each)) for each in most for _ in range(2))]
    chosen.clear()
    evolve(FRAME, _nobody(), judge, np.random.default_rng(0), size=3, generations=2)
    assert chosen == [0, 1, 1]
