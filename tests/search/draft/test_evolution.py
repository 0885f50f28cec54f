import numpy as np
import pytest
from numpy.typing import NDArray

from kintune.core.candidate import Sketch, Tile
from kintune.search.draft.evolution import evolve
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
