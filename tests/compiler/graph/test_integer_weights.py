"""Weights in signed bytes, or in parts whose sums float32 holds, are the weights that were given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

pytestmark = pytest.mark.tvm


def drawn(seed: int, shape: tuple[int, ...], points: list[int]) -> NDArray[Any]:
    """Bytes less a zero point for each element of the first axis."""
    whole = np.random.default_rng(seed).integers(0, 256, shape).astype(np.int32)
    whole.flat[:2] = 0, 255
    return whole - np.resize(points, shape[0]).reshape(-1, *[1] * (len(shape) - 1)).astype(np.int32)


@given(st.integers(0, 99), st.sampled_from(((3, 5), (4, 2, 3, 3), (1, 7))), st.lists(st.integers(0, 255), min_size=1))
def test_moved_weights_are_signed_bytes_and_the_same_weights(seed: int, shape: Any, points: list[int]) -> None:
    from kintune.compiler.graph.integer_weights import shaped, signed_weights

    weights = drawn(seed, shape, points)
    found = signed_weights(weights, 0)
    assert found is not None
    assert found.integers.min() >= -128
    assert found.integers.max() <= 127
    np.testing.assert_array_equal(found.integers + shaped(found.moved, 0, len(shape)), weights)
    fits = weights.min() >= -128 and weights.max() <= 127
    assert fits == (not found.moved.any())


def test_weights_with_more_than_256_values_are_no_bytes() -> None:
    from kintune.compiler.graph.integer_weights import signed_weights

    assert signed_weights(np.array([[-1], [255]]), 1) is None


@given(st.integers(0, 99), st.integers(1, 6000), st.sampled_from((1, 16, 255)))
def test_digits_add_up_to_the_weights_and_their_sums_are_exact(seed: int, terms: int, largest: int) -> None:
    from kintune.compiler.graph.integer_weights import exact_digits

    weights = np.random.default_rng(seed).integers(-largest, largest + 1, (terms, 3))
    found = exact_digits(weights, (0,))
    assert found is not None
    np.testing.assert_array_equal(sum(factor * digit for factor, digit in found), weights)
    for _, digit in found:
        assert 255 * abs(digit).sum(0).max() < 1 << 24
    assert (len(found) == 1) == (255 * abs(weights).sum(0).max() < 1 << 24)
