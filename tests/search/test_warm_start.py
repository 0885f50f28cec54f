"""Measurements from the records before a search begins."""

from __future__ import annotations

import math

import pytest

from kintune.core.candidate import Candidate
from kintune.core.config import Budget, Strategy
from kintune.core.outcome import Outcome, Status
from kintune.search.session import SearchSession
from kintune.testing.synthetic_space import SyntheticSpace
from tests.support.search_run import SearchRun, new_session

_STRATEGY = Strategy(round_size=16, foresee_size=4, foresee="none")


def _tell(session: SearchSession, space: SyntheticSpace, workload: str, count: int) -> list[Candidate]:
    """Make the first programs of the rule facts, and say which they are."""
    drafts = [draft for draft in space.verify(space.rules(workload, count)) if draft is not None]
    for draft in drafts:
        session.know(draft.candidate, space.measure(draft.candidate), draft.features)
    return [draft.candidate for draft in drafts]


def test_a_first_round_that_brings_nothing_is_no_progress(space: SyntheticSpace) -> None:
    class Spoilt(SyntheticSpace):
        def measure(self, candidate: Candidate) -> Outcome:
            return super().measure(candidate) if candidate in known else Outcome(Status.OK, (1e9,))

    known: list[Candidate] = []
    spoilt = Spoilt([space.products["wide"]])
    session = new_session(spoilt, strategy=_STRATEGY)
    known += _tell(session, space, "wide", 8)
    before = session.states["wide"].best_us
    plan = next(SearchRun(spoilt, session).rounds(16))
    assert [entry.how for entry in plan.entries] == ["search"]
    state = session.states["wide"]
    assert (state.history, state.stale) == ([before, before], 1.0)


def test_a_first_round_that_gains_is_seen_as_one(space: SyntheticSpace) -> None:
    class Improving(SyntheticSpace):
        def measure(self, candidate: Candidate) -> Outcome:
            return super().measure(candidate) if candidate in known else Outcome(Status.OK, (0.5 * before,))

    known: list[Candidate] = []
    improving = Improving([space.products["wide"]])
    session = new_session(improving, strategy=_STRATEGY)
    known += _tell(session, space, "wide", 8)
    before = session.states["wide"].best_us
    next(SearchRun(improving, session).rounds(16))
    state = session.states["wide"]
    assert (state.history, state.stale) == ([before, 0.5 * before], 0.0)


def test_a_suggestion_is_measured_first_whatever_is_known(space: SyntheticSpace) -> None:
    session = new_session(space, strategy=_STRATEGY)
    for workload in space.products:
        _tell(session, space, workload, 8)
    suggested = space.rules("deep", 9)[8]
    session.suggest(suggested)
    plan = session.plan()
    assert plan is not None
    assert [(entry.workload, entry.how, entry.size) for entry in plan.entries] == [("deep", "rule", 1)]
    chosen, _ = session.select(plan)
    assert [p.draft.candidate for p in chosen if p.origin == "suggested"] == [suggested]
    run = SearchRun(space, session)
    next(run.rounds(100))
    assert suggested in session.states["deep"].times_us
    then = session.plan()
    assert then is not None
    assert {entry.how for entry in then.entries} == {"search"}


@pytest.mark.parametrize(("budget", "bound_us"), [("gradient", 0.0), ("prospect", 7.0)])
def test_only_a_budget_by_prospect_is_bound_by_what_a_device_can_do(
    space: SyntheticSpace, budget: Budget, bound_us: float
) -> None:
    session = new_session(space, strategy=Strategy(budget=budget))
    session.limit(dict.fromkeys([*space.products, "of another network"], 7.0))
    assert {state.bound_us for state in session.states.values()} == {bound_us}


def test_what_is_told_is_known_as_such(space: SyntheticSpace) -> None:
    session = new_session(space, strategy=_STRATEGY)
    known = _tell(session, space, "wide", 3)
    SearchRun(space, session).play(20)
    state = session.states["wide"]
    assert state.told == set(known)
    assert set(known) < set(state.features)
    assert math.isfinite(state.best_us)
