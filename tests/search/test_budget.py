import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kintune.search.budget import expected_gain, prospect, rank, sized
from kintune.search.family import Subject
from kintune.search.foresee import sibling
from kintune.search.subgraph import SubgraphState


def _state(
    name: str,
    history: Sequence[float],
    *,
    family: str = "op:dense",
    weight: int = 1,
    flops: float = 1e6,
    stale: float = 0.0,
) -> SubgraphState:
    state = SubgraphState(Subject(name, weight, flops, "dense", "dense"), family, stale=stale)
    state.history = list(history)
    state.best_us = min(history, default=math.inf)
    state.rounds = len(history)
    return state


times = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=6).map(lambda found: sorted(found, reverse=True))


@given(times, st.floats(0.0, 1e6), st.floats(0.0, 2.5))
def test_a_gain_is_never_negative_and_never_more_than_there_is(
    history: list[float], speed: float, stale: float
) -> None:
    state = _state("a", history, weight=3, stale=stale)
    assert 0.0 <= expected_gain(state, speed) <= 3 * max(history)


@given(times, st.floats(0.0, 1e6))
def test_a_round_without_progress_lowers_the_expectation(history: list[float], speed: float) -> None:
    state = _state("a", history)
    before = expected_gain(state, speed)
    state.close_round(1.0)
    assert state.stale == 1.0
    assert expected_gain(state, speed) < before or before == 0.0


def test_what_has_no_time_yet_comes_first_until_patience_ends() -> None:
    fresh, slow = _state("fresh", []), _state("slow", [1e6], weight=100)
    assert rank([slow, fresh]) == [fresh, slow]
    fresh.stale = 3.0
    assert rank([slow, fresh]) == [slow]


def test_past_leaps_are_not_expected_again() -> None:
    """Return a small subgraph with a very slow first program, and a large one at half the speed of its family."""
    light = _state("light", [200_000.0, 190.0, 11.4], family="op:reduction", weight=25, flops=1.08e6)
    kin = _state("kin", [700_000.0, 9000.0, 2750.0], weight=12, flops=600e6)
    heavy = _state("heavy", [9000.0, 6000.0, 5980.0], weight=12, flops=600e6)
    assert rank([light, kin, heavy])[0] is heavy


@given(times, st.floats(0.0, 1e6))
def test_nobody_is_expected_to_save_more_than_is_left(history: list[float], speed: float) -> None:
    state = _state("a", history, weight=2)
    assert expected_gain(state, speed) <= 2 * state.best_us * (1 + 1e-9)


def test_a_stale_subgraph_loses_its_turn() -> None:
    """However slow it is."""
    slow, quick = _state("slow", [9000.0, 9000.0]), _state("quick", [2000.0, 2000.0])
    assert rank([slow, quick])[0] is slow
    slow.close_round(1.0)
    slow.close_round(1.0)
    assert rank([slow, quick])[0] is quick


def test_a_heavy_subgraph_is_given_more_rounds_than_a_light_one() -> None:
    heavy, light = _state("heavy", [9000.0]), _state("light", [90.0])
    rounds = {"heavy": 0, "light": 0}
    while ranked := rank([heavy, light]):
        rounds[ranked[0].subject.workload] += 1
        ranked[0].close_round(1.0)
        assert sum(rounds.values()) < 100
    assert 2 <= rounds["light"] < rounds["heavy"] <= 12


def test_progress_makes_a_subgraph_fresh_again() -> None:
    state = _state("a", [100.0], stale=2.0)
    state.best_us = 90.0
    state.close_round(0.25)
    assert state.stale == 0.0
    assert state.history == [100.0, 90.0]


def test_the_exhausted_gain_nothing() -> None:
    state = _state("a", [100.0])
    state.exhausted = True
    assert rank([state]) == []


def test_weight_decides_between_equals_and_the_digest_between_twins() -> None:
    light, heavy, twin = _state("a", [10.0]), _state("b", [10.0], weight=2), _state("c", [10.0])
    assert rank([twin, light, heavy]) == [heavy, light, twin]


def test_a_fast_sibling_says_how_much_is_possible() -> None:
    """A subgraph as fast as the others of its family has less to gain than a much slower one."""
    fast, behind = _state("fast", [10.0], flops=1e6), _state("behind", [10.0], flops=1e5)
    assert rank([fast, behind]) == [behind, fast]


def test_the_sibling_is_the_steepest_of_the_kin_and_never_oneself() -> None:
    tuned, near, far, stranger = (
        _state("tuned", [900.0]),
        _state("near", [10.0]),
        _state("far", [100.0]),
        _state("stranger", [5000.0], family="op:conv2d"),
    )
    states = [tuned, near, far, stranger]
    assert sibling(tuned, states) is far
    assert sibling(stranger, states) is None


def _bounded(best_us: float, bound_us: float) -> SubgraphState:
    state = _state("a", [best_us])
    state.bound_us = bound_us
    return state


