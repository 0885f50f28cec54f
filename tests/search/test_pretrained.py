from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kintune.core.knowledge import KnownModel, ModelVersion
from kintune.search import pretrained
from kintune.search.cost_model import Trees
from kintune.search.family import Subject
from kintune.search.pretrained import ENOUGH, PretrainedFamilies, PretrainedFamily
from kintune.search.training_rows import TrainingRows


def _subject(workload: str, operator: str = "dense") -> Subject:
    return Subject(workload, 1, 1e6, operator, operator)


def _rows(
    workloads: Sequence[str], each: int, *, seed: int, fresh: bool = True, offset: float = 0.0, noise: float = 0.0
) -> TrainingRows:
    """Samples whose labels rise with their first feature; the second tells the workload, and shifts them."""
    rng = np.random.default_rng(seed)
    names = np.repeat(np.array(workloads), each)
    features = rng.random((len(names), 4)).astype(np.float32)
    features[:, 1] = np.repeat(np.arange(len(workloads)), each)
    labels = 0.1 + 0.4 * features[:, 0] + offset * features[:, 1] + noise * rng.standard_normal(len(names))
    return TrainingRows(features, np.clip(labels, 0.01, None).astype(np.float32), names, np.full(len(names), fresh))


def _trained(rows: TrainingRows, sign: float = 1.0) -> Trees:
    return Trees.train(rows.features, sign * rows.labels, seed=0, threads=1)


def _trees(model: Trees) -> int:
    return int(model._booster.num_boosted_rounds())


def _kept(rows: TrainingRows, prior: PretrainedFamily | None) -> bool:
    """Whether the model trained on these rows stands on the prior."""
    return _trees(PretrainedFamilies.train(rows, prior, seed=0, threads=1)) > _trees(
        PretrainedFamilies.train(rows, None, seed=0, threads=1)
    )


def test_what_ranks_a_stranger_well_is_kept() -> None:
    prior = PretrainedFamily(_trained(_rows(["x", "y"], 200, seed=1)), (_subject("x"), _subject("y")))
    assert _kept(_rows(["a"], 16, seed=2, noise=0.1), prior)


def test_what_ranks_it_the_wrong_way_round_is_not() -> None:
    prior = PretrainedFamily(_trained(_rows(["x"], 200, seed=1), sign=-1.0), (_subject("x"),))
    assert not _kept(_rows(["a"], 4, seed=2), prior)
    assert not _kept(_rows(["a"], 60, seed=2), prior)


def test_one_sample_does_not_speak_against_it() -> None:
    prior = PretrainedFamily(_trained(_rows(["x"], 200, seed=1), sign=-1.0), (_subject("x"),))
    assert _kept(_rows(["a"], 1, seed=2), prior)
    assert not _kept(_rows(["a"], 2, seed=2), prior)


def test_a_workload_without_pairs_says_nothing() -> None:
    many, one = _rows(["a"], 8, seed=2), _rows(["b"], 1, seed=3)
    both = TrainingRows(*(np.concatenate(pair) for pair in zip(many, one, strict=True)))
    model = _trained(_rows(["x"], 200, seed=1))
    assert pretrained._ranked(model, both) == pretrained._ranked(model, many)
    assert pretrained._ranked(model, one) == (0.5, 0)


def test_with_samples_enough_there_is_no_need_for_one() -> None:
    prior = PretrainedFamily(_trained(_rows(["x"], 200, seed=1)), (_subject("x"),))
    assert not _kept(_rows(["a"], ENOUGH, seed=2), prior)


def test_what_it_was_trained_on_does_not_speak_for_it() -> None:
    """The prior was trained on these samples, with their noise."""
    known = _rows(["a"], 60, seed=2, fresh=False, noise=0.3)
    prior = PretrainedFamily(_trained(known), (_subject("a"),))
    assert not _kept(known, prior)
    assert _kept(known, PretrainedFamily(prior.model, (_subject("another"),)))


def test_what_was_measured_since_does() -> None:
    known = _rows(["a"], 30, seed=2, fresh=False)
    measured = _rows(["a"], 12, seed=3)
    both = TrainingRows(*(np.concatenate(pair) for pair in zip(known, measured, strict=True)))
    right, wrong = (
        PretrainedFamily(_trained(_rows(["a"], 300, seed=4), sign), (_subject("a"),)) for sign in (1.0, -1.0)
    )
    assert _kept(both, right)
    assert not _kept(both, wrong)


@pytest.mark.parametrize(("sign", "kept"), [(1.0, True), (-1.0, False)])
def test_only_the_order_within_a_workload_counts(sign: float, kept: bool) -> None:
    """A search compares no others; here the order across workloads says the opposite."""
    taught = _rows(["a", "b", "c"], 200, seed=1, offset=-sign * 2.0)
    labels = sign * (0.1 + 0.4 * taught.features[:, 0]) - sign * 2.0 * taught.features[:, 1]
    prior = PretrainedFamily(
        Trees.train(taught.features, labels.astype(np.float32), seed=0, threads=1), (_subject("x"),)
    )
    assert _kept(_rows(["a", "b", "c"], 5, seed=2, offset=2.0), prior) is kept


def test_a_family_unknown_by_its_key_starts_from_its_operators() -> None:
    priors = PretrainedFamilies()
    blob = _trained(_rows(["x"], 50, seed=1)).to_bytes()
    version = ModelVersion("blob", "measured:1", "device", "features", 50)
    priors.teach([KnownModel(version, blob, (_subject("x", "dense"),))])
    named = priors.of("measured:1", [])
    assert named is not None
    assert priors.of("measured:9", [_subject("a"), _subject("b"), _subject("c", "conv2d")]) is named
    assert priors.of("measured:9", [_subject("a"), _subject("c", "conv2d")]) is None
