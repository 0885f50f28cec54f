"""The comparison on extreme inputs."""

from __future__ import annotations

import numpy as np

from kintune.validate.extreme_check import without_spread

REACH = 4


def test_only_places_around_one_without_a_number_are_left_out() -> None:
    expected = np.zeros((2, 3, 20, 20), np.float32)
    expected[0, 1, 10, 10] = np.nan
    output = np.full_like(expected, 5.0)
    output[0, :, 8:12, 8:12] = np.nan
    left = without_spread(output, expected, REACH)
    taken = (left != output) & ~np.isnan(left)
    assert taken[0, :, 6:15, 6:15].sum() == taken.sum() == 3 * 9 * 9 - 1
    assert np.isnan(left[0, 1, 10, 10])
    assert (left[1] == 5).all()
    assert (left[0, :, 5] == 5).all()
    assert (left[0, :, :, 15] == 5).all()


def test_a_number_in_the_place_of_an_infinity_is_not_left_out() -> None:
    expected = np.zeros((1, 1, 9, 9), np.float32)
    expected[0, 0, 4, 4] = np.inf
    output = np.full_like(expected, 7.0)
    assert without_spread(output, expected, REACH)[0, 0, 4, 4] == 7


def test_values_around_a_huge_one_are_left_out() -> None:
    expected = np.ones((1, 9, 9, 2), np.float32)
    expected[0, 4, 4, 0] = 1e20
    output = np.full_like(expected, np.inf)
    assert np.array_equal(without_spread(output, expected, 8), expected)


def test_what_has_no_places_or_no_floats_stays() -> None:
    flat, wrong = np.array([[np.nan, 1.0]]), np.array([[0.0, 2.0]])
    assert without_spread(wrong, flat, REACH) is wrong
    counts = np.zeros((1, 2, 3, 3), np.int64)
    assert without_spread(counts + 1, counts, REACH).all()
