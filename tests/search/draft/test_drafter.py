import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Choice, Sketch, Tile
from kintune.search.cost_model import Trees, relative_speeds
from kintune.search.draft import drafter
from kintune.search.draft.drafter import draft
from kintune.search.draft.evolution import Ranked
from kintune.search.features.analytic import AnalyticFeatures
from kintune.search.features.encoding import Encoding
from kintune.search.features.field import Field
from kintune.search.propose import propose
from kintune.search.space import Draft
from kintune.search.subgraph import SubgraphState
from kintune.search.training_rows import WIDTH
from kintune.testing.synthetic_space import MatMul, SyntheticSpace, tiny_product


class Estimate:
    """A cost model that returns the estimate."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        assert features.shape[1] == WIDTH
        return features[:, AnalyticFeatures.ESTIMATE]


@pytest.fixture
def space() -> SyntheticSpace:
    return SyntheticSpace([MatMul("p", 56, 128, 64), tiny_product("tiny")])


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
    asked: list[dict[str, Any]] = []

    def noted(*_: object, **said: Any) -> tuple[list[object], int]:
        asked.append(said)
        return [], 0

    said: dict[str, Any] = {"explore": False, "rules": False, "carried": [space.rules("p", 1)[0]], "price": math.exp}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafter, "propose", noted)
        draft(state, bare, None, 8, np.random.default_rng(0), **said)
    assert asked == [said]


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


@given(
    first=st.sets(st.integers(0, 9), max_size=4),
    best=st.lists(st.integers(0, 40), unique=True, max_size=30),
    wanted=st.integers(1, 8),
    wrong=st.sets(st.integers(0, 40), max_size=25),
    others=st.dictionaries(st.integers(0, 40), st.integers(0, 60), max_size=8),
    measured=st.sets(st.integers(0, 60), max_size=8),
)
def test_the_best_are_verified_until_as_many_are_new_programs_as_are_wanted(
    first: set[int], best: list[int], wanted: int, wrong: set[int], others: dict[int, int], measured: set[int]
) -> None:
    """In four batches at most; a candidate may be invalid, or turn out to be another program."""
    batches: list[list[Candidate]] = []

    def of(number: int) -> Candidate:
        return Candidate("p", "s", ((number,),))

    class Fake:
        def verify(self, candidates: list[Candidate]) -> list[Draft | None]:
            batches.append(candidates)
            numbers = [c.decisions[0][0] for c in candidates]
            return [None if n in wrong else Draft(of(others.get(n, n)), np.zeros(0, np.float32)) for n in numbers]

    state = SubgraphState(MatMul("p", 1, 1, 1).subject, "op:dense")
    state.times_us = {of(number): 1.0 for number in measured}
    found, invalid = drafter._verified(
        {of(number): "first" for number in first},
        {of(number): "best" for number in best},
        wanted,
        state,
        Fake(),  # type: ignore[arg-type]
    )
    asked = [c for batch in batches for c in batch]
    left = [of(number) for number in best if number not in first]
    assert asked == [*map(of, first), *left][: len(asked)]
    assert len(batches) <= 4
    assert invalid == sum(c.decisions[0][0] in wrong for c in asked)
    programs: dict[Candidate, Candidate] = {}
    missing = wanted
    for number, batch in enumerate(batches):
        assert len(batch) == min(missing, len(left)) + (len(first) if number == 0 else 0)
        for candidate in batch:
            at = candidate.decisions[0][0]
            program = of(others.get(at, at))
            if at not in wrong and program not in state.times_us and program not in programs:
                programs[program] = candidate
                missing -= at not in first
        left = left[len(batch) - (len(first) if number == 0 else 0) :]
    assert missing <= 0 or not left or len(batches) == 4
    assert [(c, origin) for c, (_, origin) in found.items()] == [
        (program, "first" if asked_for.decisions[0][0] in first else "best") for program, asked_for in programs.items()
    ]


def test_equal_generators_draft_equally(space: SyntheticSpace) -> None:
    state = _state(space, "p")
    one, two = (draft(state, space, Estimate(), 16, np.random.default_rng(4))[0] for _ in range(2))
    assert [p.draft.candidate for p in one] == [p.draft.candidate for p in two]


@given(count=st.integers(1, 64), samples=st.lists(st.integers(0, 2000), min_size=2, max_size=2))
def test_more_samples_let_the_drafter_rank_more_candidates(count: int, samples: list[int]) -> None:
    """From three for each that is wanted, in one generation, to 64 in five, but never more than 4,096."""

    class Twice(SyntheticSpace):
        def fields(self, workload: str) -> Sequence[Field]:
            return [*super().fields(workload)] * 2

    space = Twice([MatMul("p", 56, 128, 64)])
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
    for experience, (size, generations) in zip(sorted(samples), (fewer, more), strict=True):
        maturity = min(1.0, experience / 256)
        assert size == min(4096, seeds + math.ceil((3 + maturity * 61) * (count / fields)))
        assert generations == 1 + int(4 * maturity)
    assert few[1] <= fewer[1] <= more[1] <= many[1]


@given(
    tiles=st.lists(st.sampled_from([1, 1, 2, 4, 8]), min_size=30, max_size=60),
    measured=st.sets(st.integers(0, 59), max_size=20),
    most=st.integers(0, 70),
)
def test_register_tiles_take_turns_of_eight_and_a_turn_lowers_the_score_by_one(
    tiles: list[int], measured: set[int], most: int
) -> None:
    """Of as many ranked candidates as are wanted, and as many more as were tried."""
    axes = (Tile(8, 4, 64, "s0:i"), Tile(1024, 2, 64, "r1:k"), Choice(tuple(range(60)), (1.0,) * 60))
    encoding = Encoding([Sketch("p", "s", b"", axes)])
    ranked = [Candidate("p", "s", ((8 // tile, 1, 1, tile), (1, 1024), (n,))) for n, tile in enumerate(tiles)]
    scores = -np.arange(len(ranked), dtype=np.float32)
    state = SubgraphState(MatMul("p", 1, 1, 1).subject, "op:dense")
    state.times_us = {candidate: 1.0 for n, candidate in enumerate(ranked) if n in measured}
    found = drafter._diversified(encoding, Ranked(encoding.encode(ranked), scores), most, state)
    looked_at = [n for n in range(min(len(ranked), most + state.tried)) if n not in measured]
    turns = {n: sum(tiles[other] == tiles[n] for other in looked_at if other < n) // 8 for n in looked_at}
    order = sorted(looked_at, key=lambda n: (turns[n], n))[:most]
    assert found == [(float(-n - turns[n]), ranked[n]) for n in order]


def test_the_best_of_all_fields_are_verified(space: SyntheticSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    class Two(SyntheticSpace):
        def fields(self, workload: str) -> tuple[Field, ...]:
            return (*super().fields(workload),) * 2

    known = space.rules("p", 3)
    of_each = iter([[(1.0, known[0]), (3.0, known[1])], [(2.0, known[2])]])
    verified: list[list[Candidate]] = []
    monkeypatch.setattr(drafter, "_diversified", lambda *_: next(of_each))
    monkeypatch.setattr(drafter, "_verified", lambda first, best, *_: verified.append(list(best)) or ({}, 0))
    draft(_state(space, "p"), Two(space.products.values()), None, 4, np.random.default_rng(0))
    assert verified == [[known[1], known[2], known[0]]]
