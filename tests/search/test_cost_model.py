import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kintune.search.cost_model import Trees, relative_speeds


def _samples(seed: int, rows: int = 400) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features over many orders of magnitude, one of which decides."""
    rng = np.random.default_rng(seed)
    features = (10 ** rng.uniform(0, 9, (rows, 6))).astype(np.float32)
    return features, (1 / (1 + np.log10(features[:, 2]))).astype(np.float32)


def test_a_model_ranks_what_it_has_not_seen() -> None:
    model = Trees.train(*_samples(0), seed=0, threads=1)
    features, labels = _samples(1)
    scores = model.predict(features)
    assert scores.shape == labels.shape
    assert scores.dtype == np.float32
    assert np.corrcoef(np.argsort(np.argsort(scores)), np.argsort(np.argsort(labels)))[0, 1] > 0.9


def test_equal_rows_and_seeds_give_equal_bytes() -> None:
    samples = _samples(0)
    blob = Trees.train(*samples, seed=3, threads=1).to_bytes()
    assert Trees.train(*samples, seed=3, threads=1).to_bytes() == blob
    assert Trees.train(*samples, seed=4, threads=1).to_bytes() != blob


def test_what_a_prior_was_used_for_does_not_matter() -> None:
    """Also when it predicts, or others continue from it, in between."""
    prior = Trees.from_bytes(Trees.train(*_samples(0), seed=0, threads=1).to_bytes())
    samples = _samples(1, rows=30)
    blob = Trees.train(*samples, seed=0, threads=1, prior=prior).to_bytes()
    prior.predict(samples[0])
    Trees.train(*_samples(2), seed=0, threads=1, prior=prior)
    assert Trees.train(*samples, seed=0, threads=1, prior=prior).to_bytes() == blob


def test_models_do_not_grow_from_job_to_job() -> None:
    samples = _samples(0, rows=30)
    models = [Trees.train(*samples, seed=0, threads=1)]
    for _ in range(4):
        models.append(Trees.train(*samples, seed=0, threads=1, prior=models[-1]))
    sizes = [len(model.to_bytes()) for model in models]
    assert sizes[0] < sizes[1] < sizes[2] == sizes[3] == sizes[4]


def test_a_model_predicts_the_same_after_a_journey() -> None:
    model = Trees.train(*_samples(0), seed=0, threads=1)
    features, _ = _samples(1)
    assert Trees.from_bytes(model.to_bytes()).predict(features).tobytes() == model.predict(features).tobytes()


@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(st.floats(1e-3, 1e9), st.just(np.inf))), min_size=1))
def test_labels_are_relative_to_the_best_of_the_workload(rows: list[tuple[int, float]]) -> None:
    workloads = np.array([workload for workload, _ in rows])
    times = np.array([time for _, time in rows])
    best = np.array([times[workloads == w].min(initial=np.inf) for w in range(3)])
    labels = relative_speeds(workloads, times, best)
    assert ((labels >= 0) & (labels <= 1)).all()
    assert (labels[np.isinf(times)] == 0).all()
    assert (labels[(times == best[workloads]) & np.isfinite(times)] == 1).all()
