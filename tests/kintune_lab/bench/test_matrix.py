from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.bench.matrix import product_of, size_of

AXES = st.dictionaries(
    st.text(min_size=1, max_size=4), st.lists(st.integers(), min_size=1, max_size=4, unique=True), max_size=4
)


@given(AXES)
def test_every_choice_comes_once(axes: dict[str, list[int]]) -> None:
    choices = list(product_of(axes))
    assert len(choices) == size_of(axes) == math.prod(map(len, axes.values()))
    assert len({tuple(choice.items()) for choice in choices}) == len(choices)
    assert all(list(choice) == list(axes) for choice in choices)
    assert all(value in axes[name] for choice in choices for name, value in choice.items())


def test_the_last_axis_varies_fastest() -> None:
    choices = list(product_of({"model": "ab", "seed": "01"}))
    assert ["".join(choice.values()) for choice in choices] == ["a0", "a1", "b0", "b1"]


@given(AXES)
def test_the_order_is_always_the_same(axes: dict[str, list[int]]) -> None:
    assert list(product_of(axes)) == list(product_of(axes))
