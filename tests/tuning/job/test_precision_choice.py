from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.tuning.job.precision_choice import MARGIN, MOST_ALONE, MOST_MIXTURES, Alternative, PrecisionChoice


def run(choice: PrecisionChoice, errors: Mapping[str, float], coupling: float = 1.0) -> int:
    """Answers attempts: the error of several is the root of the sum of squares, times `coupling`; returns how many."""
    tries = 0
    while (attempt := choice.attempt) is not None:
        tries += 1
        total = math.sqrt(sum(errors[f"{workload} {precision}"] ** 2 for workload, precision in attempt.items()))
        choice.observe(total * (coupling if len(attempt) > 1 else 1.0))
    return tries


def test_without_alternatives_everything_stays_in_fp32() -> None:
    choice = PrecisionChoice([], 1e-2)
    assert choice.attempt is None
    assert choice.settled == {}


def test_where_all_fit_one_network_is_tried() -> None:
    choice = PrecisionChoice([Alternative("a", "bf16", 5.0), Alternative("b", "bf16", 1.0)], 1e-2)
    assert run(choice, {"a bf16": 1e-3, "b bf16": 1e-3}) == 1
    assert choice.settled == {"a": "bf16", "b": "bf16"}


def test_the_budget_goes_where_it_saves_most_time() -> None:
    alternatives = [Alternative("a", "bf16", 100.0), Alternative("b", "bf16", 90.0), Alternative("c", "bf16", 80.0)]
    choice = PrecisionChoice(alternatives, 1e-2)
    run(choice, {"a bf16": 9e-3, "b bf16": 5e-3, "c bf16": 5e-3})
    assert choice.settled == {"b": "bf16", "c": "bf16"}


def test_of_two_precisions_of_a_workload_one_is_used() -> None:
    alternatives = [Alternative("a", "int8", 100.0), Alternative("a", "bf16", 60.0), Alternative("b", "int8", 10.0)]
    choice = PrecisionChoice(alternatives, 1e-2)
    assert choice.attempt == {"a": "int8", "b": "int8"}
    run(choice, {"a int8": 5e-2, "a bf16": 1e-3, "b int8": 2e-3})
    assert choice.settled == {"a": "bf16", "b": "int8"}


def test_a_network_that_fails_is_not_used() -> None:
    choice = PrecisionChoice([Alternative("a", "bf16", 2.0), Alternative("b", "bf16", 1.0)], 1e-2)
    choice.observe(math.inf)
    choice.observe(math.nan)
    choice.observe(1e-3)
    run(choice, {"a bf16": math.inf, "b bf16": 1e-3})
    assert choice.settled == {"b": "bf16"}


def test_what_is_refused_on_other_inputs_is_chosen_more_strictly_or_not_at_all() -> None:
    alternatives = [Alternative("a", "bf16", 100.0), Alternative("b", "bf16", 90.0)]
    errors = {"a bf16": 5e-3, "b bf16": 5e-3}
    choice = PrecisionChoice(alternatives, 1e-2)
    run(choice, errors)
    assert choice.settled == {"a": "bf16", "b": "bf16"}
    choice.refuse()
    run(choice, errors)
    assert choice.settled == {"a": "bf16"}
    choice.refuse()
    run(choice, errors)
    assert choice.settled == {}
    with pytest.raises(ValueError, match="nothing is chosen"):
        choice.refuse()
    with pytest.raises(ValueError, match="the choice is made"):
        choice.observe(0.0)


def test_for_want_of_time_those_that_save_most_are_tried_together() -> None:
    alternatives = [Alternative(name, "bf16", 9.0 - at) for at, name in enumerate("abcdefgh")]
    errors = {f"{name} bf16": 3e-3 for name in "abcdefgh"}
    choice = PrecisionChoice(alternatives, 1e-2)
    assert not choice.hurry()
    choice.observe(1.2e-2)  # of all
    choice.observe(9e-3)  # of the first alone, which is not used
    assert choice.hurry()
    assert not choice.hurry()
    assert choice.attempt == dict.fromkeys("bcde", "bf16")
    tries = run(choice, errors)
    assert choice.settled == dict.fromkeys("bcdefgh", "bf16")  # the root of 7 times 9e-6 is 7.9e-3
    assert tries == 3
    assert not choice.hurry()


def test_for_want_of_time_what_does_not_fit_together_is_halved() -> None:
    alternatives = [Alternative(name, "bf16", 9.0 - at) for at, name in enumerate("abcdefgh")]
    choice = PrecisionChoice(alternatives, 1e-2)
    choice.observe(math.inf)
    assert choice.hurry()
    tries = run(choice, {f"{name} bf16": 5e-3 for name in "abcdefgh"})
    assert choice.settled == dict.fromkeys("ab", "bf16")
    assert tries == 3


def test_what_was_tried_together_for_want_of_time_may_be_refused() -> None:
    choice = PrecisionChoice([Alternative(name, "bf16", 1.0) for name in "abcd"], 1e-2)
    choice.observe(2e-2)
    choice.hurry()
    choice.observe(5e-3)
    choice.give_up()
    assert choice.settled == dict.fromkeys("ab", "bf16")
    choice.refuse()
    assert (choice.attempt, choice.settled) == (None, {})


alternatives = st.lists(
    st.builds(Alternative, st.sampled_from("abcdefgh"), st.sampled_from(["bf16", "int8"]), st.floats(0.1, 1e4)),
    max_size=12,
    unique_by=lambda a: a[:2],
)


@given(alternatives, st.floats(1e-4, 1e-1), st.floats(0.5, 4.0), st.integers(0, 3), st.data())
def test_whatever_is_chosen_was_tried_and_is_within_the_budget(
    alternatives: list[Alternative], budget: float, coupling: float, refusals: int, data: st.DataObject
) -> None:
    errors = {f"{a.workload} {a.precision}": data.draw(st.floats(0, 1)) for a in alternatives}
    choice = PrecisionChoice(alternatives, budget)
    tried: dict[tuple[tuple[str, str], ...], float] = {}
    for at in range(refusals + 1):
        tries = 0
        while (attempt := choice.attempt) is not None:
            tries += 1
            error = math.sqrt(sum(errors[f"{w} {p}"] ** 2 for w, p in attempt.items()))
            error *= coupling if len(attempt) > 1 else 1.0
            tried[tuple(sorted(attempt.items()))] = error
            choice.observe(error)
        assert tries <= MOST_ALONE + MOST_MIXTURES + 1
        if choice.settled:
            assert tried[tuple(sorted(choice.settled.items()))] <= MARGIN * budget
            if at < refusals:
                choice.refuse()
        else:
            break
