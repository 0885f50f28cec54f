import numpy as np

from kintune.search.family import Samples, Subject
from kintune.search.family.excerpt import FOLDS, Excerpt, Small

SUBJECT = Subject("a", 1, 1e6, "conv2d", "conv2d")


def _samples(count: int, seed: int = 0) -> Samples:
    features = np.random.default_rng(seed).uniform(0.0, 8.0, (count, 6)).astype(np.float32)
    return Samples(SUBJECT, features, (features[:, 0] / 8).astype(np.float32))


def test_few_samples_are_looked_at_whole() -> None:
    samples = _samples(30)
    excerpt = Excerpt(samples)
    assert np.array_equal(excerpt.features, samples.features)
    assert np.array_equal(excerpt.labels, samples.labels)


def test_many_are_thinned_from_the_first_to_the_last() -> None:
    samples = _samples(1000)
    excerpt = Excerpt(samples)
    assert len(excerpt.labels) < 200
    assert excerpt.labels[0] == samples.labels[0]
    assert excerpt.labels[-1] == samples.labels[-1]


def test_a_failed_candidate_takes_for_ever() -> None:
    samples = _samples(30)
    samples.labels[3] = 0.0
    assert np.flatnonzero(np.isinf(Excerpt(samples).times)).tolist() == [3]


def test_a_digest_tells_features_and_labels() -> None:
    samples = _samples(30)
    other = samples._replace(features=samples.features + 1), samples._replace(labels=samples.labels * np.float32(0.5))
    assert len({Excerpt(s).digest for s in (samples, *other)}) == 3
    assert Excerpt(samples).digest == Excerpt(_samples(30)).digest


def test_a_model_without_a_part_does_not_depend_on_it() -> None:
    samples, forged = _samples(60), _samples(60)
    forged.labels[np.arange(60) % FOLDS == 1] = 0.5
    true, false = [Small([Excerpt(s)], without=1, seed=0, threads=1) for s in (samples, forged)]
    assert np.array_equal(true.rank([samples.features])[0], false.rank([samples.features])[0])
    whole = Small([Excerpt(forged)], seed=0, threads=1)
    assert not np.array_equal(whole.rank([samples.features])[0], true.rank([samples.features])[0])


def test_scores_come_apart_as_the_features_did() -> None:
    excerpt = Excerpt(_samples(60))
    model = Small([excerpt], seed=0, threads=1)
    first, second = model.rank([excerpt.features[:10], excerpt.features[10:]])
    assert np.array_equal(np.concatenate([first, second]), model.rank([excerpt.features])[0])
    assert len(first) == 10
