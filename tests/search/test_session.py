import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Strategy
from kintune.core.knowledge import Knowledge, KnownModel, ModelVersion
from kintune.core.outcome import Outcome, Status
from kintune.core.plan import Round, RoundEntry
from kintune.search.build_costs import BuildCosts
from kintune.search.cost_model import Trees
from kintune.search.drafts import Proposal
from kintune.search.evolve import draw
from kintune.search.family import Samples
from kintune.search.foresee import sibling
from kintune.search.session import SearchSession
from kintune.search.space import Draft
from kintune.search.subgraph import SubgraphState
from kintune.testing.synthetic_space import MatMul, SyntheticSpace, tiny_product
from tests.support.search_run import Began, Event, Observed, SearchRun, fold, new_session


def _decisions(session: SearchSession) -> tuple[Round | None, object]:
    """What the session would do now."""
    plan = session.plan()
    chosen = session.select(plan) if plan is not None and not session.pending else ([], 0)
    picks = [(p.draft.candidate, p.draft.features.tobytes(), p.predicted, p.origin) for p in chosen[0]]
    return plan, (session.pending, picks, chosen[1])


@settings(max_examples=25)
@given(data=st.data())
def test_equal_events_lead_to_equal_decisions(data: st.DataObject, space: SyntheticSpace, long_run: SearchRun) -> None:
    """Also when the one session planned after each event, and the other only heard of them."""
    length = data.draw(st.integers(0, len(long_run.events)))
    prefix = long_run.events[:length]
    asked = new_session(space, seed=5)
    for event in prefix:
        fold(asked, [event])
        asked.plan()
        asked.plan(1)
    told = fold(new_session(space, seed=5), prefix)
    assert _decisions(told) == _decisions(asked)


def test_a_run_folded_again_decides_as_it_did(space: SyntheticSpace, long_run: SearchRun) -> None:
    events: list[Event] = []
    for event in long_run.events:
        if isinstance(event, Began):
            session = fold(new_session(space, seed=5), events)
            spent = len({e.candidate for e in events if isinstance(e, Observed) and e.candidate.sketch != UNTUNED})
            assert session.plan(300 - spent) == event.plan
        events.append(event)


def test_a_survey_that_skipped_what_is_known_goes_on_alike_when_folded(space: SyntheticSpace) -> None:
    """Though it found fewer programs than it wanted, and so still misses some of that level."""
    allowed = set(space.rules("deep", 3))

    class Picky(SyntheticSpace):
        def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
            drafts = super().verify(candidates)
            return [draft if c in allowed else None for c, draft in zip(candidates, drafts, strict=True)]

    picky = Picky([space.products["deep"]])

    def knowing() -> SearchSession:
        session = new_session(picky)
        session.know(space.rules("deep", 1)[0], Outcome(Status.OK, (5000.0,)), None)
        return session

    run = SearchRun(picky, knowing())
    assert [entry.size for entry in next(run.rounds(100)).entries] == [3]
    assert run.trials == 2
    assert fold(knowing(), run.events).plan() == run.session.plan()


def test_equal_seeds_propose_equally_and_others_differ(space: SyntheticSpace) -> None:
    def measured(seed: int) -> list[Candidate]:
        run = SearchRun(space, new_session(space, seed=seed)).play(80)
        return [event.candidate for event in run.events if isinstance(event, Observed)]

    assert measured(1) == measured(1)
    assert measured(1) != measured(2)


def test_the_first_round_gives_every_subgraph_a_rule_candidate(space: SyntheticSpace) -> None:
    run = SearchRun(space, new_session(space))
    plan = next(run.rounds(1000))
    assert {(entry.workload, entry.size, entry.how) for entry in plan.entries} == {
        (workload, 1, "rule") for workload in space.products
    }
    assert all(state.trials == 1 and math.isfinite(state.best_us) for state in run.session.states.values())
    work = [space.products[entry.workload].flops * space.products[entry.workload].weight for entry in plan.entries]
    assert work == sorted(work, reverse=True)


