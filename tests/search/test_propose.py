from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from kintune.core.candidate import Candidate
from kintune.search.features.field import Field
from kintune.search.propose import choose, propose
from kintune.search.space import Draft
from kintune.search.subgraph import SubgraphState
from kintune.testing.synthetic_space import Product, SyntheticSpace, tiny_product


class Columns:
    """A cost model that likes wide vectors."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return features[:, 0]


@pytest.fixture
def space() -> SyntheticSpace:
    return SyntheticSpace([Product("p", 56, 128, 64), tiny_product("tiny")])


def _state(space: SyntheticSpace, workload: str, measured: int = 12) -> SubgraphState:
    state = SubgraphState(space.products[workload].subject, "op:dense")
    for draft in space.verify(space.rules(workload, measured)):
        assert draft is not None
        state.observe(draft.candidate, space.measure(draft.candidate), draft.features, counts=True)
    return state


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
