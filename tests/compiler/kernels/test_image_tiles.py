"""Tiles of a row have the products that meet the image, and rows of the kernel those that lie in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tvm


def test_tiles_have_the_products_that_meet_the_image() -> None:
    from kintune.compiler.kernels.contraction import Reach
    from kintune.compiler.kernels.image_tiles import Tile, edges, tiles_of

    reach = Reach(size=5, results=5, kernel=3, stride=1, dilation=1, before=1)
    first, second = tiles_of(reach, 3)
    assert first == Tile(0, 3, ((0, 1), (1, 0), (0, 2), (1, 1), (2, 0), (1, 2), (2, 1), (2, 2)))
    assert second == Tile(3, 2, ((0, 0), (0, 1), (1, 0), (0, 2), (1, 1)))
    assert edges(reach, 3) == (2, 0)
    assert edges(reach._replace(size=20, results=20), 4) == (1, 1)
    (beyond,) = tiles_of(Reach(size=1, results=2, kernel=1, stride=1, dilation=1, before=3), 2)
    assert beyond.products == ()


@given(
    st.integers(1, 40), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5), st.integers(0, 9), st.integers(0, 9),
    st.integers(1, 9),
)  # fmt: skip
def test_all_products_are_in_one_tile(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int, columns: int
) -> None:
    from kintune.compiler.kernels.contraction import Reach
    from kintune.compiler.kernels.image_tiles import edges, tiles_of

    results = (size + before + after - (kernel - 1) * dilation - 1) // stride + 1
    if results < 1:
        return
    reach = Reach(size, results, kernel, stride, dilation, before)
    tiles = tiles_of(reach, columns)
    found = {(tile.first + t, j) for tile in tiles for t, j in tile.products}
    wanted = {(x, j) for x in range(results) for j in range(kernel) if 0 <= x * stride + j * dilation - before < size}
    assert found == wanted
    assert sum(tile.columns for tile in tiles) == results
    left, right = edges(reach, columns)
    inner = tiles[left : len(tiles) - right]
    assert all(len(tile.products) == columns * kernel for tile in inner)


@given(st.integers(1, 30), st.lists(st.integers(1, 16), min_size=1))
def test_even_widths_need_no_more_tiles(results: int, widths: list[int]) -> None:
    from kintune.compiler.kernels.image_tiles import even_widths

    numbers = {-(-results // width) for width in widths if width <= results}
    assert {-(-results // width) for width in even_widths(results, tuple(widths))} == numbers
