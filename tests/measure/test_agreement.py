from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kintune.measure.agreement import disagreement, not_finite

FLOATS = hnp.arrays(np.float32, hnp.array_shapes(max_dims=3), elements=st.floats(width=32))


@given(FLOATS)
def test_everything_agrees_with_itself(values: np.ndarray) -> None:
    assert disagreement(values.copy(), values, rtol=0, atol=0) == ""


@given(FLOATS.filter(lambda a: np.isfinite(a).any()))
def test_what_was_never_written_never_agrees(values: np.ndarray) -> None:
    unwritten = np.where(np.isnan(values), np.float32(0), np.float32(np.nan))
    assert disagreement(unwritten, values, rtol=0.5, atol=0.5).startswith("not finite")


@given(st.floats(2.0**-20, 2.0**20), st.integers(0, 99))
def test_the_absolute_tolerance_scales_with_the_output(scale: float, place: int) -> None:
    expected = np.linspace(0, scale, 100, dtype=np.float32)
    actual = expected.copy()
    actual[place] += np.float32(0.5e-3 * scale)
    assert disagreement(actual, expected, rtol=0, atol=1e-3) == ""
    actual[place] += np.float32(1e-3 * scale)
    assert disagreement(actual, expected, rtol=0, atol=1e-3).startswith("wrong numbers: 1 of 100")


def test_a_softmax_of_zeros_is_not_a_softmax() -> None:
    expected = np.full((1, 4096), 1 / 4096, np.float32)
    assert disagreement(np.zeros_like(expected), expected, rtol=1e-3, atol=1e-3).startswith(
        "wrong numbers: 4096 of 4096"
    )


def test_infinities_and_nans_must_be_where_they_belong() -> None:
    expected = np.array([np.inf, -np.inf, np.nan, 1], np.float32)
    assert disagreement(np.array([np.inf, -np.inf, np.nan, 1], np.float32), expected, 1e-3, 1e-3) == ""
    for wrong in ([-np.inf, -np.inf, np.nan, 1], [np.inf, -np.inf, 0, 1], [np.inf, 7, np.nan, 1]):
        assert disagreement(np.array(wrong, np.float32), expected, 1e-3, 1e-3).startswith("wrong numbers: 1 of 4")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.bool_, np.uint8])
def test_integers_must_be_equal(dtype: type) -> None:
    expected = np.array([0, 1, 1, 0], dtype)
    assert disagreement(expected.copy(), expected, 1, 1) == ""
    assert disagreement(np.invert(expected), expected, 1e9, 1e9) == "wrong numbers: 4 of 4 elements differ"


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_short_floats_may_differ_by_their_own_rounding(dtype: type) -> None:
    expected = np.linspace(-1, 1, 64, dtype=np.float32).astype(dtype)
    near = (expected.astype(np.float32) * np.float32(1.01)).astype(dtype)
    far = (expected.astype(np.float32) * np.float32(1.2)).astype(dtype)
    assert disagreement(near, expected, 1e-5, 1e-5) == ""
    assert disagreement(far, expected, 1e-5, 1e-5).startswith("wrong numbers")


def test_finiteness_is_of_floats_only() -> None:
    assert not_finite(np.array([1, -1], np.int32)) == ""
    assert not_finite(np.array([1, 2], np.float32)) == ""
    assert not_finite(np.array([1, np.inf], np.float32)).startswith("not finite: 1 of 2")


def test_what_computes_with_shorter_numbers_is_compared_by_norm() -> None:
    from kintune.measure.agreement import NARROW_ERROR, narrow_disagreement

    expected = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    near = expected + np.float32(0.9 * NARROW_ERROR) * expected[::-1]
    assert narrow_disagreement(near, expected) == ""
    assert disagreement(near, expected, 1e-3, 1e-3)
    far = expected + np.float32(1.1 * NARROW_ERROR) * expected[::-1]
    assert narrow_disagreement(far, expected).startswith("wrong numbers: the norm of the difference is ")
    assert narrow_disagreement(np.zeros_like(expected), np.zeros_like(expected)) == ""
    assert narrow_disagreement(np.full_like(expected, np.nan), expected).startswith("not finite: 1000 of 1000")
    infinite = np.where(expected > 0, np.float32(np.inf), expected)
    assert narrow_disagreement(infinite, infinite) == ""
    assert narrow_disagreement(np.where(expected > 0, 1.0, expected), infinite).startswith(
        "wrong numbers: not infinite"
    )
    whole = np.arange(5)
    assert narrow_disagreement(whole, whole) == ""
    assert narrow_disagreement(whole + 1, whole).startswith("wrong numbers: 5 of 5")


def test_few_bytes_may_be_rounded_to_the_other_side() -> None:
    expected = np.arange(1000).astype(np.uint8)
    actual = expected.copy()
    actual[:10] += 1
    assert disagreement(actual, expected, 0, 0) == ""
    assert disagreement(actual.astype(np.int32), expected.astype(np.int32), 0, 0) != ""
    actual[10] += 1
    assert disagreement(actual, expected, 0, 0) == "wrong numbers: 11 of 1000 elements differ"
    actual[:11] = expected[:11]
    actual[0] += 2
    assert disagreement(actual, expected, 0, 0) == "wrong numbers: 1 of 1000 elements differ"