def test_untuned_programs_are_timed_once_and_cost_no_trial(long_run: SearchRun) -> None:
    untuned = [
        e.candidate.workload for e in long_run.events if isinstance(e, Observed) and e.candidate.sketch == UNTUNED
    ]
    assert sorted(untuned) == sorted(long_run.session.states)
    assert sum(state.trials for state in long_run.session.states.values()) == long_run.trials
    assert long_run.session.untuned_us() > long_run.session.latency_us()


def test_nothing_but_the_fastest_is_measured_twice(space: SyntheticSpace, long_run: SearchRun) -> None:
    session = new_session(space)
    twice = 0
    for event in long_run.events:
        if isinstance(event, Began):
            known = [candidate for candidate in event.picks if session.knows(candidate)]
            for workload in {candidate.workload for candidate in known}:
                again = [candidate for candidate in known if candidate.workload == workload]
                picked = [candidate for candidate in event.picks if candidate.workload == workload]
                fastest = [c for c in session.states[workload].fastest(3) if c.sketch != UNTUNED]
                assert again == picked[: len(again)] == fastest[: len(again)]
                assert 8 * len(again) <= len(picked)
            twice += len(known)
        fold(session, [event])
    assert twice
    assert twice + len(set(observed(long_run))) == len(observed(long_run))


def observed(run: SearchRun) -> list[Candidate]:
    return [event.candidate for event in run.events if isinstance(event, Observed)]


def test_what_is_known_is_not_measured_again(space: SyntheticSpace) -> None:
    session = new_session(space, strategy=Strategy(round_size=16, foresee_size=4, again=0))
    known = [candidate for workload in space.products for candidate in space.rules(workload, 8)]
    for draft in space.verify(known):
        assert draft is not None
        session.know(draft.candidate, space.measure(draft.candidate), draft.features)
    run = SearchRun(space, session).play(60)
    assert not {e.candidate for e in run.events if isinstance(e, Observed)} & set(known)
    assert "rule" not in {entry.how for plan in run.plans for entry in plan.entries}


@pytest.mark.parametrize("left", [0, 1, 3, 16, 1000])
def test_a_plan_never_exceeds_the_trials_left(space: SyntheticSpace, long_run: SearchRun, left: int) -> None:
    for length in range(0, len(long_run.events), 10):
        plan = fold(new_session(space, seed=5), long_run.events[:length]).plan(left)
        assert sum(entry.size for entry in plan.entries) <= left if plan else True
        assert plan is None or all(entry.size > 0 for entry in plan.entries)
    assert left > 0 or plan is None


def test_a_run_spends_its_trials_and_no_more(space: SyntheticSpace) -> None:
    assert SearchRun(space, new_session(space)).play(37).trials == 37


def test_after_a_full_round_the_steepest_of_its_kin_follows(space: SyntheticSpace) -> None:
    strategy = Strategy(round_size=16, foresee_size=4, foresee="published")
    run = SearchRun(space, new_session(space, seed=5, strategy=strategy))
    followed = 0
    previous: str | None = None
    expected: str | None = None
    for plan in run.rounds(300):
        (entry, *others) = plan.entries
        if previous is not None:
            assert (entry.how == "foresee") == (expected is not None)
        if entry.how == "foresee":
            followed += 1
            assert not others
            assert entry.workload == expected != previous
            assert entry.size == 4 or run.trials == 300
        previous = expected = None
        if entry.how == "search":
            tuned = run.session.states[entry.workload]
            kin = sibling(tuned, run.session.states.values())
            previous, expected = entry.workload, kin.subject.workload if kin else None
    assert followed > 2


def test_without_foresee_rounds_there_are_none(space: SyntheticSpace) -> None:
    run = SearchRun(space, new_session(space, strategy=Strategy(round_size=16, foresee="none"))).play(150)
    assert {entry.how for plan in run.plans for entry in plan.entries} == {"rule", "search"}


def test_a_family_that_lost_a_member_has_no_model_of_it(space: SyntheticSpace) -> None:
    """Wherever a history was cut, a family's model is that of its members."""
    session = SearchSession(space.subjects(), space, Strategy(), seed=0, threads=1)
    workload, state = next(iter(session.states.items()))
    left = state.family
    model = Trees.train(np.eye(16, dtype=np.float32), np.arange(16, dtype=np.float32), seed=0, threads=1)
    session.adopt({left: model})
    session.adopt({"measured:new": model}, {workload: "measured:new"})
    assert state.family == "measured:new"
    assert session.models == {"measured:new": model}


