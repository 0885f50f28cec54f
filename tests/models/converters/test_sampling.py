"""Images sampled at points, compared with onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

RNG = np.random.default_rng(0)


def test_points_of_half_precision_lie_where_they_should(compare: Any, make_case: Any) -> None:
    """In its own type, a coordinate would be off by a tenth of a pixel of so large an image."""
    image = RNG.standard_normal((1, 1, 300, 300)).astype(np.float16)
    points = RNG.uniform(-1, 1, (1, 9, 9, 2)).astype(np.float16)
    compare([make_case("GridSample", image, points)], 16, rtol=1e-2, atol=1e-2)


_COSTLY = (("linear", "reflection", 5), ("cubic", "reflection", 4))  # the compiler takes 5 to 10 s for each


@pytest.mark.parametrize("costly", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_images_and_volumes_in_all_modes(compare: Any, make_case: Any, costly: bool) -> None:
    """What is costly is drawn by the fuzzer, too; the modes that are not share its code."""
    image, points = RNG.standard_normal((1, 2, 4, 5)), RNG.uniform(-1.5, 1.5, (1, 3, 3, 2))
    volume, places = RNG.standard_normal((1, 1, 3, 4, 5)), RNG.uniform(-1.5, 1.5, (1, 2, 3, 2, 3))
    cases = []
    for mode, padding in itertools.product(("linear", "nearest", "cubic"), ("zeros", "reflection")):
        corners = int((padding == "zeros") == (mode == "cubic"))  # so each two of the three meet in all values
        attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
        for data, grid in ((image, points), (volume, places)):
            if ((mode, padding, data.ndim) in _COSTLY) == costly and (mode != "cubic" or data.ndim == 4):
                cases.append(make_case("GridSample", data.astype("f4"), grid.astype("f4"), **attributes))
    compare(cases, 20, rtol=1e-3, atol=1e-4)


def test_grids_of_float64_have_all_digits(compare: Any, make_case: Any) -> None:
    theta = RNG.standard_normal((2, 2, 3))
    cases = [make_case("AffineGrid", theta, np.array([2, 3, 4, 7]), constant=[1], align_corners=at) for at in (0, 1)]
    compare(cases, 20, rtol=1e-12, atol=1e-12)


def test_grids_of_images_that_are_one_pixel_wide(compare: Any, make_case: Any) -> None:
    flat, solid = RNG.standard_normal((2, 2, 3)).astype(np.float32), RNG.standard_normal((1, 3, 4)).astype(np.float32)
    sizes = [
        (flat.astype(np.float64), [2, 3, 1, 4]),
        (flat, [2, 3, 1, 4]),
        (flat, [2, 3, 5, 1]),
        (flat, [2, 1, 1, 1]),
        (solid, [1, 2, 3, 1, 2]),
    ]
    compare(
        [
            make_case("AffineGrid", theta, np.array(size), constant=[1], align_corners=corners)
            for theta, size in sizes
            for corners in (0, 1)
        ],
        20,
    )


@pytest.mark.parametrize("mode", ["linear", "nearest", pytest.param("cubic", marks=pytest.mark.slow)])
def test_an_axis_of_one_pixel_reflects(compare: Any, make_case: Any, mode: str) -> None:
    image, points = RNG.standard_normal((1, 2, 1, 5)), RNG.uniform(-1.5, 1.5, (1, 3, 3, 2))
    attributes = {"mode": mode, "padding_mode": "reflection", "align_corners": 1}
    compare([make_case("GridSample", image.astype("f4"), points.astype("f4"), **attributes)], 20, rtol=1e-3, atol=1e-4)
