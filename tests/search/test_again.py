import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.measure.outcome import Outcome, Status
from kintune.search.again import tempo
from kintune.search.family import Subject
from kintune.search.strategy import Strategy
from kintune.search.subgraph import SubgraphState
from kintune.space.candidate import Candidate
from kintune.testing.search_run import Observed, SearchRun, new_session
from kintune.testing.synthetic_space import SyntheticSpace

WORKLOAD = "w" * 32


def candidate(number: int) -> Candidate:
    return Candidate(WORKLOAD, "s" * 32, ((number,),))


def measured(*times_us: float) -> SubgraphState:
    """A subgraph whose candidates 0, 1, ... were measured in its first round."""
    state = SubgraphState(Subject(WORKLOAD, 1, 1e6, "dense", "dense"), "family")
    observe(state, dict(enumerate(times_us)))
    state.close_round(1.0)
    return state


def observe(state: SubgraphState, times_us: dict[int, float]) -> list[Candidate]:
    for number, time_us in times_us.items():
        outcome = Outcome(Status.OK, (time_us,)) if math.isfinite(time_us) else Outcome(Status.RUN_FAILED, cause="x")
        state.observe(candidate(number), outcome, None, counts=True)
    return [candidate(number) for number in times_us]


def test_the_pace_is_that_of_most_and_1_where_nobody_tells() -> None:
    known = {candidate(0): 10.0, candidate(1): 20.0, candidate(2): 40.0}
    assert tempo(known, {}) == 1.0
    assert tempo(known, {candidate(0): 15.0, candidate(1): 30.0, candidate(2): 40.0}) == 1.5
    assert tempo(known, {candidate(0): 5.0, candidate(1): 10.0, candidate(2): 40.0}) == 0.5


def test_what_may_be_luck_is_no_pace() -> None:
    known = {candidate(0): 10.0, candidate(1): 20.0, candidate(2): 40.0}
    assert tempo(known, {c: 1.08 * time for c, time in known.items()}) == 1.0
    assert tempo(known, {c: 0.95 * time for c, time in known.items()}) == 1.0


def test_who_was_lucky_is_the_best_no_longer() -> None:
    state = measured(80.0, 100.0, 101.0)
    state.correct({candidate(0): 104.0, candidate(1): 100.0, candidate(2): 101.0}, ())
    assert (state.best, state.best_us) == (candidate(0), pytest.approx(92.0))
    state.correct({candidate(0): 104.0, candidate(1): 100.0, candidate(2): 101.0}, ())
    assert (state.best, state.best_us) == (candidate(1), pytest.approx(100.0))
    assert state.history == [pytest.approx(100.0)]


def test_a_slow_minute_costs_nobody_the_lead_and_hides_nobody() -> None:
    state = measured(100.0, 101.0, 102.0)
    fresh = observe(state, {3: 148.5, 4: 160.0, 5: math.inf})
    known_us = state.correct({candidate(0): 150.0, candidate(1): 151.5, candidate(2): 153.0}, fresh)
    assert (state.best, state.best_us) == (candidate(3), pytest.approx(99.0))
    assert known_us == pytest.approx(100.0)
    assert state.times_us[candidate(4)] == pytest.approx(160 / 1.5)
    assert math.isinf(state.times_us[candidate(5)])


def test_what_a_fast_minute_promised_counts_as_no_progress() -> None:
    state = measured(100.0, 101.0, 102.0)
    fresh = observe(state, {3: 80.5})
    state.correct({candidate(0): 80.0, candidate(1): 80.8, candidate(2): 81.6}, fresh)
    assert state.best == candidate(0)
    state.close_round(1.0)
    assert state.stale == 1.0


@given(
    known=st.lists(st.floats(10, 1000), min_size=3, max_size=6),
    fresh=st.lists(st.floats(10, 1000), max_size=6),
    pace=st.floats(0.25, 0.8) | st.floats(1.25, 4),
)
def test_whatever_the_pace_of_a_round_its_times_say_the_same(
    known: list[float], fresh: list[float], pace: float
) -> None:
    def after(pace: float) -> dict[Candidate, float]:
        state = measured(*known)
        leaders = state.fastest(3)
        new = observe(state, {len(known) + i: time * pace for i, time in enumerate(fresh)})
        state.correct({c: state.times_us[c] * pace for c in leaders}, new)
        assert state.best_us == min(state.times_us.values())
        return state.times_us

    assert after(pace) == pytest.approx(after(1.0))


@given(st.integers(0, 1000))
def test_however_many_rounds_there_are_estimates_stay_near_the_truth(seed: int) -> None:
    """Though each round brings the luckiest of 32 programs, all of which take 100 us."""
    random = np.random.default_rng(seed)
    state = measured(*random.lognormal(math.log(100), 0.02, 32))
    for number in range(1, 40):
        again = {c: float(random.lognormal(math.log(100), 0.02)) for c in state.fastest(3)}
        times = random.lognormal(math.log(100), 0.02, 32)
        state.correct(again, observe(state, {32 * number + i: float(time) for i, time in enumerate(times)}))
        state.close_round(1.0)
    assert state.best_us > 88.0


def test_a_failure_of_what_ran_before_changes_nothing(space: SyntheticSpace) -> None:
    run = SearchRun(space, new_session(space, strategy=Strategy(round_size=32, survey=()))).play(100)
    session = run.session
    plan = session.plan(100)
    assert plan is not None
    proposals, _ = session.select(plan)
    session.begin(plan, {p.draft.candidate: p.draft.features for p in proposals})
    again = [p.draft.candidate for p in proposals if p.origin == "again"]
    assert again == [c for c in session.pending if session.knows(c)]
    assert session.trials_under_way == len(proposals) - len(again)
    before = {c: session.states[c.workload].times_us[c] for c in again}
    for c in session.pending:
        session.observe(c, Outcome(Status.RUN_FAILED, cause="killed"))
    assert before
    assert before == {c: session.states[c.workload].times_us[c] for c in again}


def test_without_it_nothing_is_measured_again(space: SyntheticSpace) -> None:
    run = SearchRun(space, new_session(space, strategy=Strategy(round_size=32, survey=(), again=0))).play(100)
    seen = [event.candidate for event in run.events if isinstance(event, Observed)]
    assert len(set(seen)) == len(seen)
