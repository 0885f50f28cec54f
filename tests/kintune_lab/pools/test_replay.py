from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from kintune.core.candidate import Candidate
from kintune.core.config import Strategy
from kintune.search.subgraph import SubgraphState
from kintune_lab.pools.pool import Pool
from kintune_lab.pools.replay import Point, PoolSpace, replay, trials_to_reach

SMALL = Strategy(round_size=8, foresee_size=4, rules=False, carry=False, survey=())


@pytest.mark.parametrize("families", ["op", "ind", "none"])
@pytest.mark.parametrize("foresee", ["none", "published", "guarded"])
def test_a_replay_improves_within_its_budget(pool: Pool, families: str, foresee: str) -> None:
    strategy = Strategy(families, foresee, round_size=8, foresee_size=4, rules=False, carry=False, survey=())  # type: ignore[arg-type]
    points = list(replay(pool, strategy, seed=0, trials=70))
    times = [point.network_us for point in points]
    assert [point.trials for point in points] == sorted({point.trials for point in points})
    assert points[-1].trials <= 70
    assert times == sorted(times, reverse=True)
    assert pool.best_us() <= times[-1] < math.inf


def test_equal_seeds_play_alike_and_others_do_not(pool: Pool) -> None:
    first, same, other = (list(replay(pool, SMALL, seed=seed, trials=60)) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_a_search_that_may_try_everything_finds_the_best_of_what_it_tried(pool: Pool) -> None:
    strategy = Strategy("none", "none", round_size=8, rules=False, carry=False, survey=(), budget="balanced")
    points = list(replay(pool, strategy, seed=0, trials=10_000))
    assert points[-1].trials == 144
    assert points[-1].network_us == pytest.approx(pool.best_us())


def test_trials_to_reach_a_latency_are_those_of_the_first_point_there() -> None:
    points = [Point(8, math.inf, 1), Point(16, 50.0, 1), Point(24, 40.0, 1)]
    assert trials_to_reach(points, 50.0) == 16
    assert trials_to_reach(points, 45.0) == 24
    assert trials_to_reach(points, 10.0) is None


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
