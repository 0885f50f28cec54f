from __future__ import annotations

import itertools

import pytest

from kintune.errors import OrderError
from kintune.service.job_status import ENDS, State, Wish, after, may_wish


def test_a_job_goes_its_way() -> None:
    way = [State.QUEUED, State.CHECKING, State.TUNING, State.PACKAGING, State.DONE]
    for before, now in itertools.pairwise(way):
        assert after(before, now) is now
    assert after(State.CHECKING, State.DONE) is State.DONE


@pytest.mark.parametrize("end", sorted(ENDS))
@pytest.mark.parametrize("state", list(State))
def test_what_is_over_stays_over(end: State, state: State) -> None:
    if state is end:
        assert after(end, state) is end
    else:
        with pytest.raises(OrderError, match=f"a job that is {end.value} cannot become {state.value}"):
            after(end, state)


@pytest.mark.parametrize("state", [State.QUEUED, State.CHECKING, State.TUNING, State.PACKAGING])
def test_whoever_is_under_way_can_fail_be_cancelled_or_begin_again(state: State) -> None:
    for now in (State.FAILED, State.CANCELLED, State.CHECKING):
        assert after(state, now) is now


@pytest.mark.parametrize(("before", "now"), [(State.QUEUED, State.TUNING), (State.PACKAGING, State.TUNING)])
def test_no_step_is_left_out_or_taken_back(before: State, now: State) -> None:
    with pytest.raises(OrderError):
        after(before, now)


def test_wishes_make_sense_while_they_can_be_granted() -> None:
    assert may_wish(State.QUEUED, Wish.CANCEL)
    assert may_wish(State.TUNING, Wish.FINISH)
    assert not may_wish(State.QUEUED, Wish.FINISH)
    assert not any(may_wish(end, wish) for end in ENDS for wish in Wish)
