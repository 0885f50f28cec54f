from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.validate.baseline_protocol import BaselineTurn, ProfileTurn
from kintune.validate.thread_choice import choose_thread_counts, counts_to_try, is_faster, profile_kernels

CONDITIONS = ValidationContext(threads=2, rounds=4, min_rounds=4, runs=5, race_seconds=0.0)


@pytest.mark.parametrize(("threads", "tried"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))])
def test_powers_of_two_and_all_threads_are_tried(threads: int, tried: tuple[int, ...]) -> None:
    assert counts_to_try(threads) == tried


def test_each_call_gets_the_fewest_threads_with_which_it_is_about_as_fast_as_can_be() -> None:
    times = {
        1: {0: 3.0, 2: 90.0, 3: 50.0, 7: 20.2},
        2: {0: 4.0, 2: 45.0, 3: 30.0, 7: 20.0},
        4: {0: 5.0, 2: 25.0, 3: 40.0, 7: 21.0},
    }
    assert choose_thread_counts(times) == {0: 1, 3: 2, 7: 1}


@given(
    st.lists(st.tuples(*[st.floats(0.1, 1e6)] * 3), min_size=1, max_size=8),
)
def test_what_is_chosen_is_never_much_slower_than_any_other_number(rows: list[tuple[float, ...]]) -> None:
    times = {count: {place: row[at] for place, row in enumerate(rows)} for at, count in enumerate((1, 2, 3))}
    chosen = choose_thread_counts(times)
    for place, row in enumerate(rows):
        assert times[chosen.get(place, 3)][place] <= 1.03 * min(row)


class Profiled:
    """Kernels that take twice as long on one thread, and longer in each later turn."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def profile(self, turn: ProfileTurn, seconds: float) -> dict[int, float]:
        self.asked.append(turn.threads)
        return {0: 10.0 / turn.threads + len(self.asked) / 10, 4: 1.0}


def test_every_number_takes_its_turn_and_none_is_always_first() -> None:
    process = Profiled()
    times = profile_kernels(process, 2)
    assert process.asked == [1, 2, 2, 1, 1, 2]
    assert times[1] == pytest.approx({0: 10.4, 4: 1.0})
    assert times[2] == pytest.approx({0: 5.3, 4: 1.0})


class Timed:
    """A network of one latency, or one that stops."""

    def __init__(self, name: str, latency_ms: float | None) -> None:
        self.name = name
        self._latency_ms = latency_ms
        self.turns = 0

    def turn(self, turn: BaselineTurn, seconds: float) -> Sequence[float]:
        self.turns += 1
        if self._latency_ms is None:
            raise EngineError("it died")
        return (self._latency_ms,) * turn.runs


@pytest.mark.parametrize(("after", "kept"), [(0.9, True), (1.005, True), (1.02, False)])
def test_the_choice_is_kept_where_the_network_is_no_slower(after: float, kept: bool) -> None:
    assert is_faster(Timed("plain", 1.0), Timed("chosen", after), CONDITIONS, lambda: 0.0) == kept


@pytest.mark.parametrize(("share", "after", "kept"), [(0.1, 0.89, True), (0.1, 0.91, False), (0.1, 1.0, False)])
def test_a_choice_that_costs_something_must_gain_so_much(share: float, after: float, kept: bool) -> None:
    assert is_faster(Timed("plain", 1.0), Timed("chosen", after), CONDITIONS, lambda: 0.0, share) == kept


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 8), (0.6, 3), (0.3, 5), (99.0, 2)])
def test_both_take_turns_for_a_second(seconds: float, rounds: int) -> None:
    """Two rounds at least, and eight at most."""
    now = iter(seconds * number for number in range(99))
    plain, chosen = Timed("plain", 1.0), Timed("chosen", 1.0)
    assert is_faster(plain, chosen, CONDITIONS, lambda: next(now))
    assert (plain.turns, chosen.turns) == (rounds, rounds)


def test_a_network_that_stops_is_an_error() -> None:
    with pytest.raises(EngineError, match="stopped"):
        is_faster(Timed("plain", 1.0), Timed("chosen", None), CONDITIONS, lambda: 0.0)