def test_an_exhausted_space_ends_the_search() -> None:
    space = SyntheticSpace([tiny_product("one"), tiny_product("two")])
    run = SearchRun(space, new_session(space)).play(100_000)
    assert run.session.plan() is None
    assert 0 < run.trials < 1000


def test_a_foresee_round_that_finds_nothing_does_not_end_a_subgraph(space: SyntheticSpace) -> None:
    """It draws but a few; a full round may find more."""

    class Barren(SyntheticSpace):
        barren = False

        def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
            return [None] * len(candidates) if self.barren else super().verify(candidates)

    barren = Barren(space.products.values())
    session = new_session(barren, strategy=Strategy(round_size=16, foresee_size=4, foresee="published"))
    run = SearchRun(barren, session)
    for _ in run.rounds(1000):
        plan = session.plan()
        if plan is not None and plan.entries[0].how == "foresee":
            break
    assert plan is not None
    barren.barren = True
    assert session.select(plan)[0] == []
    session.begin(plan, {})
    assert not session.states[plan.entries[0].workload].exhausted
    assert session.states[plan.entries[0].workload].stale > 0


def test_a_search_without_subgraphs_has_nothing_to_plan() -> None:
    assert new_session(SyntheticSpace([])).plan(100) is None


def test_failures_are_labelled_zero_and_never_best(space: SyntheticSpace, long_run: SearchRun) -> None:
    failed = 0
    for family in {state.family for state in long_run.session.states.values()}:
        features, labels = long_run.session.samples(family)
        members = [s for s in long_run.session.states.values() if s.family == family]
        times = [state.times_us[candidate] for state in members for candidate in state.features]
        assert len(features) == len(labels) == len(times)
        assert [label == 0.0 for label in labels] == [math.isinf(time) for time in times]
        assert labels.max() == 1.0
        failed += sum(math.isinf(time) for time in times)
    assert failed
    for state in long_run.session.states.values():
        assert state.best is not None
        assert space.measure(state.best).ok
        assert state.best_us == min(state.times_us.values())


def test_a_subgraph_whose_every_candidate_fails_is_given_up(space: SyntheticSpace) -> None:
    class Broken(SyntheticSpace):
        def measure(self, candidate: Candidate) -> Outcome:
            if candidate.workload == "deep":
                return Outcome(Status.RUN_FAILED, cause="SIGSEGV: in the kernel")
            return super().measure(candidate)

    broken = Broken(space.products.values())
    run = SearchRun(broken, new_session(broken)).play(400)
    state = run.session.states["deep"]
    assert state.best is None
    assert state.failures == {"run_failed": state.trials}
    assert state.trials < 100
    assert {entry.workload for entry in run.plans[-1].entries} != {"deep"}


@pytest.mark.parametrize("product", [MatMul("p", 720, 960, 512), MatMul("p", 1440, 1680, 64)])
def test_the_search_beats_random_draws(product: MatMul) -> None:
    """With the same number of programs: never worse, and a fifth faster on the average of the seeds."""
    space = SyntheticSpace([product])
    sketches = space.sketches("p")
    ratios = []
    for seed in range(5):
        found = SearchRun(space, new_session(space, seed=seed)).play(96).session.states["p"]
        rng = np.random.default_rng(seed)
        drawn = space.verify([draw(sketches[int(rng.integers(len(sketches)))], rng) for _ in range(found.trials)])
        ratios.append(found.best_us / min(space.measure(d.candidate).median_us for d in drawn if d is not None))
    assert max(ratios) < 1.0
    assert float(np.exp(np.mean(np.log(ratios)))) < 0.85


def _tell_rules(session: SearchSession, space: SyntheticSpace, count: int) -> None:
    """Make the first programs of the rule known."""
    for workload in space.products:
        for verified in space.verify(space.rules(workload, count)):
            assert verified is not None
            session.know(verified.candidate, space.measure(verified.candidate), verified.features)


