"""The relationship map: how well one subgraph's samples rank another's.

FamilySeer (arXiv 2201.00194) leaves open how families could be found from measurements; this is the measure for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.search.cost_model import Trees
from kintune.search.family.samples import Samples
from kintune.search.ranking import pair_accuracy

__all__ = ["LEAST_SAMPLES", "Relation", "Relations"]

LEAST_SAMPLES = 24
"""Samples below which a subgraph has no place on the map."""

_MOST_SAMPLES = 192  # of a subgraph that a comparison looks at
_ROUNDS = 40  # small models are enough to see kinship
_DEPTH = 4
_CHANCE = 0.5
_LEAST_SKILL = 0.1  # above chance; what a subgraph that hardly ranks its own samples counts as reaching


class Relation(NamedTuple):
    """`matrix[i, j]`: the share of pairs of samples of `workloads[j]` that a model of `workloads[i]` puts in order.

    Shape (n, n); 0.5 is chance, and NaN stands where too little was measured.  The diagonal is of a model that has
    seen one half of the samples, on the other half.
    """

    workloads: tuple[str, ...]
    matrix: NDArray[np.float64]

    def kinship(self) -> NDArray[np.float64]:
        """How nearly as well each pair ranks each other as itself: shape (n, n), symmetric, 0.0 (chance) to 1.0."""
        own = np.maximum(np.diagonal(self.matrix) - _CHANCE, _LEAST_SKILL)
        skill = np.clip((self.matrix - _CHANCE) / own[np.newaxis, :], 0.0, 1.0)
        kinship: NDArray[np.float64] = (skill + skill.T) / 2
        np.fill_diagonal(kinship, 1.0)
        return kinship


class _Fitted(NamedTuple):
    """Small models of one subgraph: of all its samples, and how well one half of them ranks the other."""

    key: bytes
    model: Trees
    own: float


class Relations:
    """Draws the map; keeps the models of subgraphs of which nothing new was measured, which changes no answer."""

    def __init__(self, *, seed: int = 0, threads: int = 1) -> None:
        self._seed = seed
        self._threads = threads
        self._fitted: dict[str, _Fitted] = {}
        self._ranked: dict[tuple[bytes, bytes], float] = {}

    def relate(self, evidence: Sequence[Samples]) -> Relation:
        """The map of those subgraphs that have samples enough, by workload."""
        known = sorted((s for s in evidence if len(s.labels) >= LEAST_SAMPLES), key=lambda s: s.subject.workload)
        thinned = [_thinned(samples) for samples in known]
        fitted = [self._fit(samples) for samples in thinned]
        matrix = np.full((len(known), len(known)), np.nan)
        ranked: dict[tuple[bytes, bytes], float] = {}
        for i, teacher in enumerate(fitted):
            for j, pupil in enumerate(fitted):
                key = teacher.key, pupil.key
                if i == j:
                    matrix[i, j] = teacher.own
                    continue
                accuracy = self._ranked.get(key)
                ranked[key] = _accuracy(teacher.model, thinned[j]) if accuracy is None else accuracy
                matrix[i, j] = ranked[key]
        self._ranked = ranked
        return Relation(tuple(s.subject.workload for s in known), matrix)

    def _fit(self, samples: Samples) -> _Fitted:
        key = hashlib.sha256(samples.subject.workload.encode() + samples.labels.tobytes()).digest()
        before = self._fitted.get(samples.subject.workload)
        if before is not None and before.key == key:
            return before
        half = Samples(samples.subject, samples.features[::2], samples.labels[::2])
        other = Samples(samples.subject, samples.features[1::2], samples.labels[1::2])
        fitted = _Fitted(key, self._train(samples), _accuracy(self._train(half), other))
        self._fitted[samples.subject.workload] = fitted
        return fitted

    def _train(self, samples: Samples) -> Trees:
        return Trees.train(
            samples.features, samples.labels, seed=self._seed, threads=self._threads, rounds=_ROUNDS, depth=_DEPTH
        )


def _thinned(samples: Samples) -> Samples:
    """Evenly spaced ones of many samples: early ones are spread wide, late ones lie close to the best."""
    step = -(-len(samples.labels) // _MOST_SAMPLES)
    return Samples(samples.subject, samples.features[::step], samples.labels[::step])


def _accuracy(model: Trees, samples: Samples) -> float:
    """The share of pairs that the model orders; chance where there are none to order."""
    with np.errstate(divide="ignore"):
        times = np.where(samples.labels > 0, 1 / samples.labels.astype(np.float64), np.inf)
    accuracy, pairs = pair_accuracy(model.predict(samples.features), times)
    return accuracy if pairs else _CHANCE
