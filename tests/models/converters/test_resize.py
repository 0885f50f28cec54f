from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

MODES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]


def draw(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def scales(*values: float) -> Any:
    return np.array(values, np.float32)


def sizes(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_every_coordinate_transformation(compare: Any, make_case: Any, mode: str) -> None:
    x, cases = draw(1, 2, 4, 5), []
    for transformation in MODES:
        for factors in ((1, 1, 2, 2), (1, 1, 0.6, 2.7)):
            attributes = {"mode": mode, "coordinate_transformation_mode": transformation}
            cases.append(make_case("Resize", x, None, scales(*factors), constant=[2], **attributes))
        cases.append(make_case("Resize", x, None, None, sizes(1, 2, 7, 3), constant=[3], **attributes))
    compare(cases, 19, atol=1e-4)


def test_roundings_of_nearest(compare: Any, make_case: Any) -> None:
    x, cases = draw(1, 2, 4, 6), []
    roundings = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
    for rounding, transformation in itertools.product(roundings, ["half_pixel", "align_corners", "asymmetric"]):
        attributes = {"nearest_mode": rounding, "coordinate_transformation_mode": transformation}
        cases.append(make_case("Resize", x, None, None, sizes(1, 2, 8, 3), constant=[3], **attributes))
    compare(cases, 13)


def test_region_of_interest_and_policies(compare: Any, make_case: Any) -> None:
    x, roi = draw(1, 1, 4, 4), scales(0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7)
    crop = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    cases = [make_case("Resize", x, roi, None, sizes(1, 1, 3, 3), constant=[1, 3], **crop)]
    cases.append(make_case("Resize", x, roi, None, sizes(1, 1, 3, 4), constant=[1, 3], **crop))
    for policy in ("stretch", "not_larger", "not_smaller"):
        attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy}
        cases.append(make_case("Resize", draw(1, 1, 2, 4), None, None, sizes(7, 8), constant=[3], **attributes))
    compare(cases, 19)


def test_antialias_and_what_lies_outside(compare: Any, make_case: Any) -> None:
    x, cases = draw(1, 1, 8, 8), []
    for mode in ("linear", "cubic"):
        cases.append(make_case("Resize", x, None, scales(1, 1, 0.6, 0.5), constant=[2], mode=mode, antialias=1))
    cases.append(
        make_case(
            "Resize", x, None, scales(1, 1, 0.8, 2), constant=[2], mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1
        )
    )
    compare(cases, 19)


def test_an_axis_without_elements(compare: Any, make_case: Any) -> None:
    x, by = draw(1, 2, 2, 1), scales(1, 1, 2, 0.5)
    compare([make_case("Resize", x, None, by, constant=[2], mode=mode) for mode in ("nearest", "linear")], 19)


def test_old_operator_sets(compare: Any, make_case: Any) -> None:
    x = draw(1, 2, 3, 4)
    for mode in ("nearest", "linear"):
        compare([make_case("Upsample", x, mode=mode, scales=[1.0, 1.0, 2.0, 3.0])], 7)
        compare([make_case("Upsample", x, scales(1, 1, 2, 1.5), constant=[1], mode=mode)], 9)
        compare([make_case("Resize", x, scales(1, 1, 2, 0.6), constant=[1], mode=mode)], 10)


def test_integers_are_rounded_after_each_axis_with_antialias(compare: Any, make_case: Any) -> None:
    image = np.random.default_rng(0).integers(0, 256, (8, 12, 3)).astype(np.uint8)
    attributes = {"mode": "linear", "antialias": 1}
    cases = [
        make_case("Resize", image, None, None, sizes(*extents), constant=[3], axes=axes, **attributes)
        for axes, extents in (([0, 1], (4, 6)), ([1, 0], (6, 4)))
    ]
    compare(cases, 19, rtol=0, atol=0)