@pytest.mark.parametrize(("rows", "enough"), [(11, False), (12, True)])
def test_a_model_takes_twelve_samples(space: SyntheticSpace, rows: int, enough: bool) -> None:
    session = new_session(space)
    drafts = [draft for draft in space.verify(space.rules("deep", rows)) if draft is not None]
    assert len(drafts) == rows
    for draft in drafts:
        session.know(draft.candidate, space.measure(draft.candidate), draft.features)
    family = session.states["deep"].family
    assert set(session.train([family])) == ({family} if enough else set())
    assert session._is_modelled(family) is enough


def test_a_round_counts_the_invalid_drafts_of_all_its_subgraphs(space: SyntheticSpace) -> None:
    calls: list[str] = []
    asked: list[dict[str, object]] = []

    def proposer(state: SubgraphState, *_: object, **said: object) -> tuple[list[Proposal], int]:
        calls.append(state.subject.workload)
        asked.append(said)
        return [], 2 + len(calls)

    session = SearchSession(space.subjects(), space, Strategy(), seed=0, threads=1, proposer=proposer)  # type: ignore[arg-type]
    _tell_rules(session, space, 8)
    hows: tuple[Literal["search", "foresee"], ...] = ("search", "search", "search", "foresee")
    plan = Round(0, tuple(RoundEntry(name, 4, how) for name, how in zip(space.products, hows, strict=True)))
    assert session.select(plan) == ([], 3 + 4 + 5 + 6)
    assert calls == list(space.products)
    states = list(session.states.values())
    for state, how, said in zip(states, hows, asked, strict=True):
        assert said["explore"] is (how == "search")
        assert said["rules"] is True
        assert said["carried"] == session._transferred.carried(state, states)
        assert (said["carried"] != []) == (state.subject.operator == "dense")
        assert said["experience"] == sum(len(s.features) for s in states if s.family == state.family) > 0
        assert said["price"] is None
    plainly = Strategy(carry=False, rules=False)
    session = SearchSession(space.subjects(), space, plainly, seed=0, threads=1, proposer=proposer)  # type: ignore[arg-type]
    session.select(plan)
    assert [(said["carried"], said["rules"]) for said in asked[4:]] == [((), False)] * 4


def test_what_is_awaited_is_what_was_picked_and_has_no_outcome(space: SyntheticSpace) -> None:
    session = new_session(space)
    plan = session.plan()
    assert plan is not None
    picks = {p.draft.candidate: p.draft.features for p in session.select(plan)[0]}
    assert not any(map(session.awaits, picks))
    session.begin(plan, picks)
    other = Candidate("deep", "another", ())
    for candidate in picks:
        assert session.awaits(candidate)
        assert not session.awaits(other)
        session.observe(candidate, space.measure(candidate))
        assert not session.awaits(candidate)


def test_an_outcome_of_no_open_round_is_known_all_the_same(space: SyntheticSpace) -> None:
    session = new_session(space)
    candidate = space.rules("deep", 1)[0]
    session.observe(candidate, space.measure(candidate))
    assert session.knows(candidate)
    assert session.states["deep"].trials == 1
    assert not session.states["deep"].features


def test_a_family_uses_its_own_model_and_else_the_pretrained_one(space: SyntheticSpace) -> None:
    session = new_session(space)
    family = session.states["deep"].family
    assert session._model(family) is None
    own, prior = (
        Trees.train(np.eye(16, dtype=np.float32), np.arange(16, dtype=np.float32), seed=seed, threads=1)
        for seed in range(2)
    )
    session.teach(
        Knowledge((), (KnownModel(ModelVersion("blob", family, "device", "features", 16), prior.to_bytes()),))
    )
    found = session._model(family)
    assert isinstance(found, Trees)
    assert found.to_bytes() == prior.to_bytes()
    session.adopt({family: own})
    assert session._model(family) is own


def test_a_suggestion_is_taken_once_and_of_known_workloads_only(space: SyntheticSpace) -> None:
    session = new_session(space)
    candidate = space.rules("deep", 1)[0]
    for _ in range(2):
        session.suggest(candidate)
        session.suggest(Candidate("unknown", "s", ()))
    assert session.states["deep"].suggestions == [candidate]
    assert not any(state.suggestions for name, state in session.states.items() if name != "deep")


