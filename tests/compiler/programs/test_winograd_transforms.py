"""The transforms compute a correlation: in exact fractions by their matrices, and step by step as they are written."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.compiler.programs.winograd_transforms import (
    INPUT,
    KERNEL,
    OUTPUT,
    WEIGHTS,
    input_transform,
    output_transform,
)

SIZES = sorted(WEIGHTS)
FRACTIONS = st.fractions(-9, 9, max_denominator=9)


def product(matrix: Any, vector: list[Any]) -> list[Any]:
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


@given(st.sampled_from(SIZES), st.data())
def test_the_matrices_give_the_correlation(m: int, data: st.DataObject) -> None:
    d = data.draw(st.lists(FRACTIONS, min_size=m + 2, max_size=m + 2))
    g = data.draw(st.lists(FRACTIONS, min_size=KERNEL, max_size=KERNEL))
    transformed = [a * b for a, b in zip(product(WEIGHTS[m], g), product(INPUT[m], d), strict=True)]
    assert product(OUTPUT[m], transformed) == [sum(d[i + j] * g[j] for j in range(KERNEL)) for i in range(m)]


@pytest.mark.parametrize("m", SIZES)
def test_the_steps_are_those_of_the_matrices(m: int) -> None:
    values = list(np.random.default_rng(m).standard_normal(m + 2))
    for steps, matrix in ((input_transform, INPUT), (output_transform, OUTPUT)):
        found = steps(m, values, lambda value: value)
        np.testing.assert_allclose(found, np.array(matrix[m], float) @ values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("m", SIZES)
def test_equal_weights_are_transformed_to_equal_values(m: int) -> None:
    """Measurements fill weights with one value, in whatever form a program wants them."""
    assert [sum(row) for row in WEIGHTS[m]] == [1] * (m + 2)
