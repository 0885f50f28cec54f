from __future__ import annotations

import math

import numpy as np
import pytest

from kintune.models.quantisation.output_error import output_error


def test_the_worst_output_counts() -> None:
    reference = [np.array([3.0, 4.0]), np.array([1.0])]
    assert output_error([np.array([3.0, 4.5]), np.array([1.2])], reference) == pytest.approx(0.2)


def test_what_is_the_same_has_no_error() -> None:
    odd = np.array([np.nan, np.inf, 1.0])
    assert output_error([odd, np.array(["a"])], [odd.copy(), np.array(["b"])]) == 0.0


@pytest.mark.parametrize("found", [np.zeros(3), np.array([np.nan, 1.0]), np.array([np.inf, 1.0])])
def test_other_shapes_and_what_is_not_finite_are_infinitely_far(found: np.ndarray) -> None:  # type: ignore[type-arg]
    assert output_error([found], [np.array([1.0, 1.0])]) == math.inf


def test_zeros_are_either_met_or_not() -> None:
    assert output_error([np.zeros(2)], [np.zeros(2)]) == 0.0
    assert output_error([np.full(2, 1e-9)], [np.zeros(2)]) == math.inf
