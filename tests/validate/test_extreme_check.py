"""The comparison on extreme inputs."""

from __future__ import annotations

import numpy as np

from kintune.validate.extreme_check import settled

REACH = 4


def test_only_places_around_one_without_a_number_are_left_out() -> None:
    expected = np.zeros((2, 3, 20, 20), np.float32)
    expected[0, 1, 10, 10] = np.nan
    output = np.full_like(expected, 5.0)
    output[0, :, 8:12, 8:12] = np.nan
    left = settled(output, expected, REACH)
    taken = ~np.isclose(left, output, equal_nan=True)
    assert taken.sum() == taken[0, :, 6:15, 6:15].sum() == 3 * 9 * 9 - 1
    assert np.isnan(left[0, 1, 10, 10])
    assert np.isnan(settled(output, expected)).sum() == 3 * 4 * 4  # nothing is left out without a reach


def test_a_number_in_the_place_of_an_infinity_is_not_left_out() -> None:
    expected = np.zeros((1, 1, 9, 9), np.float32)
    expected[0, 0, 4, 4] = np.inf
    output = np.full_like(expected, 7.0)
    assert settled(output, expected, REACH)[0, 0, 4, 4] == 7


def test_values_around_a_huge_one_are_left_out() -> None:
    expected = np.ones((1, 9, 9, 2), np.float32)
    expected[0, 4, 4, 0] = 1e20
    output = np.full_like(expected, np.inf)
    assert np.array_equal(settled(output, expected, 8), expected)


def test_infinities_and_huge_values_are_alike() -> None:
    expected = np.array([np.inf, np.nan, -1e30, 1.0, np.nan, 2.0], np.float32)
    output = np.array([np.nan, np.inf, np.inf, 1.0, 0.0, np.inf], np.float32)
    assert settled(output, expected)[:4].tobytes() == expected[:4].tobytes()
    assert settled(output, expected)[4:].tolist() == [0.0, np.inf]


def test_what_has_no_places_or_no_floats_stays() -> None:
    flat, wrong = np.array([[np.nan, 1.0]]), np.array([[0.0, 2.0]])
    assert settled(wrong, flat, REACH).tolist() == wrong.tolist()
    counts = np.zeros((1, 2, 3, 3), np.int64)
    assert settled(counts + 1, counts, REACH).all()
