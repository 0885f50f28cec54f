import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Choice, Sketch
from kintune.search.cost_model import CostModel
from kintune.search.draft.drafter import draft
from kintune.search.drafts import Drafts
from kintune.search.features.field import Field
from kintune.search.propose import Proposer, breed, choose, propose
from kintune.search.space import Draft
from kintune.search.subgraph import SubgraphState
from kintune.testing.synthetic_space import MatMul, SyntheticSpace, tiny_product


class Columns:
    """A cost model that likes wide vectors."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return features[:, 0]


@pytest.fixture
def space() -> SyntheticSpace:
    return SyntheticSpace([MatMul("p", 56, 128, 64), tiny_product("tiny")])


def _state(space: SyntheticSpace, workload: str, measured: int = 12) -> SubgraphState:
    state = SubgraphState(space.products[workload].subject, "op:dense")
    for verified in space.verify(space.rules(workload, measured)):
        assert verified is not None
        state.observe(verified.candidate, space.measure(verified.candidate), verified.features, counts=True)
    return state


@pytest.mark.parametrize("proposer", [draft, propose])
def test_what_is_not_said_is_to_explore_and_to_use_the_rule(space: SyntheticSpace, proposer: Proposer) -> None:
    state = _state(space, "p", 3)

    def found(model: CostModel | None = None, **said: Any) -> list[tuple[Candidate, str]]:
        proposals, _ = proposer(state, space, model, 20, np.random.default_rng(0), **said)
        return [(p.draft.candidate, p.origin) for p in proposals]

    assert found(Columns()) == found(Columns(), explore=True) != found(Columns(), explore=False)
    assert found() == found(rules=True, carried=(), experience=0, price=None) != found(rules=False)
    assert "rule" not in {origin for _, origin in found(rules=False)}


@pytest.mark.parametrize("count", [1, 4, 16])
def test_proposals_are_new_distinct_programs(space: SyntheticSpace, count: int) -> None:
    state = _state(space, "p")
    proposals, invalid = propose(state, space, None, count, np.random.default_rng(0))
    found = [proposal.draft.candidate for proposal in proposals]
    assert len(found) == len(set(found)) == count
    assert not set(found) & set(state.times_us)
    assert [draft and draft.candidate for draft in space.verify(found)] == found
    assert invalid >= 0
    assert {proposal.predicted for proposal in proposals} == {None}


def test_the_model_chooses_all_but_a_tenth(space: SyntheticSpace) -> None:
    proposals, _ = propose(_state(space, "p"), space, Columns(), 20, np.random.default_rng(0))
    chosen = [proposal.predicted for proposal in proposals]
    assert chosen[:18] == sorted(chosen[:18], key=lambda score: -(score or 0.0))
    assert [proposal.draft.features[0] for proposal in proposals] == chosen


def test_without_exploration_the_model_chooses_all(space: SyntheticSpace) -> None:
    proposals, _ = propose(_state(space, "p"), space, Columns(), 20, np.random.default_rng(0), explore=False)
    scores = [proposal.predicted or 0.0 for proposal in proposals]
    assert scores == sorted(scores, reverse=True)


def _sum(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Something in which drafts differ."""
    return features.sum(axis=-1)


