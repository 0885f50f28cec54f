import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Choice, Location, Sketch, Tile
from kintune.search.draft.breed import cross, draw, mutate
from kintune.search.features.encoding import Encoding, Population
from kintune.testing.decisions import check_candidate

extents = st.one_of(st.integers(1, 4096), st.sampled_from([1, 2, 7, 13, 64, 97, 1000, 1009, 2048]))
tiles = st.builds(Tile, extents, st.integers(2, 5), st.sampled_from([1, 4, 16, 64]))
choices = st.lists(st.integers(0, 512), min_size=1, max_size=4, unique=True).map(
    lambda values: Choice(tuple(values), (1.0,) * len(values))
)
locations = st.integers(1, 24).map(Location)
axis_lists: st.SearchStrategy[list[Axis]] = st.lists(st.one_of(tiles, choices, locations), min_size=1, max_size=6)
seeds = st.integers(0, 2**32 - 1)


def _encoding(axes: list[Axis]) -> Encoding:
    return Encoding([Sketch("w", digest, b"", tuple(axes)) for digest in ("one", "two")])


def _check(encoding: Encoding, population: Population) -> None:
    by_digest = {sketch.digest: sketch for sketch in encoding.sketches}
    for candidate in encoding.candidates(population):
        check_candidate(by_digest[candidate.sketch], candidate, drawn=True)


@given(axis_lists, seeds)
def test_what_is_drawn_mutated_and_crossed_is_valid(axes: list[Axis], seed: int) -> None:
    encoding, rng = _encoding(axes), np.random.default_rng(seed)
    left, right = draw(encoding, 6, rng), draw(encoding, 6, rng)
    child = cross(encoding, left, right, rng)
    for population in (left, right, child):
        _check(encoding, population)
    for _ in range(4):
        child = mutate(encoding, child, rng)
        _check(encoding, child)


@given(axis_lists, seeds)
def test_equal_generators_breed_equally_and_leave_parents_alone(axes: list[Axis], seed: int) -> None:
    encoding = _encoding(axes)

    def family() -> list[Population]:
        rng = np.random.default_rng(seed)
        parents = draw(encoding, 5, rng)
        before = Population(parents.sketch.copy(), parents.rows.copy())
        children = mutate(encoding, parents, rng)
        assert (before.sketch == parents.sketch).all()
        assert (before.rows == parents.rows).all()
        return [parents, children]

    for one, two in zip(family(), family(), strict=True):
        assert (one.sketch == two.sketch).all()
        assert (one.rows == two.rows).all()


def test_a_tile_beyond_its_limit_stays_but_does_not_grow() -> None:
    encoding = _encoding([Tile(256, 2, 16)])
    population = Population(np.zeros(64, np.int64), np.tile(np.array([2, 128]), (64, 1)))
    for _ in range(10):
        population = mutate(encoding, population, np.random.default_rng(3))
        assert (population.rows.prod(axis=1) == 256).all()
        assert (population.rows[:, 1] <= 128).all()


def test_draws_are_of_all_kinds() -> None:
    population = draw(_encoding([Tile(1024, 4, 64)]), 500, np.random.default_rng(0))
    assert len(population.unique()) > 100
    assert {1, 2, 4, 8, 16, 32, 64} <= set(population.rows[:, 3].tolist())
    assert (population.rows[:, 0] == 1).any()
    assert (population.rows[:, 0] >= 256).any()


def test_nobody_to_breed_from_breeds_nobody() -> None:
    encoding = _encoding([Tile(12, 4), Location(3)])
    nobody = encoding.encode([])
    assert len(mutate(encoding, nobody, np.random.default_rng(0))) == 0
    assert len(cross(encoding, nobody, nobody, np.random.default_rng(0))) == 0
