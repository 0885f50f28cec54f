"""Family models that earlier jobs have trained: where a family starts from, and when it lets go of that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.search.cost_model import Trees
from kintune.search.family import Subject
from kintune.search.knowledge import KnownModel
from kintune.search.ranking import pair_accuracy

__all__ = ["ENOUGH", "Priors"]

ENOUGH = 600
"""Samples of its own with which a family needs no prior."""

_JUDGEABLE = 24  # samples of its own with which a prior can be compared with none


class Priors:
    """The known models, by family; those of a kind that is found from measurements are matched by their operators."""

    def __init__(self) -> None:
        self._models: dict[str, Trees] = {}
        self._operators: list[tuple[set[str], Trees]] = []

    def teach(self, models: Iterable[KnownModel]) -> None:
        """Take in known models; the last one of a family counts."""
        for known in models:
            model = Trees.from_bytes(known.blob)
            self._models[known.version.family] = model
            self._operators.append(({subject.operator for subject in known.subjects}, model))

    def of(self, family: str, members: Sequence[Subject]) -> Trees | None:
        """The model to start from: the one known by that key, else one trained on the operators of most members."""
        if family in self._models:
            return self._models[family]
        best, most = None, len(members) / 2
        for operators, model in self._operators:
            shared = sum(member.operator in operators for member in members)
            if shared > most:
                best, most = model, shared
        return best

    @staticmethod
    def train(
        features: NDArray[np.float32], labels: NDArray[np.float32], prior: Trees | None, *, seed: int, threads: int
    ) -> Trees:
        """A family's model from its samples, on top of the prior as long as that helps to rank them.

        Features have shape (n, width), labels (n,).  Whether it helps is seen on samples that were held out.
        """
        if prior is not None and not _helps(features, labels, prior, seed, threads):
            prior = None
        return Trees.train(features, labels, seed=seed, threads=threads, prior=prior)


def _helps(features: NDArray[np.float32], labels: NDArray[np.float32], prior: Trees, seed: int, threads: int) -> bool:
    count = len(labels)
    if count >= ENOUGH:
        return False
    if count < _JUDGEABLE:
        return _ranks(prior, features, labels) >= 0.5
    held = np.arange(count) % 3 == 0
    rest = features[~held], labels[~held]
    alone = Trees.train(*rest, seed=seed, threads=threads)
    helped = Trees.train(*rest, seed=seed, threads=threads, prior=prior)
    return _ranks(helped, features[held], labels[held]) > _ranks(alone, features[held], labels[held])


def _ranks(model: Trees, features: NDArray[np.float32], labels: NDArray[np.float32]) -> float:
    """The share of pairs that the model has in the right order; one half when there are none to order."""
    with np.errstate(divide="ignore"):
        times = np.where(labels > 0, 1 / labels.astype(np.float64), np.inf)
    accuracy, pairs = pair_accuracy(model.predict(features), times)
    return accuracy if pairs else 0.5
