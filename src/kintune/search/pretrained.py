"""Family models that earlier jobs have trained: where a family starts from, and when it lets go of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kintune.core.knowledge import KnownModel
from kintune.search.cost_model import Trees
from kintune.search.family import Subject
from kintune.search.ranking import pair_accuracy
from kintune.search.training_rows import Rows

__all__ = ["ENOUGH", "PretrainedFamilies", "PretrainedFamily"]

ENOUGH = 600
"""Samples of its own with which a family needs no prior."""

_JUDGEABLE = 16  # pairs of samples held out with which a model on top of a prior can be compared with one without


class PretrainedFamily(NamedTuple):
    """A known model, and the subgraphs whose samples it was trained on."""

    model: Trees
    subjects: tuple[Subject, ...] = ()


class PretrainedFamilies:
    """The known models, by family; those of a kind that is found from measurements are matched by their operators."""

    def __init__(self) -> None:
        self._models: dict[str, PretrainedFamily] = {}

    def teach(self, models: Iterable[KnownModel]) -> None:
        """Take in known models; the last one of a family counts."""
        for known in models:
            self._models[known.version.family] = PretrainedFamily(Trees.from_bytes(known.blob), known.subjects)

    def of(self, family: str, members: Sequence[Subject]) -> PretrainedFamily | None:
        """The one to start from: that known by this key, else one trained on the operators of most members."""
        if family in self._models:
            return self._models[family]
        best, most = None, len(members) / 2
        for prior in self._models.values():
            operators = {subject.operator for subject in prior.subjects}
            shared = sum(member.operator in operators for member in members)
            if shared > most:
                best, most = prior, shared
        return best

    @staticmethod
    def train(rows: Rows, prior: PretrainedFamily | None, *, seed: int, threads: int) -> Trees:
        """A family's model from its samples, on top of the prior as long as that helps to rank them.

        Whether it helps is seen on samples that neither was trained on.
        """
        start = None if prior is None or not _helps(rows, prior, seed, threads) else prior.model
        return Trees.train(rows.features, rows.labels, seed=seed, threads=threads, prior=start)


def _helps(rows: Rows, prior: PretrainedFamily, seed: int, threads: int) -> bool:
    """Whether a model ranks better with the prior than without.

    Facts of workloads that the prior was trained on say nothing: it may know them by heart.  With nothing else to go
    by, all that it knows of them is told by the facts themselves.
    """
    if len(rows.labels) >= ENOUGH:
        return False
    unseen = rows.fresh | ~np.isin(rows.workloads, [subject.workload for subject in prior.subjects])
    if not unseen.any():
        return False
    out = np.zeros(len(unseen), bool)
    out[np.flatnonzero(unseen)[::3]] = True
    held, rest = rows.of(out), rows.of(~out)
    if _ranked(prior.model, held)[1] < _JUDGEABLE:
        return _ranked(prior.model, rows.of(unseen))[0] >= 0.5
    alone = Trees.train(rest.features, rest.labels, seed=seed, threads=threads)
    helped = Trees.train(rest.features, rest.labels, seed=seed, threads=threads, prior=prior.model)
    return _ranked(helped, held)[0] > _ranked(alone, held)[0]


def _ranked(model: Trees, rows: Rows) -> tuple[float, int]:
    """The share of pairs that the model has in the right order, one half if there are none, and how many there are.

    Of one workload each, since a search compares no others.
    """
    scores = model.predict(rows.features)
    with np.errstate(divide="ignore"):
        times = np.where(rows.labels > 0, 1 / rows.labels.astype(np.float64), np.inf)
    right, pairs = 0.0, 0
    for workload in np.unique(rows.workloads):
        of = rows.workloads == workload
        accuracy, found = pair_accuracy(scores[of], times[of])
        right, pairs = right + (accuracy * found if found else 0.0), pairs + found
    return (right / pairs if pairs else 0.5), pairs
