"""Several rounds open at once, of different subgraphs."""

from __future__ import annotations

import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Strategy
from kintune.search.session import SearchSession
from kintune.testing.synthetic_space import SyntheticSpace
from tests.support.search_run import Adopted, Began, Event, Observed, SearchRun, fold, new_session

STRATEGY = Strategy(round_size=16, foresee_size=4, again=0)


class Overlapping:
    """Begins rounds while `depth` allows, then measures the oldest one, then learns."""

    def __init__(self, space: SyntheticSpace, depth: int) -> None:
        self.space = space
        self.depth = depth
        self.session = new_session(space, strategy=STRATEGY)
        self.events: list[Event] = []
        self.most_open = 0

    def play(self, trials: int) -> Overlapping:
        while True:
            while len(self.session.open_rounds) < self.depth and self.begin(trials):
                self.most_open = max(self.most_open, len(self.session.open_rounds))
            if not self.session.open_rounds:
                return self
            for candidate in next(iter(self.session.open_rounds.values())):
                self.commit(Observed(candidate, self.space.measure(candidate)))
            self.commit(Adopted(*self.session.learn()))

    def begin(self, trials: int) -> bool:
        spent = self.session.trials_under_way + len(self.measured())
        plan = self.session.plan(trials - spent)
        if plan is None:
            return False
        proposals, _ = self.session.select(plan)
        picks = {p.draft.candidate: p.draft.features for p in proposals}
        self.commit(Began(plan, picks, {p.draft.candidate: p.predicted for p in proposals}))
        return True

    def measured(self) -> list[Candidate]:
        return [e.candidate for e in self.events if isinstance(e, Observed) and e.candidate.sketch != UNTUNED]

    def commit(self, event: Event) -> None:
        self.events.append(event)
        fold(self.session, [event])


def test_rounds_that_overlap_are_of_different_subgraphs(space: SyntheticSpace) -> None:
    run = Overlapping(space, 2).play(200)
    assert run.most_open == 2
    open_now: dict[int, set[str]] = {}
    left: dict[int, set[Candidate]] = {}
    for event in run.events:
        if isinstance(event, Began):
            workloads = {entry.workload for entry in event.plan.entries}
            assert all(workloads.isdisjoint(other) for other in open_now.values())
            open_now[event.plan.number], left[event.plan.number] = workloads, set(event.picks)
        elif isinstance(event, Observed):
            for number, candidates in left.items():
                candidates.discard(event.candidate)
                if not candidates:
                    open_now.pop(number, None)


def test_nothing_is_measured_twice_and_no_trial_is_lost(space: SyntheticSpace) -> None:
    run = Overlapping(space, 3).play(200)
    measured = run.measured()
    assert len(set(measured)) == len(measured)
    assert len(measured) <= 200


def test_one_at_a_time_is_as_it_was(space: SyntheticSpace) -> None:
    alone = SearchRun(space, new_session(space, strategy=STRATEGY)).play(150)
    other = Overlapping(space, 1).play(150)
    assert [event.plan for event in other.events if isinstance(event, Began)] == alone.plans


def test_it_gets_about_as_far_as_one_at_a_time(space: SyntheticSpace) -> None:
    alone = SearchRun(space, new_session(space, strategy=STRATEGY)).play(300)
    assert Overlapping(space, 2).play(300).session.latency_us() < 1.1 * alone.session.latency_us()


@pytest.mark.parametrize("length", [5, 23, 60, 120, 181])
def test_events_folded_again_decide_alike(space: SyntheticSpace, length: int) -> None:
    run = Overlapping(space, 2).play(200)

    def state(session: SearchSession) -> object:
        return session.plan(50), session.open_rounds, session.unlearnt, session.latency_us()

    one = fold(new_session(space, strategy=STRATEGY), run.events[:length])
    two = fold(new_session(space, strategy=STRATEGY), run.events[:length])
    assert state(one) == state(two)


def test_an_update_learns_from_the_rounds_it_names(space: SyntheticSpace) -> None:
    run = Overlapping(space, 1)
    run.begin(100)
    for candidate in list(run.session.pending):
        run.commit(Observed(candidate, space.measure(candidate)))
    assert run.session.unlearnt
    learnt = run.session.learn()
    assert learnt.rounds == (0,)
    run.session.adopt(learnt.models, learnt.families, ())
    assert run.session.unlearnt
    run.session.adopt(learnt.models, learnt.families, learnt.rounds)
    assert not run.session.unlearnt


def test_what_is_worth_a_round_is_a_share_of_the_whole_network(space: SyntheticSpace) -> None:
    """Also while the subgraph that takes most of it is under way."""
    session = new_session(space, strategy=STRATEGY)
    SearchRun(space, session).play(8 * len(space.subjects()))
    plan = session.plan()
    assert plan is not None
    (entry,) = plan.entries
    heavy = session.states[entry.workload]
    heavy.best_us *= 1e4  # all others are but a trifle now
    assert session.plan() is not None
    proposals, _ = session.select(plan)
    session.begin(plan, {p.draft.candidate: p.draft.features for p in proposals})
    assert session.plan() is None
