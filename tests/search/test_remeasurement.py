import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.candidate import Candidate
from kintune.core.config import Strategy
from kintune.core.outcome import Outcome, Status
from kintune.search.family import Subject
from kintune.search.subgraph import SubgraphState
from kintune.testing.synthetic_space import SyntheticSpace
from tests.support.search_run import Observed, SearchRun, new_session

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


def test_who_was_lucky_is_the_best_no_longer() -> None:
    state = measured(80.0, 100.0, 101.0)
    again = {candidate(0): 104.0, candidate(1): 100.0, candidate(2): 101.0}
    state.correct(again, ())
    assert (state.best, state.best_us) == (candidate(0), 80.0)  # once may be a slow minute
    state.correct(again, ())
    assert (state.best, state.best_us) == (candidate(1), 100.0)
    assert state.history == [100.0]


def test_a_slow_minute_costs_nobody_the_lead() -> None:
    state = measured(100.0, 101.0, 102.0)
    fresh = observe(state, {3: 148.5, 4: math.inf})
    assert state.correct({candidate(0): 150.0, candidate(1): 151.5}, fresh) == 100.0
    state.correct({candidate(0): 100.5}, ())
    assert (state.best, state.best_us) == (candidate(0), 100.5)


def test_what_a_fast_minute_promised_counts_as_no_progress() -> None:
    state = measured(90.0, 101.0)
    for _ in range(2):
        state.correct({candidate(0): 100.0}, ())
    fresh = observe(state, {2: 99.9})
    assert state.correct({candidate(1): 101.0}, fresh) == 100.0
    state.close_round(1.0)
    assert state.best == candidate(2)
    assert state.stale == 1.0


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
