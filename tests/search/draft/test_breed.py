import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Choice, Location, NamedChoice, Sketch, Tile
from kintune.search.draft import breed
from kintune.search.draft.breed import cross, draw, mutate
from kintune.search.features.encoding import Encoding, Population
from kintune.testing.decisions import check_candidate
from tests.support.axes import named_choices

extents = st.one_of(st.integers(1, 4096), st.sampled_from([1, 2, 7, 13, 64, 97, 1000, 1009, 2048]))
tiles = st.builds(Tile, extents, st.integers(2, 5), st.sampled_from([1, 4, 16, 64]))
choices = st.lists(st.integers(0, 512), min_size=1, max_size=4, unique=True).map(
    lambda values: Choice(tuple(values), (1.0,) * len(values))
)
locations = st.integers(1, 24).map(Location)
axis_lists: st.SearchStrategy[list[Axis]] = st.lists(
    st.one_of(tiles, choices, named_choices, locations), min_size=1, max_size=6
)
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


def _alike(encoding: Encoding, row: list[int], count: int) -> Population:
    return Population(np.zeros(count, np.int64), np.tile(np.array(row), (count, 1)))


def test_a_child_differs_in_one_or_sometimes_two_decisions_and_rarely_in_its_sketch() -> None:
    encoding, rng = _encoding([Choice(tuple(range(64)), (1.0,) * 64) for _ in range(12)]), np.random.default_rng(0)
    children = mutate(encoding, _alike(encoding, [5] * 12, 3000), rng)
    changes = (children.rows != 5).sum(axis=1)
    assert set(changes.tolist()) == {1, 2}
    assert 0.33 < (changes == 2).mean() < 0.40  # two changes of the same one count as one
    assert 0.03 < children.sketch.mean() < 0.07  # of two sketches, the other one
    assert set(children.rows[children.rows != 5].tolist()) == set(range(64)) - {5}


def test_a_named_choice_goes_to_all_of_its_other_rows() -> None:
    rows = tuple((n, 64 - n) for n in range(6))
    encoding, rng = _encoding([NamedChoice(("rows", "vectors"), rows)]), np.random.default_rng(0)
    children = mutate(encoding, _alike(encoding, [2, 62], 3000), rng)
    reached = {tuple(row) for row in children.rows.tolist()}
    assert reached == set(rows)  # itself too: two changes may undo each other
    assert 0.05 < (children.rows[:, 0] == 2).mean() < 0.12


def test_where_nothing_is_open_a_child_is_of_any_sketch() -> None:
    encoding = _encoding([Tile(1, 4), Choice((0,), (1.0,))])
    children = mutate(encoding, _alike(encoding, [1, 1, 1, 1, 0], 1000), np.random.default_rng(0))
    assert 0.45 < children.sketch.mean() < 0.55


def test_each_parent_gives_half_of_the_decisions_and_each_value_is_drawn_by_its_weight() -> None:
    encoding, rng = _encoding([Choice((0, 1, 2), (6.0, 3.0, 1.0)), Location(3)]), np.random.default_rng(0)
    left, right = _alike(encoding, [0, 0], 1000), _alike(encoding, [1, 1], 1000)
    child = cross(encoding, left, right, rng)
    assert (child.rows.mean(axis=0) > 0.45).all()
    assert (child.rows.mean(axis=0) < 0.55).all()
    assert 0.2 < (child.rows.sum(axis=1) == 0).mean() < 0.3
    drawn = draw(encoding, 3000, rng)
    shares = [(drawn.rows[:, 0] == value).mean() for value in range(3)]
    assert np.allclose(shares, (0.6, 0.3, 0.1), atol=0.04)
    assert set(drawn.rows[:, 1].tolist()) == {-2, -1, 0, 1, 2}
    assert 0.45 < drawn.sketch.mean() < 0.55


def test_a_place_moves_to_a_neighbour_half_of_the_time_and_else_anywhere() -> None:
    encoding, rng = _encoding([Location(100)]), np.random.default_rng(0)
    places = mutate(encoding, _alike(encoding, [50], 3000), rng).rows[:, 0]
    assert 0.3 < (np.abs(places - 50) == 1).mean() < 0.6  # some move twice
    assert abs((places == 49).mean() - (places == 51).mean()) < 0.05
    assert places.min() < 5
    assert places.max() > 92
    at_the_end = mutate(encoding, _alike(encoding, [99], 3000), rng).rows[:, 0]
    assert set(at_the_end.tolist()) <= set(range(-2, 100))


def test_factors_move_from_any_loop_to_any_other_as_primes_or_small_powers() -> None:
    encoding, rng = _encoding([Tile(2**12, 4, 2**12)]), np.random.default_rng(0)
    parents = _alike(encoding, [8, 8, 8, 8], 4000)
    children = mutate(encoding, parents, rng).rows
    gained = children // 8
    one = children[(children > 8).sum(axis=1) == 1]
    for part in range(4):
        assert 0.2 < (one[:, part] > 8).mean() < 0.3
    one_prime, two, three = ((gained == 2**power).any(axis=1).mean() for power in range(1, 4))
    assert one_prime > 1.4 * two  # another one goes along half of the time
    assert 0.7 * two < three < 1.1 * two  # and a third one with half of these; there is no fourth
    assert gained.max() <= 2**6  # twice, three at once
    swapped = mutate(encoding, _alike(encoding, [1, 4096, 1, 1], 4000), rng).rows
    whole = (swapped == 4096).any(axis=1)
    assert 0.04 < (whole & (swapped[:, 1] == 1)).mean() < 0.1  # half of the swaps are of this one


def test_a_loop_with_a_limit_takes_no_more_and_its_factors_go_elsewhere() -> None:
    encoding, rng = _encoding([Tile(3 * 2**6, 3, 4)]), np.random.default_rng(0)
    drawn = draw(encoding, 2000, rng).rows
    assert (drawn.prod(axis=1) == 192).all()
    assert set(drawn[:, 2].tolist()) == {1, 2, 3, 4}
    assert abs((drawn[:, 0] > drawn[:, 1]).mean() - (drawn[:, 1] > drawn[:, 0]).mean()) < 0.1
    one = _encoding([Tile(192, 1, 4)])
    assert (draw(one, 3, rng).rows == 192).all()


@given(st.integers(1, 5000))
def test_an_extent_is_the_product_of_its_primes(extent: int) -> None:
    primes = breed._primes(extent)
    assert math.prod(primes) == extent
    assert list(primes) == sorted(primes)
    assert all(prime > 1 and all(prime % d for d in range(2, prime)) for prime in primes)
