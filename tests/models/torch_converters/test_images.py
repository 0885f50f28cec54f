from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
functional = torch.nn.functional
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

Compare = Callable[..., Any]


def test_largest_elements_of_equal_parts(compare: Compare) -> None:
    def net(x: Any, volume: Any) -> Any:
        two, three = functional.adaptive_max_pool2d, functional.adaptive_max_pool3d
        return (
            *(two(x, size) for size in ((2, 3), (5, 4), (3, 2), 1, (7, 9), (8, 8))),
            *(three(volume, size) for size in ((2, 3, 2), (2, 2, 2), 1, (3, 4, 5), (1, 2, 3))),
            *(three(volume[0], (2, 3, 2)), functional.adaptive_max_pool1d(x[0], 4), two(x[0], (2, 3))),
        )

    compare(net, draw(2, 3, 7, 9), draw(2, 2, 4, 6, 4), tolerance=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_means_of_equal_parts(compare: Compare, dtype: Any) -> None:
    def net(x: Any, volume: Any) -> Any:
        one, two, three = (getattr(functional, f"adaptive_avg_pool{rank}d") for rank in (1, 2, 3))
        return (
            *(one(x[0], 4), one(x[0, 0], 2), two(x, (2, 3)), two(x[0], (5, 9)), two(x, 1)),
            *(three(volume, (2, 3, 2)), three(volume[0], (1, 4, 3))),
        )

    inputs = draw(2, 3, 7, 9).to(dtype), draw(2, 2, 4, 6, 4).to(dtype)
    compare(net, *inputs, tolerance=1e-2 if dtype == torch.bfloat16 else 1e-5)


def test_where_the_largest_elements_of_equal_parts_are(compare: Compare) -> None:
    def net(x: Any, volume: Any) -> Any:
        pool = functional.adaptive_max_pool2d
        return (
            *(*pool(x, (2, 3), return_indices=True), *pool(x, (5, 4), return_indices=True)),
            *functional.adaptive_max_pool3d(volume, (3, 2, 2), return_indices=True),
        )

    x = draw(1, 2, 7, 8).round()  # so that several elements of a part are the largest
    x[0, 0, 0, 0] = x[0, 1, 4, 4] = float("nan")
    compare(net, x, draw(1, 2, 4, 5, 3), tolerance=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_parts_of_other_types(compare: Compare, dtype: Any) -> None:
    compare(lambda x: functional.adaptive_max_pool2d(x, (3, 2)), draw(1, 2, 7, 8).to(dtype), tolerance=0)


def test_the_largest_of_numbers_that_are_none_is_the_last(compare: Compare) -> None:
    """As in eager mode; the program that PyTorch writes out has the first."""
    rows = torch.tensor([[math.nan] * 5, [1.0, math.nan, 2.0, math.nan, 3.0], [-math.inf] * 5])
    compare(lambda x: functional.adaptive_max_pool1d(x, 1, return_indices=True), rows)


def test_resizing_in_double_precision(compare: Compare) -> None:
    def net(x: Any) -> Any:
        sizes = [(5, 7), (13, 20)]
        return [
            functional.interpolate(x, size=size, mode="bilinear", align_corners=c)
            for size in sizes
            for c in (False, True)
        ]

    compare(net, draw(1, 2, 7, 9).double(), tolerance=1e-13)
