from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kintune.search.ranking import RESOLUTION, best_of, pair_accuracy, recall

SCORES = arrays.arrays(np.float32, 9, elements=st.integers(0, 3).map(float))
TIMES = arrays.arrays(np.float64, 9, elements=st.sampled_from([1.0, 1.5, 2.0, 3.0, math.inf]))


def scores(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def times(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_the_right_order_is_all_right_and_the_reverse_all_wrong() -> None:
    assert pair_accuracy(scores(3, 2, 1), times(1, 2, 3)) == (1.0, 3)
    assert pair_accuracy(scores(1, 2, 3), times(1, 2, 3)) == (0.0, 3)


def test_times_too_close_to_tell_apart_are_no_pair() -> None:
    near = 1.0 + RESOLUTION / 2
    assert pair_accuracy(scores(1, 2, 0), times(1.0, near, 3.0)) == (1.0, 2)
    assert math.isnan(pair_accuracy(scores(1, 2), times(1.0, near))[0])


def test_a_failed_candidate_is_slower_than_any_that_ran_and_equal_to_another_failed_one() -> None:
    assert pair_accuracy(scores(1, 0, 0.5), times(5.0, math.inf, math.inf)) == (1.0, 2)


def test_equal_scores_are_half_right() -> None:
    assert pair_accuracy(scores(1, 1), times(1, 2)) == (0.5, 1)


def test_recall_looks_at_the_first_few() -> None:
    assert recall(scores(9, 8, 1, 0), times(1, 3, 2, 4), 2) == 0.5
    assert recall(scores(9, 8, 1, 0), times(1, 3, 2, 4), 1) == 1.0
    assert math.isnan(recall(scores(1, 2), times(1.0, math.inf), 2))


def test_the_best_of_the_first_few_is_relative_to_the_fastest() -> None:
    assert best_of(scores(0, 2, 1), times(1, 4, 2), 2) == 0.5
    assert best_of(scores(0, 2, 1), times(1, math.inf, math.inf), 2) == 0.0
    assert math.isnan(best_of(scores(1), times(math.inf), 1))


@given(SCORES, TIMES)
def test_accuracy_is_the_mean_over_pairs(given_scores: np.ndarray, given_times: np.ndarray) -> None:
    expected = []
    for (s, t), (other_s, other_t) in itertools.combinations(zip(given_scores, given_times, strict=True), 2):
        if t > other_t:
            (s, t), (other_s, other_t) = (other_s, other_t), (s, t)
        if t * (1 + RESOLUTION) < other_t:
            expected.append(1.0 if s > other_s else 0.5 if s == other_s else 0.0)
    accuracy, pairs = pair_accuracy(given_scores, given_times)
    assert pairs == len(expected)
    assert math.isnan(accuracy) if not expected else accuracy == pytest.approx(np.mean(expected))


@given(SCORES, TIMES)
def test_reversed_scores_are_wrong_where_they_were_right(given_scores: np.ndarray, given_times: np.ndarray) -> None:
    accuracy, pairs = pair_accuracy(given_scores, given_times)
    if pairs:
        assert pair_accuracy(-given_scores, given_times)[0] == pytest.approx(1 - accuracy)


@given(SCORES, TIMES, st.integers(1, 9))
def test_recall_is_a_share_and_finds_all_when_all_count(
    given_scores: np.ndarray, given_times: np.ndarray, k: int
) -> None:
    found = recall(given_scores, given_times, k)
    ran = int(np.isfinite(given_times).sum())
    assert math.isnan(found) if ran < k else 0.0 <= found <= 1.0
    if ran == 9:
        assert recall(given_scores, given_times, 9) == 1.0
