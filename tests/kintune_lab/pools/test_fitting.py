from __future__ import annotations

import numpy as np
import pytest

from kintune_lab.pools.fitting import Capacity, split_pool, train_models, try_models
from kintune_lab.pools.pool import Pool

CAPACITY = Capacity(rounds=30, depth=4)


@pytest.mark.parametrize("later", [False, True])
def test_no_sample_is_on_both_sides_of_a_split(pool: Pool, later: bool) -> None:
    split = split_pool(pool, 40, seed=1, later=later)
    for workload, measured in pool.subgraphs.items():
        train, test = set(split.train[workload].candidates), set(split.test[workload].candidates)
        assert (len(train), len(test)) == (30, 10)
        assert not train & test
        assert train | test == set(measured.candidates[:40])


def test_a_later_part_comes_after_what_is_learnt_from(pool: Pool) -> None:
    split = split_pool(pool, 40, seed=1, later=True).first(12)
    for workload, measured in pool.subgraphs.items():
        assert split.train[workload].candidates == measured.candidates[:12]
        assert split.test[workload].candidates == measured.candidates[30:40]


def test_fewer_samples_to_learn_from_are_the_first_of_more(pool: Pool) -> None:
    split = split_pool(pool, 40, seed=3, later=False)
    for workload, measured in split.first(7).train.items():
        assert measured.candidates == split.train[workload].candidates[:7]
    assert split.first(7).test == split.test


def test_seeds_split_otherwise_and_equal_seeds_alike(pool: Pool) -> None:
    first, same, other = (split_pool(pool, 40, seed=seed, later=False) for seed in (1, 1, 2))
    assert first.train["large"].candidates == same.train["large"].candidates
    assert first.train["large"].candidates != other.train["large"].candidates


def test_a_model_learns_from_the_samples_of_its_family_alone(pool: Pool) -> None:
    families = {"large": "a", "square": "a", "deep": "b"}
    split = split_pool(pool, 48, seed=0, later=False)
    both = train_models(split.train, families, CAPACITY, seed=0)
    alone = train_models({"deep": split.train["deep"]}, families, CAPACITY, seed=0)
    assert set(both) == {"a", "b"}
    features = split.test["deep"].features
    assert np.array_equal(both["b"].predict(features), alone["b"].predict(features))


def test_rooted_models_have_learnt_from_all_and_differ_by_family(pool: Pool) -> None:
    families = {"large": "a", "square": "a", "deep": "b"}
    split = split_pool(pool, 48, seed=0, later=False)
    rooted = train_models(split.train, families, Capacity(30, 4, rooted=True), seed=0)
    alone = train_models(split.train, families, CAPACITY, seed=0)
    features = split.test["deep"].features
    assert not np.array_equal(rooted["b"].predict(features), rooted["a"].predict(features))
    assert not np.array_equal(rooted["b"].predict(features), alone["b"].predict(features))


def test_models_rank_what_they_were_not_shown_better_than_chance(pool: Pool) -> None:
    families = dict.fromkeys(pool.subgraphs, "none")
    split = split_pool(pool, 48, seed=0, later=False)
    fits = list(try_models(split.test, families, train_models(split.train, families, CAPACITY, seed=0)))
    assert [fit.workload for fit in fits] == list(pool.subgraphs)
    assert np.mean([fit.pair_accuracy for fit in fits]) > 0.7
