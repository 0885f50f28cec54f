import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, NamedChoice, Sketch, Tile
from kintune.search.evolve import cross, draw, mutate
from kintune.testing.decisions import check_candidate
from tests.support.axes import named_choices

extents = st.one_of(st.integers(1, 4096), st.sampled_from([1, 2, 7, 13, 64, 97, 1000, 1009, 2048]))
tiles = st.builds(Tile, extents, st.integers(2, 5), st.sampled_from([1, 4, 16, 64]))
choices = st.lists(st.integers(0, 512), min_size=1, max_size=4, unique=True).map(
    lambda values: Choice(tuple(values), (1.0,) * len(values))
)
locations = st.integers(1, 24).map(Location)
axis_lists: st.SearchStrategy[list[Axis]] = st.lists(st.one_of(tiles, choices, named_choices, locations), max_size=6)
seeds = st.integers(0, 2**32 - 1)


def _sketches(axes: list[Axis]) -> list[Sketch]:
    return [Sketch("w", digest, b"", tuple(axes)) for digest in ("one", "two")]


@given(axis_lists, seeds)
def test_what_is_drawn_mutated_and_crossed_is_valid(axes: list[Axis], seed: int) -> None:
    sketches = _sketches(axes)
    by_digest = {sketch.digest: sketch for sketch in sketches}
    rng = np.random.default_rng(seed)
    left, right = draw(sketches[0], rng), draw(sketches[0], rng)
    child = cross(left, right, rng)
    for candidate in (left, right, child):
        check_candidate(sketches[0], candidate, drawn=True)
    for _ in range(5):
        child = mutate(child, sketches, rng)
        check_candidate(by_digest[child.sketch], child, drawn=True)


@given(axis_lists, seeds)
def test_equal_generators_draw_and_mutate_equally(axes: list[Axis], seed: int) -> None:
    sketches = _sketches(axes)

    def walk() -> list[Candidate]:
        rng = np.random.default_rng(seed)
        steps = [draw(sketches[0], rng)]
        for _ in range(4):
            steps.append(mutate(steps[-1], sketches, rng))
        return steps

    assert walk() == walk()


@given(axis_lists, seeds)
def test_crossing_takes_every_decision_from_a_parent(axes: list[Axis], seed: int) -> None:
    sketch = _sketches(axes)[0]
    rng = np.random.default_rng(seed)
    left, right = draw(sketch, rng), draw(sketch, rng)
    child = cross(left, right, rng)
    assert all(d in pair for d, *pair in zip(child.decisions, left.decisions, right.decisions, strict=True))


@given(named_choices, seeds)
def test_a_named_choice_that_is_open_always_changes(axis: NamedChoice, seed: int) -> None:
    sketch = Sketch("w", "one", b"", (axis,))
    rng = np.random.default_rng(seed)
    candidate = draw(sketch, rng)
    changed = len(axis.values) > 2  # two changes may undo each other
    assert not changed or any(mutate(candidate, [sketch], rng) != candidate for _ in range(20))
    assert len(axis.values) > 1 or mutate(candidate, [sketch], rng) == candidate


def test_parents_of_different_sketches_are_not_mixed() -> None:
    one, two = _sketches([Tile(64, 4)])
    rng = np.random.default_rng(0)
    left, right = draw(one, rng), draw(two, rng)
    assert cross(left, right, rng) == left


def test_mutation_reaches_every_program_of_a_small_sketch() -> None:
    sketch = Sketch("w", "one", b"", (Tile(4, 3), Choice((0, 16), (0.5, 0.5)), Location(2)))
    rng = np.random.default_rng(0)
    candidate = draw(sketch, rng)
    reached = {candidate}
    for _ in range(3000):
        candidate = mutate(candidate, [sketch], rng)
        reached.add(candidate)
    assert len(reached) == 6 * 2 * 4


def test_mutation_moves_to_a_sketch_with_the_same_axes_and_to_no_other() -> None:
    axes = (Tile(8, 4),)
    sketches = [Sketch("w", "one", b"", axes), Sketch("w", "two", b"", axes), Sketch("w", "three", b"", (Tile(9, 4),))]
    rng = np.random.default_rng(0)
    parent = draw(sketches[0], rng)
    assert {mutate(parent, sketches, rng).sketch for _ in range(100)} == {"one", "two"}


def test_a_sketch_without_anything_open_has_one_program() -> None:
    sketch = Sketch("w", "one", b"", (Tile(1, 4), Choice((0,), (1.0,))))
    rng = np.random.default_rng(0)
    assert mutate(draw(sketch, rng), [sketch], rng) == draw(sketch, rng)


