from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
resize = torch.nn.functional.interpolate
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

Compare = Callable[..., Any]
MODES = ["bilinear", "bicubic"]


@pytest.mark.parametrize("mode", MODES)
def test_images_get_smaller_and_larger(compare: Compare, mode: str) -> None:
    def net(x: Any) -> Any:
        sizes = [(6, 5), (3, 17), (40, 7), (13, 19), (1, 7), (26, 38)]
        return (
            *(resize(x, size=size, mode=mode, antialias=True) for size in sizes),
            *(resize(x, size=size, mode=mode, antialias=True, align_corners=True) for size in sizes),
            *(resize(x, scale_factor=factor, mode=mode, antialias=True) for factor in (0.5, 0.3, 1.05, (0.9, 2.0))),
        )

    compare(net, draw(2, 3, 13, 19), tolerance=2e-6)


@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_double_precision(compare: Compare, mode: str) -> None:
    def net(x: Any) -> Any:
        return [resize(x, size=size, mode=mode, antialias=True) for size in ((5, 4), (30, 40))]

    x = draw(1, 2, 12, 9)
    compare(net, x.double(), tolerance=1e-13)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("channels", [3, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 6))])
def test_bytes_are_rounded_as_pytorch_does(compare: Compare, mode: str, channels: int) -> None:
    def net(x: Any) -> Any:
        return [resize(x, size=size, mode=mode, antialias=True) for size in ((7, 5), (31, 64), (9, 37), (20, 3))]

    numbers = np.random.default_rng(0).integers(0, 256, (2, channels, 20, 37), np.uint8)
    numbers[0, 0, :4] = 255
    compare(net, torch.from_numpy(numbers), tolerance=0)


def test_infinities_stay_in_their_windows(compare: Compare) -> None:
    x = draw(1, 1, 12, 12)
    x[0, 0, 2, 3], x[0, 0, 9, 9] = float("inf"), float("nan")
    compare(lambda x: resize(x, size=(4, 4), mode="bilinear", antialias=True), x)
