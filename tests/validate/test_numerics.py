import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kintune.validate.numerics import Difference, compare_outputs

ANY = arrays(np.float32, array_shapes(min_dims=0, max_dims=3), elements=st.floats(width=32))
FINITE = arrays(np.float64, array_shapes(max_dims=2), elements=st.floats(-1e6, 1e6))


@given(ANY)
def test_what_is_equal_differs_by_nothing(output: np.ndarray) -> None:
    assert compare_outputs(["y"], [output], [output.copy()], 0.0, 0.0) == Difference(0.0, 0.0, "")


@given(FINITE, st.integers(0), st.floats(-10, 10))
def test_it_agrees_exactly_when_allclose_does(expected: np.ndarray, at: int, change: float) -> None:
    output = expected.copy()
    output.flat[at % output.size] += change
    found = compare_outputs(["y"], [output], [expected], 1e-3, 1e-2)
    assert (not found.disagreement) == np.allclose(output, expected, 1e-3, 1e-2)
    assert found.absolute == np.abs(output - expected).max()


def test_the_relative_error_is_that_of_the_value() -> None:
    expected = np.full(100, 10.0)
    output = expected.copy()
    output[3] = 10.5
    assert compare_outputs(["y"], [output], [expected], 1, 1).relative == pytest.approx(0.05)


def test_values_near_zero_do_not_inflate_the_relative_error() -> None:
    expected = np.concatenate([np.full(99, 10.0), [1e-12]])
    assert compare_outputs(["y"], [expected + 1e-6], [expected], 1, 1).relative == pytest.approx(1e-7)


def test_an_output_of_many_zeros_has_the_magnitude_of_the_others() -> None:
    expected = np.array([0.0, 0.0, 0.0, 2.0, 2.0])
    assert compare_outputs(["y"], [expected + 1e-3], [expected], 1, 1).relative == pytest.approx(5e-4)
    assert compare_outputs(["y"], [np.full(3, 0.25)], [np.zeros(3)], 1, 1).relative == 0.25


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_one_side_is_infinitely_wrong(bad: float) -> None:
    good, spoilt = np.ones(4, np.float32), np.array([1, bad, 1, 1], np.float32)
    for output, expected in ((good, spoilt), (spoilt, good)):
        found = compare_outputs(["y"], [output], [expected], 1e30, 1e30)
        assert found.absolute == found.relative == math.inf
        assert found.disagreement.startswith("output 'y': 1 of 4 values differ")


def test_opposite_infinities_differ() -> None:
    assert compare_outputs(["y"], [np.array([math.inf])], [np.array([-math.inf])], 1, 1).absolute == math.inf


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_must_be_equal(dtype: str) -> None:
    expected = np.array([1, 0, 1], dtype)
    found = compare_outputs(["mask"], [np.array([1, 1, 1], dtype)], [expected], 100.0, 100.0)
    assert found.disagreement == "output 'mask': 1 of 3 values differ, most at [1]: 1 instead of 0"


def test_the_line_names_the_output_and_the_worst_value() -> None:
    expected = np.zeros((2, 3))
    output = np.array([[0, 0.5, 0], [0, 0, 2.0]])
    found = compare_outputs(["a", "b"], [expected, output], [expected, expected], 1e-3, 1e-2)
    assert found.disagreement == (
        "output 'b': 2 of 6 values differ by more than atol 0.01 + rtol 0.001, most at [1, 2]: 2 instead of 0"
    )


def test_other_shapes_and_numbers_of_outputs_are_named() -> None:
    one = np.zeros((2, 3))
    assert compare_outputs(["a"], [one], [one.T], 1, 1).disagreement == "output 'a' has shape (2, 3) instead of (3, 2)"
    assert compare_outputs(["a"], [one], [one, one], 1, 1).disagreement == "1 outputs instead of 2"
    assert compare_outputs(["a"], [one[:0]], [one[:0]], 1, 1) == Difference(0.0, 0.0, "")
