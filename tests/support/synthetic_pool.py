"""Pools of the synthetic machine, for tests."""

from __future__ import annotations

import numpy as np

from kintune.core.outcome import Outcome
from kintune.search.evolve import draw
from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from kintune_lab.families.samples import SubgraphSamples
from kintune_lab.pools.pool import Origin, Pool

__all__ = ["synthetic_pool"]

_PRODUCTS = (
    MatMul("large", 256, 512, 128, weight=3),
    MatMul("square", 128, 128, 128),
    MatMul("deep", 64, 64, 1024, weight=2, operator="batch_matmul"),
)


def synthetic_pool(samples: int = 48, seed: int = 0) -> Pool:
    """At most `samples` random candidates of each of three workloads."""
    space = SyntheticSpace(_PRODUCTS)
    rng = np.random.default_rng(seed)
    subgraphs: dict[str, SubgraphSamples] = {}
    for subject in space.subjects():
        sketches = space.sketches(subject.workload)
        drawn = [draw(sketches[int(rng.integers(len(sketches)))], rng) for _ in range(8 * samples)]
        drafts = {d.candidate: d for d in space.verify(drawn) if d is not None}
        kept = list(drafts.values())[:samples]
        outcomes: list[Outcome] = [space.measure(draft.candidate) for draft in kept]
        subgraphs[subject.workload] = SubgraphSamples(
            subject,
            tuple(draft.candidate for draft in kept),
            np.stack([draft.features for draft in kept]),
            np.array([outcome.median_us for outcome in outcomes]),
        )
    return Pool(Origin("synthetic", seed, samples, "device", "A processor", "compiler-1"), subgraphs)