class Modest:
    """A cost model that hardly prefers small sums, and a price by which the smaller half is dear."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return 1000.0 - 0.001 * _sum(features)

    def price(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        self.limits.append(float(np.median(_sum(features))))
        return np.where(_sum(features) > self.limits[-1], 1.0, 0.01)


def _pool(space: SyntheticSpace) -> dict[Candidate, tuple[Draft, str]]:
    drafts = [draft for draft in space.verify(space.rules("p", 40)) if draft is not None]
    return {draft.candidate: (draft, "rule") for draft in drafts}


def test_what_is_dear_to_build_must_promise_more(space: SyntheticSpace) -> None:
    pool, model = _pool(space), Modest()
    scores = {candidate: float(model.predict(draft.features)) for candidate, (draft, _) in pool.items()}
    few = len(pool) // 4
    free = choose(pool, scores, few, np.random.default_rng(0), explore=False)
    cheap = choose(pool, scores, few, np.random.default_rng(0), explore=False, price=model.price)
    (limit,) = model.limits
    assert all(_sum(proposal.draft.features) <= limit for proposal in free)
    assert all(_sum(proposal.draft.features) > limit for proposal in cheap)
    assert all(p.predicted == scores[p.draft.candidate] for p in cheap)  # scores stay what they are


def test_a_draft_without_features_has_its_full_score(space: SyntheticSpace) -> None:
    described = next(iter(_pool(space).values()))[0]
    bare = Candidate("p", "s", ((0,),))
    pool = {bare: (Draft(bare, np.zeros(0, np.float32)), "rule"), described.candidate: (described, "rule")}
    for score, first in [(0.4, described.candidate), (0.6, bare)]:
        scores = {bare: score, described.candidate: 1.0}
        found = choose(pool, scores, 1, np.random.default_rng(0), explore=False, price=lambda rows: np.full(1, 0.5))
        assert [p.draft.candidate for p in found] == [first]


def test_without_a_model_what_is_dear_comes_last(space: SyntheticSpace) -> None:
    pool, model = _pool(space), Modest()
    proposals = choose(pool, {}, len(pool), np.random.default_rng(0), explore=True, price=model.price)
    cheap = [_sum(proposal.draft.features) > model.limits[0] for proposal in proposals]
    assert cheap == sorted(cheap, reverse=True)
    assert 0 < sum(cheap) < len(cheap)


def test_only_what_is_chosen_is_made(space: SyntheticSpace) -> None:
    """Where arithmetic can describe a candidate, ranking it takes no program."""

    class Counting(SyntheticSpace):
        made = 0

        def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
            self.made += sum(any(c in field.encoding for field in self.fields(c.workload)) for c in candidates)
            return super().verify(candidates)

    counting = Counting(space.products.values())
    proposals, invalid = propose(_state(space, "p"), counting, Columns(), 20, np.random.default_rng(0))
    assert len(proposals) == 20
    assert counting.made <= 20 + 2 * (invalid + 8)
    assert [proposal.predicted for proposal in proposals] == [proposal.draft.features[0] for proposal in proposals]


def test_what_became_another_program_has_the_score_of_that_one(space: SyntheticSpace) -> None:
    class Everything:
        def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
            return _sum(features)

    proposals, _ = propose(_state(space, "p"), space, Everything(), 40, np.random.default_rng(0))
    assert [p.predicted for p in proposals] == [float(_sum(p.draft.features)) for p in proposals]


@pytest.mark.parametrize("model", [None, Columns()])
def test_where_all_drafts_are_made_there_are_few(space: SyntheticSpace, model: Columns | None) -> None:
    class Bare(SyntheticSpace):
        made = 0

        def fields(self, workload: str) -> Sequence[Field]:
            return ()

        def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
            self.made += len(candidates)
            return super().verify(candidates)

    bare = Bare(space.products.values())
    proposals, _ = propose(_state(space, "p"), bare, model, 40, np.random.default_rng(0))
    assert len(proposals) == 40
    assert bare.made <= 60


def test_drafts_that_are_no_programs_are_counted(space: SyntheticSpace) -> None:
    class Nothing(SyntheticSpace):
        def verify(self, candidates: object) -> list[None]:
            return [None for _ in candidates]  # type: ignore[attr-defined]

    state = _state(space, "p", measured=1)
    found, invalid = propose(state, Nothing(space.products.values()), None, 8, np.random.default_rng(0))
    assert found == []
    assert invalid >= 8


def test_a_small_space_offers_what_is_left_and_then_nothing(space: SyntheticSpace) -> None:
    state = _state(space, "tiny", measured=1)
    rng = np.random.default_rng(0)
    offered: set[Candidate] = set()
    while proposals := propose(state, space, None, 16, rng)[0]:
        assert not offered & {proposal.draft.candidate for proposal in proposals}
        for proposal in proposals:
            offered.add(proposal.draft.candidate)
            state.observe(proposal.draft.candidate, space.measure(proposal.draft.candidate), None, counts=True)
    assert len(offered) > 16


def test_what_was_measured_of_other_sketches_has_no_children(space: SyntheticSpace) -> None:
    """Records may know programs of sketches that this compiler does not make."""
    state = _state(space, "p", measured=1)
    (known,) = state.times_us
    state.observe(Candidate("p", "of another compiler", ((1,),)), space.measure(known), None, counts=False)
    proposals, _ = propose(state, space, None, 16, np.random.default_rng(0))
    assert len(proposals) == 16


def test_a_workload_without_sketches_has_no_proposals(space: SyntheticSpace) -> None:
    class Bare(SyntheticSpace):
        def sketches(self, workload: str) -> list[object]:  # type: ignore[override]
            return []

    bare = Bare(space.products.values())
    assert propose(_state(space, "p"), bare, None, 16, np.random.default_rng(0)) == ([], 0)


def test_transferred_drafts_that_were_put_aside_come_after_those_with_scores(space: SyntheticSpace) -> None:
    """They are fetched when all others turned out to be no new programs, and nothing has scored them."""
    first, second, *_ = [draft for draft in space.verify(space.rules("p", 8)) if draft is not None]
    pool = {second.candidate: (second, "carried"), first.candidate: (first, "carried")}
    found = choose(pool, {first.candidate: 0.5}, 2, np.random.default_rng(0), explore=False)
    assert [(proposal.draft, proposal.predicted) for proposal in found] == [(first, 0.5), (second, None)]


@given(
    origins=st.lists(st.sampled_from(["carried", "evolved", "random"]), min_size=1, max_size=40),
    count=st.integers(1, 30),
    explore=st.booleans(),
    carried=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_choice_is_an_eighth_carried_and_then_the_best_but_for_a_tenth(
    origins: list[str], count: int, explore: bool, carried: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pool = {
        Candidate("p", "s", ((number,),)): (Draft(Candidate("p", "s", ((number,),)), np.zeros(0, np.float32)), origin)
        for number, origin in enumerate(origins)
    }
    scores = {candidate: float(score) for candidate, score in zip(pool, rng.permutation(len(pool)), strict=True)}
    found = [p.draft.candidate for p in choose(pool, scores, count, rng, explore=explore, carried=carried)]
    best = sorted(pool, key=lambda candidate: -scores[candidate])
    first = [c for c in best if pool[c][1] == "carried"][: math.ceil(count / 8) if carried else 0]
    others = [c for c in best if c not in first]
    left = count - len(first)
    by_model = left - left // 10 if explore else left
    assert found[: len(first) + by_model] == [*first, *others[:by_model]]
    assert len(found) == len(set(found)) == min(count, len(pool))


def test_good_parents_have_more_children_and_some_children_have_none(space: SyntheticSpace) -> None:
    sketch = Sketch("p", "s", b"", tuple(Choice(tuple(range(1000)), (1.0,) * 1000) for _ in range(4)))
    parents = [Candidate("p", "s", ((number,),) * 4) for number in range(20)]
    found = breed([sketch], parents, 2000, set(), np.random.default_rng(0), fresh=0.1)
    assert len(found) == len(dict(found)) == 2000
    assert 0.07 < np.mean([origin == "random" for _, origin in found]) < 0.13
    evolved = [candidate for candidate, origin in found if origin == "evolved"]
    of = [[decision[0] for decision in candidate.decisions if decision[0] < 20] for candidate in evolved]
    mixed = np.mean([len(set(each)) > 1 for each in of if each])
    assert 0.1 < mixed < 0.2  # of a fifth with two parents, those that got something of both
    whole = [each[0] for each in of if each and len(set(each)) == 1]
    assert 0.64 < np.mean([number < 10 for number in whole]) < 0.78  # the better half: the root of one half
    assert 0.16 < np.mean([number < 1 for number in whole]) < 0.29


def test_what_was_seen_is_not_bred_and_a_small_space_ends(space: SyntheticSpace) -> None:
    sketch = Sketch("p", "s", b"", (Choice((0, 1, 2), (1.0,) * 3),))
    seen = {Candidate("p", "s", ((0,),))}
    found = breed([sketch], list(seen), 10, seen, np.random.default_rng(0), fresh=0.5)
    assert {candidate.decisions[0][0] for candidate, _ in found} == {1, 2}


def test_a_share_of_the_first_drafts_is_of_the_rule(space: SyntheticSpace) -> None:
    """At most four tenths, and none where rules are off."""

    class Asked(SyntheticSpace):
        def __init__(self, products: Iterable[MatMul]) -> None:
            super().__init__(products)
            self.replayed: list[Candidate] = []

        def fields(self, workload: str) -> Sequence[Field]:
            return ()

        def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
            self.replayed += candidates
            return super().verify(candidates)

    asked = Asked(space.products.values())
    state = _state(space, "p", 4)
    found, invalid = propose(state, asked, None, 40, np.random.default_rng(0))
    assert len(asked.replayed) == 40 >= len(found) + invalid
    assert 12 < sum(proposal.origin == "rule" for proposal in found) <= 16
    asked.replayed.clear()
    propose(state, asked, Columns(), 40, np.random.default_rng(0))
    assert 56 <= len(asked.replayed) <= 60  # three quarters of what is wanted in each of two generations
    found, _ = propose(state, asked, None, 40, np.random.default_rng(0), rules=False)
    assert {proposal.origin for proposal in found} == {"evolved", "random"}


def test_half_of_the_second_parents_are_the_best_drafts_and_the_others_the_fastest_programs(
    space: SyntheticSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a generation, a share is drawn at random, which halves."""
    state = _state(space, "p", 30)
    asked: list[tuple[list[Candidate], int, float]] = []
    drafts: list[Candidate] = []

    def noted(
        sketches: Sequence[Sketch],
        parents: Sequence[Candidate],
        wanted: int,
        seen: set[Candidate],
        rng: np.random.Generator,
        *,
        fresh: float,
    ) -> list[tuple[Candidate, str]]:
        asked.append((list(parents), wanted, fresh))
        drafts.extend(seen - state.times_us.keys())
        return breed(sketches, parents, wanted, seen, rng, fresh=fresh)

    monkeypatch.setattr("kintune.search.propose.breed", noted)
    propose(state, space, Columns(), 20, np.random.default_rng(0))
    first, second = asked
    assert first == (state.fastest(24), 30, 0.1)
    assert second[1:] == (30, 0.05)
    features = {draft.candidate: draft.features for draft in space.verify(drafts) if draft is not None}
    (field, *_) = space.fields("p")
    described = [c for c in drafts if c in field.encoding]
    rows = field.features(field.encoding.encode(described))
    scores = {c: -float(row[0]) for c, row in zip(described, rows, strict=True)}
    scores |= {c: -float(features[c][0]) for c in drafts if c not in scores and c in features}
    best = sorted(scores, key=lambda c: (scores[c], c))[:12]
    assert second[0] == list(dict.fromkeys([*best, *state.fastest(24)]))[:24]


