"""What counts as a difference, and what rounding explains."""

from __future__ import annotations

import numpy as np
import pytest

from kintune_lab.fuzz.comparing import UNDECIDED, difference

_NAN, _INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("found", "wanted", "alike"),
    [
        ([1.0, 2.0], [1.0, 2.00001], True),
        ([1.0, 2.0], [1.0, 2.01], False),
        ([1.0, _NAN], [1.0, _NAN], True),
        ([1.0, 5.0], [1.0, _NAN], False),
        ([_INF, 1.0], [_INF, 1.0], True),
        ([_INF, 1.0], [-_INF, 1.0], False),
        ([3.4e38, 1.0], [_INF, 1.0], True),
        ([1e20, 1.0], [_INF, 1.0], False),
        ([1e-12, 2e-12], [1e-12, 4e-12], False),
    ],
)
def test_floats_are_compared_to_their_own_size(found: list[float], wanted: list[float], alike: bool) -> None:
    assert (difference(np.array(found, np.float32), np.array(wanted, np.float32)) == "") is alike


def test_integers_and_booleans_must_be_equal() -> None:
    assert difference(np.array([2**62 + 1]), np.array([2**62])) != ""
    assert difference(np.array([255], np.uint8), np.array([255], np.uint8)) == ""
    assert difference(np.array([True]), np.array([False])) != ""


def test_types_and_shapes_must_be_equal() -> None:
    assert "int32" in difference(np.array([1], np.int32), np.array([1], np.int64))
    assert "shape" in difference(np.zeros((1, 2)), np.zeros(2))


def test_values_may_differ_as_far_as_noise_moves_them_and_no_farther() -> None:
    wanted = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    sample = np.array([1.0, 2.0, 3.0, 4.01], np.float32)
    assert difference(np.array([1.0, 2.0, 3.0, 4.05], np.float32), wanted, [sample]) == ""
    assert difference(np.array([1.0, 2.0, 3.0, 5.0], np.float32), wanted, [sample]) != ""
    assert difference(np.array([1.0, 2.0, 3.1, 4.0], np.float32), wanted, [sample]) != ""


def test_nothing_is_said_where_noise_decides_most_values() -> None:
    assert difference(np.array([1, 1]), np.array([0, 0]), [np.array([1, 1])]) == UNDECIDED
