"""Measures of similarity: how well a model of one subgraph ranks another's samples, and how well a shared model does.

FamilySeer (arXiv 2201.00194) leaves open how families can be found from measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kintune.search.family.excerpt import FOLDS, Excerpt, Small
from kintune.search.family.samples import Samples
from kintune.search.ranking import pair_accuracy

__all__ = ["LEAST_SAMPLES", "Relation", "Relations"]

LEAST_SAMPLES = 24
"""Samples from which on a subgraph is compared."""

_CHANCE = 0.5
_LEAST_SKILL = 0.1  # accuracy above chance that a subgraph's own model counts as reaching, at least


class Relation(NamedTuple):
    """`matrix[i, j]` is the share of pairs of samples of `workloads[j]` that a model of `workloads[i]` orders rightly.

    The shape is (n, n); 0.5 is chance.  The diagonal is measured by cross-validation.
    """

    workloads: tuple[str, ...]
    matrix: NDArray[np.float64]

    def kinship(self) -> NDArray[np.float64]:
        """Return the similarity of each pair: shape (n, n), symmetric, 0.0 (chance) to 1.0 (as good as own models)."""
        own = np.maximum(np.diagonal(self.matrix) - _CHANCE, _LEAST_SKILL)
        skill = np.clip((self.matrix - _CHANCE) / own[np.newaxis, :], 0.0, 1.0)
        kinship: NDArray[np.float64] = (skill + skill.T) / 2
        np.fill_diagonal(kinship, 1.0)
        return kinship


class Relations:
    """Computes the measures; results for unchanged samples are cached."""

    def __init__(self, *, seed: int, threads: int) -> None:
        self._seed = seed
        self._threads = threads
        self._excerpts: dict[str, Excerpt] = {}
        self._across: dict[tuple[bytes, bytes], float] = {}
        self._shared: dict[tuple[bytes, ...], tuple[float, ...]] = {}

    def relate(self, evidence: Sequence[Samples]) -> Relation:
        """Return the relation of the subgraphs with enough samples, not all equal, in order of workload."""
        self._keep([samples for samples in evidence if len(samples.labels) >= LEAST_SAMPLES])
        own = {workload: self.shared([workload])[0] for workload in sorted(self._excerpts)}
        workloads = tuple(workload for workload, accuracy in own.items() if np.isfinite(accuracy))
        matrix = np.zeros((len(workloads), len(workloads)))
        for i, workload in enumerate(workloads):
            matrix[i] = self._accuracy_across(workload, workloads)
            matrix[i, i] = own[workload]
        return Relation(workloads, matrix)

    def shared(self, workloads: Sequence[str]) -> tuple[float, ...]:
        """Return how well a shared model of these subgraphs ranks unseen samples of each, by cross-validation.

        They must have been in the last `relate`.  NaN for a subgraph whose samples do not differ.
        """
        order = sorted(range(len(workloads)), key=lambda at: self._excerpts[workloads[at]].digest)
        excerpts = [self._excerpts[workloads[at]] for at in order]
        key = tuple(excerpt.digest for excerpt in excerpts)
        if key not in self._shared:
            self._shared[key] = self._cross_validated(excerpts)
        found = dict(zip(order, self._shared[key], strict=True))
        return tuple(found[at] for at in range(len(workloads)))

    def _keep(self, evidence: Sequence[Samples]) -> None:
        self._excerpts = {samples.subject.workload: Excerpt(samples) for samples in evidence}
        current = {excerpt.digest for excerpt in self._excerpts.values()}
        self._across = {key: found for key, found in self._across.items() if current.issuperset(key)}
        self._shared = {key: found for key, found in self._shared.items() if current.issuperset(key)}

    def _accuracy_across(self, workload: str, others: Sequence[str]) -> list[float]:
        """Return how well a model of the samples of `workload` ranks those of each of `others`."""
        source = self._excerpts[workload]
        excerpts = [self._excerpts[other] for other in others]
        new = [excerpt for excerpt in excerpts if (source.digest, excerpt.digest) not in self._across]
        if new:
            model = Small([source], seed=self._seed, threads=self._threads)
            for excerpt, scores in zip(new, model.rank([excerpt.features for excerpt in new]), strict=True):
                self._across[source.digest, excerpt.digest] = pair_accuracy(scores, excerpt.times)[0]
        return [self._across[source.digest, excerpt.digest] for excerpt in excerpts]

    def _cross_validated(self, excerpts: Sequence[Excerpt]) -> tuple[float, ...]:
        """Return, for each excerpt, the share of pairs of unseen samples that models of all excerpts order rightly."""
        right, pairs = np.zeros(len(excerpts)), np.zeros(len(excerpts))
        for fold in range(FOLDS):
            unseen = [excerpt.fold == fold for excerpt in excerpts]
            model = Small(excerpts, without=fold, seed=self._seed, threads=self._threads)
            parts = [excerpt.features[rows] for excerpt, rows in zip(excerpts, unseen, strict=True)]
            for at, scores in enumerate(model.rank(parts)):
                accuracy, counted = pair_accuracy(scores, excerpts[at].times[unseen[at]])
                right[at] += accuracy * counted if counted else 0.0
                pairs[at] += counted
        with np.errstate(invalid="ignore"):
            return tuple((right / pairs).tolist())
