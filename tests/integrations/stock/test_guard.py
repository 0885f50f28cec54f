import math

from hypothesis import given
from hypothesis import strategies as st

from kintune.integrations.stock.guard import Guard

BEFORE = [1.0, 2.0, 3.0, 4.0, 5.0]
WORSE = [6.0, math.inf, 7.0, 8.0]
BETTER = [1.5, 2.0, 2.5, 9.0]
NEW_BEST = [0.9, 9.0, 9.0, 9.0]


def test_it_shrinks_pauses_and_grows_again() -> None:
    guard = Guard(16)
    sizes = []
    for _ in range(3):
        sizes.append(guard.size("op:dense"))
        guard.judge("op:dense", BEFORE, WORSE)
    assert sizes == [16, 8, 4]
    assert [guard.size("op:dense") for _ in range(4)] == [0, 0, 0, 4]
    guard.judge("op:dense", BEFORE, BETTER)
    assert guard.size("op:dense") == 8
    guard.judge("op:dense", BEFORE, NEW_BEST)
    assert guard.size("op:dense") == 16
    assert guard.size("op:conv2d") == 16


def test_a_round_that_measured_nothing_says_nothing() -> None:
    guard = Guard(16)
    guard.judge("a", BEFORE, [])
    assert guard.size("a") == 16


@given(st.integers(1, 32), st.lists(st.lists(st.floats(0.1, 10) | st.just(math.inf), min_size=1), max_size=30))
def test_its_sizes_stay_between_none_and_full(full: int, rounds: list[list[float]]) -> None:
    guard = Guard(full)
    for times in rounds:
        assert 0 <= guard.size("a") <= full
        guard.judge("a", BEFORE, times)


@given(st.lists(st.lists(st.floats(0.1, 0.9), min_size=1), max_size=10))
def test_it_never_stands_in_the_way_of_what_pays(rounds: list[list[float]]) -> None:
    guard = Guard(16)
    for times in rounds:
        guard.judge("a", BEFORE, times)
        assert guard.size("a") == 16
