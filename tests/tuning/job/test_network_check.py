"""What is tried next when a network of chosen programs fails, and what is settled in the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate
from kintune.tuning.job.network_check import MOST_TRIES, Bisection, NetworkCheck


def programs(size: int) -> dict[str, Candidate]:
    return {f"w{i}": Candidate(f"w{i}", "rule", ((1,),)) for i in range(size)}


def untuned(size: int) -> dict[str, Candidate]:
    return {f"w{i}": Candidate.untuned(f"w{i}") for i in range(size)}


def test_good_programs_are_settled_at_once() -> None:
    check = NetworkCheck(programs(3), untuned(3))
    assert check.attempt == programs(3)
    check.observe("")
    assert (check.ok, check.attempt, check.settled, check.culprits) == (True, None, programs(3), frozenset())


def test_what_fails_untuned_too_is_no_programs_fault() -> None:
    check = NetworkCheck(programs(3), untuned(3))
    check.observe("differs")
    assert check.attempt == untuned(3)
    check.observe("differs still")
    assert (check.ok, check.attempt, check.cause) == (False, None, "differs")


def test_without_any_choice_one_attempt_decides() -> None:
    check = NetworkCheck(untuned(2), untuned(2))
    check.observe("differs")
    assert (check.ok, check.attempt, check.cause) == (False, None, "differs")


@given(st.integers(1, 20), st.booleans(), st.data())
def test_culprits_get_the_fallback(size: int, is_good: bool, data: st.DataObject) -> None:
    culprit = data.draw(st.sampled_from(sorted(programs(size))))
    check = NetworkCheck(programs(size), untuned(size), is_good=is_good)
    while (attempt := check.attempt) is not None:
        check.observe("differs" if attempt[culprit] == programs(size)[culprit] else "")
    assert check.ok
    assert check.cause == "differs"
    assert check.culprits == {culprit}
    assert check.settled == {**programs(size), culprit: Candidate.untuned(culprit)}


def test_a_good_fallback_is_not_tried_again() -> None:
    check = NetworkCheck(programs(4), untuned(4), is_good=True)
    check.observe("differs")
    assert check.attempt not in (None, untuned(4))


def test_nothing_is_observed_after_the_end() -> None:
    check = NetworkCheck(programs(1), untuned(1))
    check.observe("")
    with pytest.raises(ValueError, match="over"):
        check.observe("")


def test_programs_that_are_known_to_be_wrong_are_replaced_without_a_search() -> None:
    check = NetworkCheck(programs(4), untuned(4))
    check.blame(["w2"], "w2 differs")
    assert (check.ok, check.culprits, check.cause) == (True, {"w2"}, "w2 differs")
    assert check.settled == {**programs(4), "w2": Candidate.untuned("w2")}


def test_blame_for_what_was_not_chosen_is_a_failure_like_any_other() -> None:
    check = NetworkCheck(programs(3), untuned(3))
    check.blame(["w9"], "differs")
    assert (check.ok, check.attempt) == (None, untuned(3))


def play(bisection: Bisection, fails: Callable[[frozenset[str]], bool]) -> list[frozenset[str]]:
    """Run the search to its end; what was tried."""
    tried = []
    while (attempt := bisection.attempt) is not None:
        tried.append(attempt)
        bisection.observe(ok=not fails(attempt))
    return tried


@given(st.integers(1, 60), st.data())
def test_one_culprit_is_found_and_the_rest_is_tried(size: int, data: st.DataObject) -> None:
    changes = [str(i) for i in range(size)]
    culprit = data.draw(st.sampled_from(changes))
    bisection = Bisection(changes)
    tried = play(bisection, lambda attempt: culprit in attempt)
    assert bisection.culprits == {culprit}
    assert len(tried) <= size.bit_length() + 1
    if size > 1:
        assert tried[-1] == frozenset(changes) - {culprit}


@given(st.integers(2, 30), st.data())
def test_what_is_left_was_seen_to_be_fine(size: int, data: st.DataObject) -> None:
    changes = [str(i) for i in range(size)]
    culprits = data.draw(st.sets(st.sampled_from(changes), min_size=1))
    bisection = Bisection(changes)
    tried = play(bisection, lambda attempt: bool(attempt & culprits))
    left = frozenset(changes) - bisection.culprits
    assert culprits <= bisection.culprits
    assert not left or left in tried
    assert len(tried) <= MOST_TRIES
    if len(tried) < MOST_TRIES:
        assert bisection.culprits == culprits


@given(st.integers(2, 20), st.data())
def test_two_that_only_fail_together_are_parted(size: int, data: st.DataObject) -> None:
    changes = [str(i) for i in range(size)]
    pair = frozenset(data.draw(st.permutations(changes))[:2])
    bisection = Bisection(changes)
    play(bisection, lambda attempt: pair <= attempt)
    assert bisection.culprits & pair
    assert len(bisection.culprits) == 1


def test_nobody_observes_what_was_not_tried() -> None:
    bisection = Bisection(["a"])
    assert bisection.attempt is None
    with pytest.raises(ValueError, match="over"):
        bisection.observe(ok=True)
