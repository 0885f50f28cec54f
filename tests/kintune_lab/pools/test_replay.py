from __future__ import annotations

import math

import pytest

from kintune.core.config import Strategy
from kintune_lab.pools.pool import Pool
from kintune_lab.pools.replay import Point, replay, trials_to_reach

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