def test_what_runs_as_fast_as_the_device_can_gains_nothing() -> None:
    assert expected_gain(_bounded(100.0, 96.0), 0.0) == 0.0
    assert rank([_bounded(100.0, 96.0)]) == []
    assert expected_gain(_bounded(100.0, 90.0), 0.0) > 0.0


@given(times, st.floats(0.0, 1.0))
def test_a_bound_never_raises_the_expectation(history: list[float], share: float) -> None:
    free, bound = _state("a", history), _state("a", history)
    bound.bound_us = share * bound.best_us
    assert expected_gain(bound, 0.0) <= expected_gain(free, 0.0)


@given(st.integers(1, 512), st.floats(1.0, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1e6))
def test_rounds_shrink_with_the_prospect(size: int, best: float, bound: float, nearer: float) -> None:
    far, near = sorted((bound, nearer))
    assert 1 <= sized(size, _bounded(best, near)) <= sized(size, _bounded(best, far)) <= size


def test_the_size_of_a_round_is_what_is_left_to_gain() -> None:
    assert sized(64, _bounded(100.0, 0.0)) == sized(64, _bounded(100.0, 40.0)) == 64
    assert sized(64, _bounded(100.0, 0.95 * 75.0)) == 32
    assert sized(64, _bounded(100.0, 90.0)) == 8
    assert sized(4, _bounded(100.0, 90.0)) == 4


def test_without_a_time_or_a_bound_all_may_be_gained() -> None:
    assert prospect(_state("a", [])) == prospect(_state("a", [5.0])) == 1.0


@given(
    best=st.floats(1.0, 1e6),
    rounds=st.floats(0.0, 8.0),
    stale=st.floats(0.0, 3.0),
    speed=st.sampled_from([0.0, 0.5]) | st.floats(0.0, 1e6),
    bound=st.floats(0.0, 1.0),
    weight=st.integers(1, 9),
    flops=st.floats(1.0, 1e6),
)
def test_without_a_past_gain_as_much_is_possible_as_time_family_and_bound_leave(
    best: float, rounds: float, stale: float, speed: float, bound: float, weight: int, flops: float
) -> None:
    """A subgraph may become one and a half times as fast as its kin, and reach 95 % of the peak."""
    state = _state("a", [best, best], stale=stale, weight=weight, flops=flops)
    state.rounds, state.bound_us = rounds, bound * best
    left = best * max(0.0, 1 - bound / 0.95)
    kin = max(0.0, best - flops / (1.5 * speed)) if speed else math.inf
    expected = 0.7 * weight * 0.4**stale * min(best / max(1.0, rounds), left, kin)
    assert math.isclose(expected_gain(state, speed), expected, rel_tol=1e-6, abs_tol=1e-9)
    state.history = [math.inf]
    assert math.isclose(expected_gain(state, speed), expected, rel_tol=1e-6, abs_tol=1e-9)


@given(st.lists(st.tuples(st.floats(1.0, 100.0), st.floats(0.01, 100.0), st.booleans()), min_size=1, max_size=5))
def test_the_fastest_of_a_family_says_how_much_is_possible_of_each(found: list[tuple[float, float, bool]]) -> None:
    states = [
        _state(str(n), [best, best], flops=best * speed, family="one" if one else "other")
        for n, (best, speed, one) in enumerate(found)
    ]
    fastest = {
        family: max((s.subject.flops / s.best_us for s in states if s.family == family), default=0.0)
        for family in ("one", "other")
    }
    gains = {s.subject.workload: expected_gain(s, fastest[s.family]) for s in states}
    least = 2e-4 * sum(s.best_us for s in states)
    worth = sorted((-gain, name) for name, gain in gains.items() if gain > least)
    assert [s.subject.workload for s in rank(states)] == [name for _, name in worth]


@given(fall=st.floats(0.1, 30.0), best=st.floats(100.0, 1e5))
def test_the_past_gain_is_the_mean_over_the_last_three_rounds(fall: float, best: float) -> None:
    """So the same fall over twice as many rounds promises half as much; what lies further back promises nothing."""

    def promised(*before: float) -> float:
        state, flat = _state("a", [*before, best]), _state("a", [best])
        state.rounds = flat.rounds = 2.0
        return expected_gain(state, 0.0) - expected_gain(flat, 0.0)

    once = promised(best + fall)
    assert math.isclose(once, 0.3 * fall, rel_tol=1e-6)
    assert math.isclose(promised(best + fall, best + fall / 2), once / 2, rel_tol=1e-6)
    assert math.isclose(promised(best + fall, best + fall, best), once / 3, rel_tol=1e-6)
    assert math.isclose(promised(best + 50 * fall, best, best, best), 0.0, abs_tol=1e-6 * fall)
    assert math.isclose(promised(math.inf, best + fall), once, rel_tol=1e-6)