def test_a_family_is_judged_by_the_scores_of_its_own_subgraph(
    space: SyntheticSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: dict[str, tuple[list[float], list[float], bool, bool]] = {}
    session = new_session(space)

    def judge(family: str, predicted: list[float], times_us: list[float], *, foreseen: bool, improved: bool) -> None:
        judged[family] = predicted, times_us, foreseen, improved

    monkeypatch.setattr(session._trust, "judge", judge)
    picks = {
        draft.candidate: draft.features
        for name in ("deep", "other")
        for draft in space.verify(space.rules(name, 3))
        if draft is not None
    }
    plan = Round(0, (RoundEntry("deep", 3, "search"), RoundEntry("other", 3, "foresee")))
    session.begin(plan, picks, {candidate: float(n) for n, candidate in enumerate(picks)})
    for candidate in picks:
        session.observe(candidate, space.measure(candidate))
    times = {name: [space.measure(c).median_us for c in picks if c.workload == name] for name in ("deep", "other")}
    assert judged == {
        session.states["deep"].family: ([0.0, 1.0, 2.0], times["deep"], False, True),
        session.states["other"].family: ([3.0, 4.0, 5.0], times["other"], True, True),
    }


def test_what_a_foresee_round_chose_says_so_unless_it_was_carried(space: SyntheticSpace) -> None:
    origins = ("carried", "evolved", "rule", "drafted")
    found = [
        Proposal(draft, None, origin)
        for draft, origin in zip(space.verify(space.rules("deep", 4)), origins, strict=True)
        if draft
    ]
    strategy = Strategy(again=0)
    session = SearchSession(
        space.subjects(), space, strategy, seed=0, threads=1, proposer=lambda *_, **__: (list(found), 0)
    )
    for how, expected in (("search", origins), ("foresee", ("carried", *["foresee"] * 3))):
        proposals, _ = session.select(Round(0, (RoundEntry("deep", 4, how),)))  # type: ignore[arg-type]
        assert tuple(p.origin for p in proposals) == expected


class _Moving:
    """Families that depend on measurements: each subgraph is one of its own until `moved` says otherwise."""

    dynamic = True

    def __init__(self) -> None:
        self.moved: dict[str, str] = {}

    def group(self, evidence: Sequence[Samples], previous: object) -> dict[str, str]:
        workloads = [each.subject.workload for each in evidence]
        return {workload: self.moved.get(workload, workload) for workload in workloads}


def test_an_update_names_what_moved_and_trains_what_was_measured_left_or_joined(
    space: SyntheticSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = _Moving()
    monkeypatch.setattr("kintune.search.session.families", lambda *_, **__: moving)
    session = new_session(space)
    _tell_rules(session, space, 16)
    assert session.learn() == ({}, {}, ())
    moving.moved = {"wide": "deep"}
    learnt = session.learn()
    assert learnt.families == {"wide": "deep"}
    assert set(learnt.models) == {"deep"}  # nothing is left of the family `wide`
    moving.moved = {"wide": "new", "prime": "other"}
    session.adopt({}, {"wide": "new", "prime": "new"})
    learnt = session.learn()
    assert learnt.families == {"prime": "other"}
    assert set(learnt.models) == {"new", "other"}


def test_the_builds_that_take_longest_begin_first_and_untuned_programs_last(space: SyntheticSpace) -> None:
    session = new_session(space, strategy=Strategy(round_size=96, again=0, width=1))
    _tell_rules(session, space, 8)
    plan = session.plan()
    assert plan is not None
    picks = {p.draft.candidate: p.draft.features for p in session.select(plan)[0]}
    session.begin(plan, picks)
    costs = BuildCosts(seed=0, threads=1)
    candidates = list(picks)
    assert session.dearest_first(candidates) == candidates  # too few were built
    for number, (candidate, row) in enumerate(picks.items()):
        session.built(candidate, 0.1 + number % 7)
        costs.note(row, 0.1 + number % 7)
    assert len(picks) >= 64
    ordered = costs.dearest_first(candidates, picks)
    assert ordered != candidates
    untuned = Candidate.untuned("wide")
    assert session.dearest_first([untuned, *candidates]) == [*ordered, untuned]
