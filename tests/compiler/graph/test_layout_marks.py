"""Which weights keep their layout, because of how a kernel reads them."""

from __future__ import annotations

import pytest
from tvm import te

from kintune.compiler.graph.layout_marks import fixed_layouts

pytestmark = pytest.mark.tvm


def _summed(read: object, extent: int = 8) -> object:
    summed = te.reduce_axis((0, extent), name="k")
    return te.compute((4,), lambda i: te.sum(read(i, summed), axis=summed), name="sums")  # type: ignore[operator]


def _copied(weight: object) -> object:
    return te.compute((4, 8), lambda i, j: weight[i, j], name="copy")  # type: ignore[index]


@pytest.mark.parametrize(
    ("kernel", "is_fixed"),
    [
        (lambda w: _summed(lambda i, k: w[i, k]), False),
        (lambda w: _summed(lambda i, k: w[k // 2, k % 2 * 4 + i]), False),
        (lambda w: _summed(lambda i, k: _copied(w)[i, k]), False),
        (lambda w: _summed(lambda i, k: w[i, 7 - k]), True),
        (lambda w: _summed(lambda i, k: w[i, k * 2], 4), True),
        (lambda w: _summed(lambda i, k: w[i, i + k], 4), True),
        (lambda w: _summed(lambda i, k: w[0, k]), True),
    ],
)
def test_weights_that_are_not_read_forward_keep_their_layout(kernel: object, is_fixed: bool) -> None:
    weight = te.placeholder((4, 8), name="weight")
    function = te.create_prim_func([weight, kernel(weight)])  # type: ignore[operator]
    assert (0 in fixed_layouts(function)) is is_fixed


def test_weights_of_open_extents_keep_their_layout() -> None:
    rows = te.var("rows", "int64")
    weight = te.placeholder((rows, 8), name="weight")
    read = te.compute((rows, 8), lambda i, j: weight[i, j] + 1, name="read")
    assert 0 in fixed_layouts(te.create_prim_func([weight, read]))


def test_it_is_the_same_through_a_copy_and_not_through_a_sum() -> None:
    weight = te.placeholder((4, 8), name="weight")
    copy = _copied(weight)
    backwards = te.compute((4, 8), lambda i, j: copy[i, 7 - j], name="backwards")  # type: ignore[index]
    assert 0 in fixed_layouts(te.create_prim_func([weight, backwards]))
    sums = _summed(lambda i, k: weight[i, k])
    backwards = te.compute((4,), lambda i: sums[3 - i], name="backwards")  # type: ignore[index]
    assert 0 not in fixed_layouts(te.create_prim_func([weight, backwards]))
