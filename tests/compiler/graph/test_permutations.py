from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kintune.compiler.graph import permutations

SHAPES = st.lists(st.sampled_from((1, 1, 2, 3, 4, 6)), min_size=1, max_size=5).map(tuple)


@st.composite
def _ordered(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(SHAPES)
    return shape, tuple(draw(st.permutations(range(len(shape)))))


@st.composite
def _reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A shape, an order and another shape of as many elements."""
    shape, order = draw(_ordered())
    left, wanted = math.prod(shape), []
    while left > 1:
        extent = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        wanted.append(extent)
        left //= extent
        if len(wanted) > 4:
            wanted[-1] *= left
            break
    return shape, order, tuple(wanted) or (1,)


@given(_ordered())
def test_what_is_stored_gives_the_tensor_back(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, order = case
    x = np.arange(math.prod(shape)).reshape(shape)
    kept = x.transpose(permutations.inverse(order))
    assert kept.shape == permutations.stored(shape, order)
    assert np.array_equal(kept.transpose(order), x)


@given(_ordered(), st.data())
def test_a_transpose_moves_nothing(case: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject) -> None:
    shape, order = case
    axes = tuple(data.draw(st.permutations(range(len(shape)))))
    x = np.arange(math.prod(shape)).reshape(shape)
    kept = x.transpose(permutations.inverse(order))
    assert np.array_equal(kept.transpose(permutations.compose(order, axes)), x.transpose(axes))


@given(_reshapes())
def test_a_reshape_that_moves_nothing_is_a_reshape_of_what_is_stored(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    shape, order, wanted = case
    after = permutations.reshaped(shape, order, wanted)
    if after is None:
        assert order != permutations.identity(len(shape))
        return
    x = np.arange(math.prod(shape)).reshape(shape)
    kept = x.transpose(permutations.inverse(order)).reshape(permutations.stored(wanted, after))
    assert np.array_equal(kept.transpose(after), x.reshape(wanted))


@given(_reshapes())
def test_a_regrouped_tensor_is_reshaped_in_place(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> None:
    shape, order, wanted = case
    near = permutations.regrouped(shape, order, wanted)
    assert near is not None
    assert permutations.reshaped(shape, near, wanted) is not None


@given(_reshapes(), st.data())
def test_an_operand_broadcasts_alike_before_a_reshape(
    case: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    before, _, after = case
    own = tuple(extent if data.draw(st.booleans()) else 1 for extent in after)[data.draw(st.integers(0, len(after))) :]
    shape = permutations.spread(before, after, own)
    if shape is None:
        assert any(extent != 1 for extent in own)
        return
    operand = np.arange(math.prod(own)).reshape(own)
    assert np.array_equal(
        np.broadcast_to(operand.reshape(shape), before).reshape(after), np.broadcast_to(operand, after)
    )


def test_blocks_of_channels_move_into_rows_and_columns() -> None:
    """The depth-to-space operator: channels stay last."""
    shape, order = (1, 3, 8, 2, 8, 2), (0, 5, 1, 3, 2, 4)
    near = permutations.regrouped(shape, order, (1, 3, 16, 16))
    assert near is not None
    assert permutations.reshaped(shape, near, (1, 3, 16, 16)) == (0, 3, 1, 2)


@given(_ordered(), st.data())
def test_orders_that_differ_in_axes_of_one_element_lie_alike(
    case: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject
) -> None:
    shape, order = case
    other = tuple(data.draw(st.permutations(range(len(shape)))))
    x = np.arange(math.prod(shape)).reshape(shape)
    alike = np.array_equal(
        x.transpose(permutations.inverse(order)).ravel(), x.transpose(permutations.inverse(other)).ravel()
    )
    assert permutations.is_copy_free(shape, order, other) == alike


def test_reshapes_of_channels_last() -> None:
    nhwc = (0, 3, 1, 2)
    assert permutations.reshaped((1, 8, 4, 4), nhwc, (1, 8, 16)) == (0, 2, 1)
    assert permutations.reshaped((1, 8, 4, 4), nhwc, (1, 2, 4, 4, 4)) == (0, 3, 4, 1, 2)
    assert permutations.reshaped((1, 8, 4, 4), nhwc, (8, 4, 4)) == (2, 0, 1)
    assert permutations.reshaped((1, 8, 4, 4), nhwc, (1, 128)) is None
    assert permutations.reshaped((1, 8, 1, 1), nhwc, (1, 8)) == (0, 1)
    assert permutations.reshaped((0, 8), (1, 0), (0, 4)) is None


def test_axes_that_are_added_and_removed() -> None:
    assert permutations.expanded((1, 0), 4) == (0, 1, 3, 2)
    assert permutations.reduced((0, 3, 1, 2), [2, 3]) == (0, 1)
    assert permutations.reduced((0, 3, 1, 2), [0]) == (2, 0, 1)
