from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate
from kintune.search.subgraph import SubgraphState
from kintune_lab.pools.pool import Pool
from kintune_lab.pools.space import PoolSpace


class Oracle:
    """Knows the features of the pool by heart."""

    def __init__(self, pool: Pool) -> None:
        self._speeds = {
            m.features[row].tobytes(): 1 / m.times_us[row] for m in pool.subgraphs.values() for row in range(len(m))
        }

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.array([self._speeds[row.tobytes()] for row in features], dtype=np.float32)


def begun(pool: Pool, workload: str = "large") -> SubgraphState:
    return SubgraphState(pool.subgraphs[workload].subject, "family")


def test_measuring_again_gives_what_was_measured(pool: Pool) -> None:
    space = PoolSpace(pool)
    for measured in pool.subgraphs.values():
        assert [space.measure(c).median_us for c in measured.candidates] == measured.times_us.tolist()


def test_only_members_are_programs(pool: Pool) -> None:
    space = PoolSpace(pool)
    member = pool.subgraphs["deep"].candidates[3]
    known, unknown = space.verify([member, Candidate("deep", "other", ())])
    assert unknown is None
    assert known is not None
    assert known.candidate == member
    assert np.array_equal(known.features, pool.subgraphs["deep"].features[3])
    assert space.sketches("deep") == space.rules("deep", 5) == ()


def test_without_a_model_members_are_drawn_at_random(pool: Pool) -> None:
    space, state = PoolSpace(pool), begun(pool)
    first, _ = space.propose(state, space, None, 10, np.random.default_rng(1))
    same, _ = space.propose(state, space, None, 10, np.random.default_rng(1))
    other, _ = space.propose(state, space, None, 10, np.random.default_rng(2))
    taken = [proposal.draft.candidate for proposal in first]
    assert len(set(taken)) == 10
    assert taken == [proposal.draft.candidate for proposal in same]
    assert taken != [proposal.draft.candidate for proposal in other]


def test_the_model_chooses_the_fastest_and_leaves_a_tenth_to_chance(pool: Pool) -> None:
    space, state = PoolSpace(pool), begun(pool)
    measured = pool.subgraphs["large"]
    fastest = [measured.candidates[int(row)] for row in np.argsort(measured.times_us, kind="stable")]
    model = Oracle(pool)
    greedy, _ = space.propose(state, space, model, 20, np.random.default_rng(0), explore=False)
    mixed, _ = space.propose(state, space, model, 20, np.random.default_rng(0))
    assert {p.draft.candidate for p in greedy} == set(fastest[:20])
    assert {p.draft.candidate for p in mixed[:18]} == set(fastest[:18])
    assert len({p.draft.candidate for p in mixed}) == 20


def test_what_was_taken_is_not_proposed_again_until_nothing_is_left(pool: Pool) -> None:
    space, state = PoolSpace(pool), begun(pool)
    taken: list[Candidate] = []
    while proposals := space.propose(state, space, Oracle(pool), 13, np.random.default_rng(0))[0]:
        for proposal in proposals:
            candidate = proposal.draft.candidate
            taken.append(candidate)
            state.observe(candidate, space.measure(candidate), proposal.draft.features, counts=True)
    assert len(taken) == len(set(taken)) == len(pool.subgraphs["large"])