@pytest.mark.parametrize(("factor", "last"), [(0.89, True), (0.9, False), (1.0, False)])
def test_what_is_drawn_has_dear_drafts_last_from_a_discount_of_a_tenth_on(factor: float, last: bool) -> None:
    pool = {
        Candidate("p", "s", ((n,),)): (Draft(Candidate("p", "s", ((n,),)), np.full(1, n, np.float32)), "random")
        for n in range(20)
    }

    def price(features: NDArray[np.float32]) -> NDArray[np.float64]:
        return np.where(features[:, 0] < 10, factor, 1.0)

    found = choose(pool, {}, 20, np.random.default_rng(0), explore=True, price=price)
    dear = [p.draft.features[0] < 10 for p in found]
    assert (dear == sorted(dear)) is last
    assert sum(dear) == 10


def test_what_was_put_aside_is_taken_only_when_nothing_else_is_left(
    space: SyntheticSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    plain = Drafts.fetch_aside

    def noted(drafts: Drafts) -> None:
        fetched.append(len(drafts.drafts))
        plain(drafts)

    monkeypatch.setattr(Drafts, "fetch_aside", noted)
    propose(_state(space, "p"), space, None, 4, np.random.default_rng(0))
    assert fetched == []
    propose(_state(space, "tiny", 1), space, None, 400, np.random.default_rng(0))
    assert fetched == [0]
