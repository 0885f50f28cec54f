import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, Sketch, Tile
from kintune.search.evolve import draw
from kintune.search.features.encoding import Encoding, Population, encodings

AXES: tuple[Axis, ...] = (Tile(12, 4), Choice((0, 16), (1.0, 1.0)), Tile(7, 2), Location(5))


def _sketches(*digests: str, axes: tuple[Axis, ...] = AXES) -> list[Sketch]:
    return [Sketch("w", digest, b"", axes) for digest in digests]


@given(st.integers(0, 2**32 - 1), st.integers(0, 20))
def test_candidates_become_numbers_and_themselves_again(seed: int, count: int) -> None:
    encoding = Encoding(_sketches("one", "two"))
    rng = np.random.default_rng(seed)
    candidates = [draw(encoding.sketches[i % 2], rng) for i in range(count)]
    population = encoding.encode(candidates)
    assert population.rows.shape == (count, 4 + 1 + 2 + 1)
    assert list(encoding.candidates(population)) == candidates


def test_without_axes_there_are_no_columns() -> None:
    encoding = Encoding(_sketches("one", axes=()))
    population = encoding.encode([Candidate("w", "one", ())] * 3)
    assert population.rows.shape == (3, 0)
    assert list(encoding.candidates(population)) == [Candidate("w", "one", ())] * 3


def test_sketches_with_equal_axes_share_a_frame() -> None:
    odd = Sketch("w", "odd", b"", (Tile(12, 2),))
    one, two = _sketches("one", "two")
    first, second = encodings([one, odd, two])
    assert first.sketches == (one, two)
    assert second.sketches == (odd,)
    assert encodings([]) == ()


def test_a_frame_knows_its_candidates() -> None:
    one, odd = Encoding(_sketches("one")), Encoding(_sketches("odd"))
    candidate = draw(one.sketches[0], np.random.default_rng(0))
    assert candidate in one
    assert candidate not in odd


def test_each_is_kept_once_in_the_order_of_first_appearance() -> None:
    population = Population(np.array([1, 0, 1, 1]), np.array([[3, 4], [3, 4], [3, 4], [2, 9]]))
    kept = population.unique()
    assert kept.sketch.tolist() == [1, 0, 1]
    assert kept.rows.tolist() == [[3, 4], [3, 4], [2, 9]]


def test_an_empty_herd_has_nothing_twice() -> None:
    encoding = Encoding(_sketches("one"))
    assert len(encoding.encode([]).unique()) == 0
