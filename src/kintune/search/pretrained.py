"""Pretrained family models from earlier jobs, and the decision whether a family's training continues from one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from kintune.core.knowledge import KnownModel
from kintune.search.cost_model import Trees
from kintune.search.family import Subject
from kintune.search.ranking import pair_accuracy
from kintune.search.training_rows import TrainingRows

__all__ = ["ENOUGH", "PretrainedFamilies", "PretrainedFamily"]

ENOUGH = 600
"""Samples of its own from which on a family uses no pretrained model."""

_JUDGEABLE = 16  # held-out pairs needed to compare a model trained from the prior with one trained without


class PretrainedFamily(NamedTuple):
    """A pretrained model and the subgraphs whose samples it was trained on."""

    model: Trees
    subjects: tuple[Subject, ...] = ()


class PretrainedFamilies:
    """The pretrained models by family key; a family without one of its key is matched by operators."""

    def __init__(self) -> None:
        self._models: dict[str, PretrainedFamily] = {}

    def teach(self, models: Iterable[KnownModel]) -> None:
        """Add pretrained models; a later model of a family replaces an earlier one."""
        for known in models:
            self._models[known.version.family] = PretrainedFamily(Trees.from_bytes(known.blob), known.subjects)

    def of(self, family: str, members: Sequence[Subject]) -> PretrainedFamily | None:
        """Return the model of this family, or else the one whose operators cover most members, above half; or None."""
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
    def train(rows: TrainingRows, prior: PretrainedFamily | None, *, seed: int, threads: int) -> Trees:
        """Train a family's model on its samples; from the `prior` if that ranks held-out samples better."""
        start = None if prior is None or not _helps(rows, prior, seed, threads) else prior.model
        return Trees.train(rows.features, rows.labels, seed=seed, threads=threads, prior=start)


def _helps(rows: TrainingRows, prior: PretrainedFamily, seed: int, threads: int) -> bool:
    """Return whether a model trained from the prior ranks better than one trained without.

    Samples from the records of workloads that the prior was trained on are left out, since it may have seen them.
    False if there are no other samples.
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


def _ranked(model: Trees, rows: TrainingRows) -> tuple[float, int]:
    """Return the share of pairs that the model orders rightly (0.5 without pairs), and the number of pairs.

    Only pairs of the same workload count, since a search compares no others.
    """
    scores = model.predict(rows.features)
    with np.errstate(divide="ignore"):
        times = 1 / rows.labels.astype(np.float64)
    right, pairs = 0.0, 0
    for workload in np.unique(rows.workloads):
        of = rows.workloads == workload
        accuracy, found = pair_accuracy(scores[of], times[of])
        right, pairs = right + (accuracy * found if found else 0.0), pairs + found
    return (right / pairs if pairs else 0.5), pairs
