import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.search.family.measured import clusters


def _blocks(*sizes: int) -> np.ndarray:
    at = np.repeat(np.arange(len(sizes)), sizes)
    return np.where(at[:, None] == at[None, :], 0.9, 0.3)


def test_what_is_near_becomes_one() -> None:
    assert clusters(_blocks(2, 1, 3), 0.6, lambda left, right: True) == [[0, 1], [2], [3, 4, 5]]


def test_what_gains_nothing_stays_apart_however_near() -> None:
    assert clusters(_blocks(3), 0.6, lambda left, right: False) == [[0], [1], [2]]


def test_those_kept_apart_are_asked_about_again_when_one_has_grown() -> None:
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def merges(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
        asked.append((left, right))
        return (left, right) != ((0,), (1,))

    affinity = np.array([[1.0, 0.9, 0.7], [0.9, 1.0, 0.8], [0.7, 0.8, 1.0]])
    assert clusters(affinity, 0.5, merges) == [[0, 1, 2]]
    assert asked == [((0,), (1,)), ((1,), (2,)), ((0,), (1, 2))]


def test_nothing_makes_no_groups() -> None:
    assert clusters(np.zeros((0, 0)), 0.5, lambda left, right: True) == []


@given(n=st.integers(0, 8), least=st.floats(0.0, 1.0), seed=st.integers(0, 1000))
def test_each_is_in_one_group_and_no_two_groups_are_near(n: int, least: float, seed: int) -> None:
    affinity = np.random.default_rng(seed).uniform(size=(n, n))
    affinity = (affinity + affinity.T) / 2
    groups = clusters(affinity, least, lambda left, right: True)
    assert sorted(i for group in groups for i in group) == list(range(n))
    for at, left in enumerate(groups):
        assert all(affinity[np.ix_(left, right)].mean() < least for right in groups[at + 1 :])
