"""Splits a pool, trains the models of one grouping on one part, and measures how well they rank the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from kintune.search.cost_model import Trees
from kintune.search.ranking import best_of, pair_accuracy, recall
from kintune_lab.families.samples import SubgraphSamples
from kintune_lab.pools.pool import Pool

__all__ = ["Capacity", "ModelFit", "Split", "split_pool", "train_models", "try_models"]

TEST_SHARE = 0.25


class Capacity(msgspec.Struct, frozen=True):
    """How much a model can hold: `rounds` trees of at most `depth` levels.

    `rooted` models grow from a common one of as many trees, which has learnt from all subgraphs.
    """

    rounds: int
    depth: int
    rooted: bool = False


class Split(msgspec.Struct, frozen=True):
    """A part of the pool to learn from and one to be tried on, by workload."""

    train: dict[str, SubgraphSamples]
    test: dict[str, SubgraphSamples]

    def first(self, samples: int) -> Split:
        """Return this split with at most `samples` of each subgraph to learn from."""
        return Split({w: m.take(np.arange(min(samples, len(m)))) for w, m in self.train.items()}, self.test)


class ModelFit(msgspec.Struct, frozen=True):
    """How a grouping's models ranked one subgraph's part to be tried on."""

    workload: str
    family: str
    pair_accuracy: float
    pairs: int
    recall_1: float
    recall_8: float
    best_of_8: float


def split_pool(pool: Pool, samples: int, *, seed: int, later: bool) -> Split:
    """At most `samples` of each subgraph, the first measured, of which a quarter is to be tried on.

    With `later` it is the last quarter measured, as in a search, whose models rank what comes after what they have
    seen; otherwise a random one.  What is left to learn from is in the order of measuring, or shuffled.
    """
    train: dict[str, SubgraphSamples] = {}
    test: dict[str, SubgraphSamples] = {}
    rng = np.random.default_rng(seed)
    for workload, measured in pool.subgraphs.items():
        n = min(samples, len(measured))
        rows = np.arange(n) if later else rng.permutation(n)
        kept = n - max(1, int(n * TEST_SHARE))
        train[workload], test[workload] = measured.take(rows[:kept]), measured.take(rows[kept:])
    return Split(train, test)


def train_models(
    train: Mapping[str, SubgraphSamples], families: Mapping[str, str], capacity: Capacity, *, seed: int
) -> dict[str, Trees]:
    """One model for each family, on the samples of its members; labels are relative to the best that it learns from.

    Each is trained by one thread, since for so few samples more threads are slower.
    """

    def trained(members: Iterable[SubgraphSamples], prior: Trees | None) -> Trees:
        evidence = [measured.evidence for measured in members]
        features = np.concatenate([samples.features for samples in evidence])
        labels = np.concatenate([samples.labels for samples in evidence])
        return Trees.train(
            features, labels, seed=seed, threads=1, rounds=capacity.rounds, depth=capacity.depth, prior=prior
        )

    root = trained(train.values(), None) if capacity.rooted else None
    return {
        family: trained((measured for workload, measured in train.items() if families[workload] == family), root)
        for family in dict.fromkeys(families[workload] for workload in train)
    }


def try_models(
    test: Mapping[str, SubgraphSamples], families: Mapping[str, str], models: Mapping[str, Trees]
) -> Iterator[ModelFit]:
    """Yields how well the model of each subgraph's family ranks its samples."""
    for workload, measured in test.items():
        scores = models[families[workload]].predict(measured.features)
        accuracy, pairs = pair_accuracy(scores, measured.times_us)
        yield ModelFit(
            workload=workload,
            family=families[workload],
            pair_accuracy=accuracy,
            pairs=pairs,
            recall_1=recall(scores, measured.times_us, 1),
            recall_8=recall(scores, measured.times_us, 8),
            best_of_8=best_of(scores, measured.times_us, 8),
        )
