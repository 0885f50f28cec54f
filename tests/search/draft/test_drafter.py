import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kintune.core.candidate import Candidate
from kintune.search.cost_model import Trees, relative_speeds
from kintune.search.draft import drafter
from kintune.search.draft.drafter import draft
from kintune.search.features.analytic import AnalyticFeatures
from kintune.search.propose import propose
from kintune.search.subgraph import SubgraphState
from kintune.search.training_rows import WIDTH
from kintune.testing.synthetic_space import Product, SyntheticSpace, tiny_product


class Estimate:
    """A cost model that returns the estimate."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        assert features.shape[1] == WIDTH
        return features[:, AnalyticFeatures.ESTIMATE]


@pytest.fixture
def space() -> SyntheticSpace:
    return SyntheticSpace([Product("p", 56, 128, 64), tiny_product("tiny")])


def _state(space: SyntheticSpace, workload: str, measured: int = 12) -> SubgraphState:
    state = SubgraphState(space.products[workload].subject, "op:dense")
    for verified in space.verify(space.rules(workload, measured)):
        assert verified is not None
        state.observe(verified.candidate, space.measure(verified.candidate), verified.features, counts=True)
    return state


@pytest.mark.parametrize("count", [1, 4, 16])
@pytest.mark.parametrize("model", [None, Estimate()])
def test_proposals_are_new_distinct_programs(space: SyntheticSpace, count: int, model: Estimate | None) -> None:
    state = _state(space, "p")
    proposals, invalid = draft(state, space, model, count, np.random.default_rng(0))
    found = [proposal.draft.candidate for proposal in proposals]
    assert len(found) == len(set(found)) == count
    assert not set(found) & set(state.times_us)
    assert [verified and verified.candidate for verified in space.verify(found)] == found
    assert invalid >= 0
    assert {proposal.predicted is None for proposal in proposals} == {model is None}


def test_without_exploration_the_model_chooses_all(space: SyntheticSpace) -> None:
    proposals, _ = draft(_state(space, "p"), space, Estimate(), 20, np.random.default_rng(0), explore=False)
    scores = [proposal.predicted or 0.0 for proposal in proposals]
    assert scores == sorted(scores, reverse=True)


def test_many_ranked_and_few_made_are_better_than_few_ranked(space: SyntheticSpace) -> None:
    """What a model of the same samples expects of its choice: more when it could choose among thousands."""
    state = _state(space, "p", 48)
    times = np.array(list(state.times_us.values()))
    labels = relative_speeds(np.zeros(len(times), np.int64), times, np.array([state.best_us]))
    model = Trees.train(np.stack(list(state.features.values())), labels, seed=0, threads=1)

    def expected(proposer: object) -> float:
        proposals, _ = proposer(state, space, model, 16, np.random.default_rng(0), explore=False, experience=1000)  # type: ignore[operator]
        return float(np.mean([proposal.predicted for proposal in proposals]))

    assert expected(draft) > expected(propose)


def test_what_is_carried_over_is_among_them(space: SyntheticSpace) -> None:
    state = _state(space, "p", 4)
    carried = [c for c in space.rules("p", 8) if c not in state.times_us][:2]
    proposals, _ = draft(state, space, Estimate(), 16, np.random.default_rng(0), carried=carried)
    assert {p.draft.candidate for p in proposals if p.origin == "carried"} == set(carried)


def test_sketches_without_traits_have_their_share(space: SyntheticSpace) -> None:
    plain = space.sketches("p")[2].digest
    state = _state(space, "p", 4)
    few, _ = draft(state, space, None, 32, np.random.default_rng(0))
    state.best = Candidate("p", plain, ())
    many, _ = draft(state, space, None, 32, np.random.default_rng(0))
    shares = [sum(p.draft.candidate.sketch == plain for p in found) for found in (few, many)]
    assert 0 < shares[0] < shares[1]


def test_a_workload_without_traits_is_searched_all_the_same(space: SyntheticSpace) -> None:
    class Bare(SyntheticSpace):
        def fields(self, workload: str) -> tuple[()]:
            return ()

    bare = Bare(space.products.values())
    state = _state(space, "p")
    found, _ = draft(state, bare, None, 8, np.random.default_rng(0))
    assert [p.draft.candidate for p in found] == [
        p.draft.candidate for p in propose(state, bare, None, 8, np.random.default_rng(0))[0]
    ]


def test_an_exhausted_space_has_nothing_more_to_offer(space: SyntheticSpace) -> None:
    state = _state(space, "tiny", 1)
    rng = np.random.default_rng(0)
    for _ in range(200):
        proposals, _ = draft(state, space, None, 16, rng)
        if not proposals:
            break
        for proposal in proposals:
            candidate = proposal.draft.candidate
            assert candidate not in state.times_us
            state.observe(candidate, space.measure(candidate), proposal.draft.features, counts=True)
    assert not proposals
    assert math.isfinite(state.best_us)


def test_equal_generators_draft_equally(space: SyntheticSpace) -> None:
    state = _state(space, "p")
    one, two = (draft(state, space, Estimate(), 16, np.random.default_rng(4))[0] for _ in range(2))
    assert [p.draft.candidate for p in one] == [p.draft.candidate for p in two]


@given(count=st.integers(1, 64), samples=st.lists(st.integers(0, 2000), min_size=2, max_size=2))
def test_more_samples_let_the_drafter_rank_more_candidates(count: int, samples: list[int]) -> None:
    """From three for each that is wanted, in one generation, to 64 in five, but never more than 4,096."""
    space = SyntheticSpace([Product("p", 56, 128, 64)])
    state = _state(space, "p", 3)
    asked: list[tuple[int, int]] = []

    def evolve(*_: object, size: int, generations: int) -> Any:
        asked.append((size, generations))
        raise InterruptedError

    for experience in (0, *sorted(samples), 256):
        with pytest.MonkeyPatch.context() as patch, suppress(InterruptedError):
            patch.setattr(drafter, "evolve", evolve)
            draft(state, space, None, count, np.random.default_rng(0), rules=False, experience=experience)
    few, fewer, more, many = asked
    fields = len(space.fields("p"))
    seeds = sum(candidate in space.fields("p")[0].encoding for candidate in state.times_us)
    assert few == (seeds + math.ceil(3 * count / fields), 1)
    assert many == (min(4096, seeds + math.ceil(64 * count / fields)), 5)
    assert few <= fewer <= more <= many
    assert few[1] <= fewer[1] <= more[1] <= many[1]
