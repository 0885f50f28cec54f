import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, Sketch, Tile
from kintune.search.evolve import cross, draw, mutate
from kintune.testing.decisions import check_candidate

extents = st.one_of(st.integers(1, 4096), st.sampled_from([1, 2, 7, 13, 64, 97, 1000, 1009, 2048]))
tiles = st.builds(Tile, extents, st.integers(2, 5), st.sampled_from([1, 4, 16, 64]))
choices = st.lists(st.integers(0, 512), min_size=1, max_size=4, unique=True).map(
    lambda values: Choice(tuple(values), (1.0,) * len(values))
)
locations = st.integers(1, 24).map(Location)
axis_lists: st.SearchStrategy[list[Axis]] = st.lists(st.one_of(tiles, choices, locations), max_size=6)
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
