import statistics
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.paired_ratio import PairedRatio, paired_ratio

ROUNDS = st.lists(st.tuples(st.floats(0.01, 1e3), st.floats(0.01, 1e3)), min_size=1, max_size=20)


def test_a_machine_that_becomes_slower_changes_no_ratio() -> None:
    speeds = (1.0, 1.1, 3.0, 2.5, 1.0, 1.7)
    assert paired_ratio([0.8 * 5.0 * speed for speed in speeds], [5.0 * speed for speed in speeds]) == pytest.approx(
        0.8
    )


@given(ROUNDS)
def test_the_other_way_round_it_is_the_inverse_or_near_it(rounds: list[tuple[float, float]]) -> None:
    ours, others = zip(*rounds, strict=True)
    ratios = [a / b for a, b in rounds]
    assert min(ratios) <= paired_ratio(ours, others) <= max(ratios)
    if len(rounds) % 2:
        assert paired_ratio(others, ours) == pytest.approx(1.0 / paired_ratio(ours, others))
        assert paired_ratio(ours, others) == pytest.approx(statistics.median(ratios))


@pytest.mark.parametrize(("ours", "others"), [((), ()), ((1.0,), (1.0, 2.0)), ((1.0, 2.0), (1.0,))])
def test_rounds_that_do_not_match_are_refused(ours: tuple[float, ...], others: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"round|zip"):
        paired_ratio(ours, others)


@pytest.mark.parametrize(
    ("behind", "rounds", "decided"),
    [(1, 1, True), (3, 3, True), (5, 5, True), (4, 5, False), (8, 10, True), (7, 10, False), (38, 60, True)],
)
def test_chance_is_told_by_the_number_of_rounds(behind: int, rounds: int, *, decided: bool) -> None:
    ours = (2.0,) * behind + (1.0,) * (rounds - behind)
    assert PairedRatio.of(ours, (1.5,) * rounds).is_decided == decided
    assert PairedRatio.of((1.5,) * rounds, ours).is_decided == decided, "whichever is ahead"


@given(ROUNDS, st.floats(0.1, 10.0))
def test_the_interval_holds_the_median_and_knows_no_units(rounds: list[tuple[float, float]], unit: float) -> None:
    ours, others = zip(*rounds, strict=True)
    found, other = PairedRatio.of(ours, others), PairedRatio.of(others, ours)
    assert min(a / b for a, b in rounds) <= found.low <= found.ratio <= found.high <= max(a / b for a, b in rounds)
    assert (other.low, other.high) == (pytest.approx(1 / found.high), pytest.approx(1 / found.low))
    scaled = PairedRatio.of([unit * each for each in ours], [unit * each for each in others])
    assert (scaled.low, scaled.high) == (pytest.approx(found.low), pytest.approx(found.high))


@pytest.mark.parametrize("rounds", [5, 8, 10, 20, 40])
def test_it_holds_the_true_median_as_often_as_it_says(rounds: int) -> None:
    random, held = Random(rounds), 0
    for _ in range(200):
        ours = [random.lognormvariate(0.0, 0.3) for _ in range(rounds)]
        found = PairedRatio.of(ours, [1.0] * rounds)
        held += found.low <= 1.0 <= found.high
    assert held >= 200 * 0.88 - 6 * (200 * 0.88 * 0.12) ** 0.5


@given(ROUNDS, st.floats(0.001, 0.5))
def test_what_it_tells_is_a_gain_larger_than_its_spread_or_none(
    rounds: list[tuple[float, float]], level: float
) -> None:
    found = PairedRatio.of(*zip(*rounds, strict=True))
    if found.tells(level) and not found.is_level(level):
        assert found.is_decided
        assert found.spread <= abs(1 - found.ratio)
    if found.is_level(level):
        assert 1 - 2 * level <= found.low <= found.high <= 1 + 2 * level


@given(st.floats(0.01, 3.0), st.floats(0.01, 3.0), st.floats(0.01, 3.0), st.floats(0.001, 1.0))
def test_a_ratio_is_level_within_the_level_and_its_interval_within_twice_that(
    ratio: float, low: float, high: float, level: float
) -> None:
    found = PairedRatio(ratio, low, high, 5)
    expected = abs(1 - ratio) <= level and 1 - low <= 2 * level and high - 1 <= 2 * level
    assert found.is_level(level) == expected


def test_the_limits_of_what_is_level_belong_to_it() -> None:
    assert PairedRatio(1.25, 0.5, 1.5, 5).is_level(0.25)
    assert not PairedRatio(1.25, 0.5, 1.5, 5).is_level(0.24)
    decided = PairedRatio(0.5, 0.25, 0.75, 5)  # a gain as large as its spread
    assert decided.tells(0.1)
    assert not PairedRatio(0.5, 0.25, 0.76, 5).tells(0.1)
    assert not PairedRatio(1.0, 1.0, 1.0, 5).is_decided


def test_a_round_without_time_divides_by_next_to_none() -> None:
    assert PairedRatio.of([1.0], [0.0]).ratio == pytest.approx(1e9)
    assert PairedRatio.of([4.0], [2.0]).ratio == 2.0


def test_an_interval_that_is_wide_on_one_side_is_not_level() -> None:
    assert not PairedRatio(1.0, 0.5, 1.6, 5).is_level(0.25)
    assert not PairedRatio(1.0, 0.4, 1.5, 5).is_level(0.25)
    assert PairedRatio(1.0, 0.5, 1.5, 5).is_level(0.25)
