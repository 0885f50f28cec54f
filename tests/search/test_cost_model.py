from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kintune.search.cost_model import Trees, Trust, relative_speeds


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


_RIGHT = ([4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0])

_WRONG = ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])


def test_a_family_nobody_doubts_gets_full_rounds() -> None:
    assert Trust().size("dense", 16) == 16


def test_rounds_shrink_and_stop_when_predictions_do_not_hold_and_come_back_when_they_do() -> None:
    trust = Trust()
    sizes = []
    for _ in range(4):
        trust.judge("dense", *_WRONG, foreseen=True, improved=False)
        sizes.append(trust.size("dense", 16))
    assert sizes == [8, 4, 0, 0]
    trust.judge("dense", *_RIGHT, foreseen=False, improved=False)
    assert trust.size("dense", 16) == 4
    assert trust.size("conv2d", 16) == 16


@pytest.mark.parametrize("foreseen", [True, False])
def test_a_ranking_that_holds_is_believed_even_without_a_gain(foreseen: bool) -> None:
    trust = Trust()
    trust.judge("dense", *_WRONG, foreseen=True, improved=False)
    trust.judge("dense", *_RIGHT, foreseen=foreseen, improved=False)
    assert trust.size("dense", 16) == 16


def test_full_rounds_without_predictions_say_nothing() -> None:
    trust = Trust()
    trust.judge("dense", [], [], foreseen=False, improved=True)
    assert trust.size("dense", 16) == 16


@pytest.mark.parametrize(("pairs", "size"), [(3, 16), (4, 16), (5, 16), (6, 8)])
def test_few_pairs_say_nothing(pairs: int, size: int) -> None:
    """A quarter of a round is never enough: with four candidates there are six pairs."""
    count, equal = {3: (3, 0), 4: (4, 2), 5: (4, 1), 6: (4, 0)}[pairs]
    times = [1.0, 2.0, 3.0, 4.0][:count]
    if equal == 1:
        times = [1.0, 1.0, 2.0, 3.0]
    elif equal == 2:
        times = [1.0, 1.0, 2.0, 2.0]
    trust = Trust()
    trust.judge("dense", [float(n) for n in range(count)], times, foreseen=False, improved=False)
    assert trust.size("dense", 16) == size


def test_what_was_written_can_be_read_and_nothing_else() -> None:
    model = Trees.train(np.eye(16, dtype=np.float32), np.arange(16, dtype=np.float32), seed=0, threads=1)
    assert Trees.can_read(model.to_bytes())
    for blob in (b"", b"{}", b"trees", model.to_bytes()[:-1], model.to_bytes()[:1000]):
        assert not Trees.can_read(blob)


def test_a_ranking_by_chance_says_nothing() -> None:
    trust = Trust()
    trust.judge("dense", [1.0] * 4, [1.0, 2.0, 3.0, 4.0], foreseen=False, improved=False)
    assert trust.size("dense", 16) == 16
