import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.paired_ratio import paired_ratio

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
