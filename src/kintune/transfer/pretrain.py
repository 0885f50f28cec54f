"""Pretrains family models from all measurements, for jobs to start with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import digest_of
from kintune.core.knowledge import KnownModel, ModelVersion, TrainedModel, TrainingConditions
from kintune.records import OnDamage, Store, refuse
from kintune.search.cost_model import Trees
from kintune.search.family import Samples, families
from kintune.search.ranking import pair_accuracy
from kintune.transfer.gather import samples

__all__ = ["LEAST_SAMPLES", "Pretrained", "pack", "pretrain", "train_all"]

LEAST_SAMPLES = 12
"""Samples below which a family gets no model, as in a search."""

_PARTS = 5  # one of which is held out in turn

_Features = NDArray[np.float32]


class Pretrained(msgspec.Struct, frozen=True):
    """A family's model, trained on all its samples, and how well such a model ranks samples that it has not seen.

    Both accuracies are shares of pairs of one workload's held-out candidates in the right order, by cross-validation.
    For `accuracy`, the model has seen other samples of the workload; for `unseen` it has seen none (None for a family
    of one workload).  They are None when no two held-out candidates differ.
    """

    known: KnownModel
    conditions: TrainingConditions
    workloads: int
    samples: int
    accuracy: float | None
    unseen: float | None


def pretrain(
    store: Store,
    algorithm: str = "op",
    *,
    device_type: str | None = None,
    seed: int = 0,
    threads: int = 1,
    on_damage: OnDamage = refuse,
) -> list[Pretrained]:
    """Trains models of all families of `algorithm`, and stores them in the records.

    Each (device type, compiler, version of the features) has models of its own; with `device_type` (a digest) only that
    one's.  Families with fewer than `LEAST_SAMPLES` samples get none.

    Raises:
        InputError: for an unknown algorithm.
        DamagedRecord: for what is damaged unless `on_damage` takes it.
    """
    trained: list[Pretrained] = []
    for found in store.measurements.conditions():
        conditions = TrainingConditions(*found)
        if device_type in (None, conditions.device_type):
            trained += train_all(
                store, conditions, algorithm, seed=seed, threads=threads, cross_validate=True, on_damage=on_damage
            )
    with store.transaction():
        for model in trained:
            store.blobs.put(pack(model.known))
            store.models.add(model.known.version)
    return trained


def train_all(
    store: Store,
    conditions: TrainingConditions,
    algorithm: str,
    *,
    without: Collection[str] = (),
    seed: int = 0,
    threads: int = 1,
    cross_validate: bool = False,
    on_damage: OnDamage = lambda _: None,
) -> list[Pretrained]:
    """Trains models under one kind of conditions without storing them; samples of the workloads `without` are not used.

    With `cross_validate`, models are also trained without the held-out samples, to measure how well they rank them.
    """
    evidence = samples(store, conditions, on_damage, without=without)
    keys = families(algorithm, seed=seed, threads=threads).group(evidence, {})
    trained: list[Pretrained] = []
    for family in sorted(set(keys.values())):
        members = [of_one for of_one in evidence if keys[of_one.subject.workload] == family]
        rows = sum(len(of_one.labels) for of_one in members)
        if rows < LEAST_SAMPLES:
            continue

        def train(features: _Features, labels: NDArray[np.float32]) -> Trees:
            return Trees.train(features, labels, seed=seed, threads=threads)

        trees = train(*_joined(members)).to_bytes()
        subjects = tuple(of_one.subject for of_one in members)
        digest = digest_of(TrainedModel(trees, subjects).to_bytes())
        version = ModelVersion(digest, family, conditions.device_type, conditions.feature_version, rows)
        trained.append(
            Pretrained(
                KnownModel(version, trees, subjects),
                conditions,
                workloads=len(members),
                samples=rows,
                accuracy=_accuracy(members, _rows_apart(members), train) if cross_validate else None,
                unseen=_accuracy(members, _workloads_apart(members), train)
                if cross_validate and len(members) > 1
                else None,
            )
        )
    return trained


def pack(known: KnownModel) -> bytes:
    """Returns the bytes whose digest is `known.version.blob`."""
    return TrainedModel(known.blob, known.subjects).to_bytes()


def _joined(members: Sequence[Samples]) -> tuple[_Features, NDArray[np.float32]]:
    return np.concatenate([m.features for m in members]), np.concatenate([m.labels for m in members])


def _rows_apart(members: Sequence[Samples]) -> Iterable[list[NDArray[np.bool_]]]:
    """Yields masks of the samples of each member that are held out: every fifth, in five turns."""
    for part in range(_PARTS):
        yield [np.arange(len(m.labels)) % _PARTS == part for m in members]


def _workloads_apart(members: Sequence[Samples]) -> Iterable[list[NDArray[np.bool_]]]:
    """Yields masks that hold out all samples of every fifth member, or of one at a time when there are fewer."""
    parts = min(_PARTS, len(members))
    for part in range(parts):
        yield [np.full(len(m.labels), i % parts == part) for i, m in enumerate(members)]


def _accuracy(
    members: Sequence[Samples],
    turns: Iterable[list[NDArray[np.bool_]]],
    train: Callable[[_Features, NDArray[np.float32]], Trees],
) -> float | None:
    right, pairs = 0.0, 0
    for held in turns:
        kept = [Samples(m.subject, m.features[~out], m.labels[~out]) for m, out in zip(members, held, strict=True)]
        features, labels = _joined(kept)
        if not len(labels):
            continue
        model = train(features, labels)
        for member, out in zip(members, held, strict=True):
            if out.sum() > 1:
                share, count = pair_accuracy(model.predict(member.features[out]), _times(member.labels[out]))
                right += share * count if count else 0.0
                pairs += count
    return right / pairs if pairs else None


def _times(labels: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return times relative to the fastest from relative speeds; infinite for failures."""
    with np.errstate(divide="ignore"):
        return np.where(labels > 0, 1 / labels.astype(np.float64), np.inf)