def _changes(one: Candidate, other: Candidate) -> int:
    return sum(a != b for a, b in zip(one.decisions, other.decisions, strict=True))


def test_a_child_differs_in_one_or_sometimes_two_decisions_and_rarely_in_its_sketch() -> None:
    axes: list[Axis] = [Choice(tuple(range(64)), (1.0,) * 64) for _ in range(12)]
    sketches, rng = _sketches(axes), np.random.default_rng(0)
    parent = draw(sketches[0], rng)
    children = [mutate(parent, sketches, rng) for _ in range(2000)]
    moved = [child for child in children if child.sketch != parent.sketch]
    assert all(child.decisions == parent.decisions for child in moved)
    assert 0.12 < len(moved) / 2000 < 0.18
    stayed = [_changes(parent, child) for child in children if child.sketch == parent.sketch]
    assert set(stayed) == {0, 1, 2}  # rarely the second change takes back the first
    assert stayed.count(0) < 5
    assert 0.32 < np.mean([count == 2 for count in stayed]) < 0.42  # two changes of the same one count as one


def test_each_parent_gives_half_of_the_decisions_and_each_value_is_drawn_by_its_weight() -> None:
    axes: list[Axis] = [Choice((0, 1, 2), (6.0, 3.0, 1.0)) for _ in range(400)]
    sketch, rng = _sketches(axes)[0], np.random.default_rng(0)
    drawn = np.array([decision[0] for decision in draw(sketch, rng).decisions])
    assert 0.53 < (drawn == 0).mean() < 0.67
    assert 0.06 < (drawn == 2).mean() < 0.14
    left = Candidate("w", "one", ((0,),) * 400)
    right = Candidate("w", "one", ((1,),) * 400)
    assert 160 < _changes(left, cross(left, right, rng)) < 240


def test_a_place_moves_to_a_neighbour_half_of_the_time_and_else_anywhere() -> None:
    sketch, rng = Sketch("w", "one", b"", (Location(100),)), np.random.default_rng(0)
    parent = Candidate("w", "one", ((50,),))
    places = np.array([mutate(parent, [sketch], rng).decisions[0][0] for _ in range(2000)])
    beside = np.abs(places - 50) == 1
    assert 0.3 < beside.mean() < 0.6  # some move twice
    assert (places == 49).any()
    assert (places == 51).any()
    assert {-2, -1, 0, 99} <= {draw(sketch, rng).decisions[0][0] for _ in range(3000)}
    assert places.min() < 10
    assert places.max() > 90
    for end in (-2, 99):
        edge = Candidate("w", "one", ((end,),))
        places = np.array([mutate(edge, [sketch], rng).decisions[0][0] for _ in range(500)])
        assert set(places) <= set(range(-2, 100))
        assert 0.12 < (places == end).mean() < 0.35  # one neighbour is outside


def test_the_innermost_loop_grows_up_to_its_limit_and_no_further() -> None:
    sketch, rng = Sketch("w", "one", b"", (Tile(2**6, 3, 8),)), np.random.default_rng(0)
    parent = Candidate("w", "one", ((4, 4, 4),))
    innermost = set()
    for _ in range(500):
        parent = mutate(parent, [sketch], rng)
        innermost.add(parent.decisions[0][2])
    assert innermost == {1, 2, 4, 8}


def test_all_loops_of_a_tile_are_as_likely_to_give_and_to_take() -> None:
    sketch, rng = Sketch("w", "one", b"", (Tile(3**4, 4, 81),)), np.random.default_rng(0)
    parent = Candidate("w", "one", ((3, 3, 3, 3),))
    children = np.array([mutate(parent, [sketch], rng).decisions[0] for _ in range(3000)])
    once = children[(children == 9).sum(axis=1) == 1]
    for part in range(4):
        assert 0.2 < (once[:, part] == 9).mean() < 0.3
        assert 0.2 < (once[:, part] == 1).mean() < 0.3
    drawn = np.array([draw(sketch, rng).decisions[0] for _ in range(2000)])
    assert abs((drawn[:, 1] == 1).mean() - (drawn[:, 2] == 1).mean()) < 0.06
    assert (drawn[:, 3] == 81).any()
    assert (drawn[:, 0] == 81).any()


def test_a_limit_of_the_innermost_loop_is_none_of_the_others() -> None:
    rng = np.random.default_rng(0)
    drawn = {draw(Sketch("w", "s", b"", (Tile(2, 3, 1),)), rng).decisions[0] for _ in range(200)}
    assert drawn == {(2, 1, 1), (1, 2, 1)}
