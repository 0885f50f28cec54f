"""Images put together from blocks, compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm


def blocks_of(image: tuple[int, ...], block: tuple[int, ...], **windows: Any) -> np.ndarray[Any, Any]:
    """Values of all blocks of an image of two channels."""
    rank = len(image)
    strides, dilations = windows.get("strides", [1] * rank), windows.get("dilations", [1] * rank)
    pads = windows.get("pads", [0] * 2 * rank)
    number = 1
    for d in range(rank):
        reach = (block[d] - 1) * dilations[d] + 1
        number *= (image[d] + pads[d] + pads[rank + d] - reach) // strides[d] + 1
    shape = (2, 2 * int(np.prod(block)), number)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("image", "block", "windows"),
    [
        ((5, 5), (1, 5), {}),
        ((6, 7), (2, 3), {}),
        ((6, 8), (2, 4), {"strides": [2, 4]}),  # side by side
        ((7, 8), (2, 4), {"strides": [2, 4]}),  # a row that no block has
        ((9, 8), (3, 3), {"strides": [2, 1], "pads": [1, 0, 1, 2]}),
        ((9, 9), (2, 3), {"strides": [3, 2], "dilations": [2, 3]}),
        ((4, 5, 5), (1, 1, 5), {}),
        ((9,), (4,), {"strides": [2], "pads": [1, 0]}),
    ],
)
def test_blocks_are_summed_where_they_lie(
    compare: Any, make_case: Any, image: tuple[int, ...], block: tuple[int, ...], windows: dict[str, Any]
) -> None:
    data = blocks_of(image, block, **windows)
    sizes = [np.array(each, np.int64) for each in (image, block)]
    compare([make_case("Col2Im", data, *sizes, constant=[1, 2], **windows)], 18)
