"""The relationship map: how well one subgraph's samples rank another's, and what several gain by a model of their own.

FamilySeer (arXiv 2201.00194) leaves open how families could be found from measurements; these are the measures for it.
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
"""Samples below which a subgraph has no place on the map."""

_CHANCE = 0.5
_LEAST_SKILL = 0.1  # above chance; what a subgraph that hardly ranks its own samples counts as reaching


class Relation(NamedTuple):
    """`matrix[i, j]`: the share of pairs of samples of `workloads[j]` that a model of `workloads[i]` puts in order.

    Shape (n, n); 0.5 is chance.  The diagonal is of models on samples that they have not seen.
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


class Relations:
    """Draws the map; what was found of samples that are still the same is kept, which changes no answer."""

    def __init__(self, *, seed: int = 0, threads: int = 1) -> None:
        self._seed = seed
        self._threads = threads
        self._excerpts: dict[str, Excerpt] = {}
        self._across: dict[tuple[bytes, bytes], float] = {}
        self._shared: dict[tuple[bytes, ...], tuple[float, ...]] = {}

    def relate(self, evidence: Sequence[Samples]) -> Relation:
        """The map of those subgraphs that have samples enough, and some that differ; by workload."""
        self._keep([samples for samples in evidence if len(samples.labels) >= LEAST_SAMPLES])
        own = {workload: self.shared([workload])[0] for workload in sorted(self._excerpts)}
        workloads = tuple(workload for workload, accuracy in own.items() if np.isfinite(accuracy))
        matrix = np.zeros((len(workloads), len(workloads)))
        for i, teacher in enumerate(workloads):
            matrix[i] = self._taught(teacher, workloads)
            matrix[i, i] = own[teacher]
        return Relation(workloads, matrix)

    def shared(self, workloads: Sequence[str]) -> tuple[float, ...]:
        """How well one model of several subgraphs ranks samples of each that it has not seen, in the order given.

        They are of those that were related last.  NaN for one whose samples do not differ.
        """
        order = sorted(range(len(workloads)), key=lambda at: self._excerpts[workloads[at]].digest)
        excerpts = [self._excerpts[workloads[at]] for at in order]
        key = tuple(excerpt.digest for excerpt in excerpts)
        if key not in self._shared:
            self._shared[key] = self._tried(excerpts)
        found = dict(zip(order, self._shared[key], strict=True))
        return tuple(found[at] for at in range(len(workloads)))

    def _keep(self, evidence: Sequence[Samples]) -> None:
        self._excerpts = {samples.subject.workload: Excerpt(samples) for samples in evidence}
        current = {excerpt.digest for excerpt in self._excerpts.values()}
        self._across = {key: found for key, found in self._across.items() if current.issuperset(key)}
        self._shared = {key: found for key, found in self._shared.items() if current.issuperset(key)}

    def _taught(self, teacher: str, pupils: Sequence[str]) -> list[float]:
        """How well a model of all of one's samples ranks each one's."""
        source = self._excerpts[teacher]
        excerpts = [self._excerpts[pupil] for pupil in pupils]
        new = [excerpt for excerpt in excerpts if (source.digest, excerpt.digest) not in self._across]
        if new:
            model = Small([source], seed=self._seed, threads=self._threads)
            for excerpt, scores in zip(new, model.rank([excerpt.features for excerpt in new]), strict=True):
                self._across[source.digest, excerpt.digest] = pair_accuracy(scores, excerpt.times)[0]
        return [self._across[source.digest, excerpt.digest] for excerpt in excerpts]

    def _tried(self, excerpts: Sequence[Excerpt]) -> tuple[float, ...]:
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
