"""The culprits among changes are found, whoever they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.tuning.job.network_check import MOST_TRIES, Bisection


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
