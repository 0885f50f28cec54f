from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from kintune.errors import InputError, ModelError
from kintune.models.ref import parse_ref
from tests.support.untuned import build_untuned

pytestmark = pytest.mark.tvm

DATA = np.random.default_rng(0).standard_normal((2, 3, 10, 12)).astype(np.float32)
REGIONS = np.array(
    [[0, 0, 20, 16], [3, 4, 9.5, 13], [-4, -4, 5, 5], [10, 10, 40, 40], [5, 5, 5.2, 5.1], [6, 6, 6, 6], [2, 3, 7, 3]],
    np.float32,
)
IMAGES = np.array([0, 1, 1, 0, 1, 0, 1])
SHAPE = {"output_height": 3, "output_width": 2, "spatial_scale": 0.5}


@pytest.mark.parametrize("opset", [10, 16])
def test_points_in_regions(compare: Any, make_case: Any, opset: int) -> None:
    several: list[dict[str, Any]] = [{}, {"sampling_ratio": 2}, SHAPE, {**SHAPE, "sampling_ratio": 2}]
    if opset == 16:
        several += [{**SHAPE, "coordinate_transformation_mode": "output_half_pixel"}]
    cases = [make_case("RoiAlign", DATA, REGIONS, IMAGES, **attributes) for attributes in several]
    cases += [make_case("RoiAlign", DATA, REGIONS, IMAGES, constant=[1, 2], **SHAPE)]
    compare(cases, opset)


def test_no_regions(compare: Any, make_case: Any) -> None:
    none = REGIONS[:0], IMAGES[:0]
    cases = [make_case("RoiAlign", DATA, *none, constant=[1, 2], **SHAPE)]
    compare(cases, 16, expected=[np.zeros((0, 3, 3, 2), np.float32)])


def test_regions_that_are_turned_around_or_endless_have_no_points(compare: Any, make_case: Any) -> None:
    regions = np.array([[8, 8, 4, 3], [8, 8, 4, 9], [0, 0, 1e12, 3], [0, np.nan, 4, 4]], np.float32)
    cases = [make_case("RoiAlign", DATA, regions, np.zeros(4, np.int64))]
    compare(cases, 16, expected=[np.zeros((4, 3, 1, 1), np.float32)])


def test_maxima_of_points_are_refused(compare: Any, make_case: Any) -> None:
    with pytest.raises(ModelError, match="mode 'max' is not supported"):
        compare([make_case("RoiAlign", DATA, REGIONS, IMAGES, mode="max")], 16)


def test_maxima_of_regions(compare: Any, make_case: Any) -> None:
    regions = np.concatenate([IMAGES[:, None], np.round(REGIONS)], 1).astype(np.float32)
    cases = [
        make_case("MaxRoiPool", DATA, regions, pooled_shape=[3, 2], spatial_scale=0.5),
        make_case("MaxRoiPool", DATA, regions, pooled_shape=[1, 1], constant=[1]),
        make_case("MaxRoiPool", DATA[:, :, :0], regions, pooled_shape=[3, 2]),
    ]
    compare(cases, 16)


def test_an_image_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    regions = np.concatenate([IMAGES[:, None], REGIONS], 1).astype(np.float32)
    feeds = {"x": DATA, "regions": REGIONS, "images": IMAGES, "numbered": regions}
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in feeds.items()
    ]
    nodes = [
        helper.make_node("Mul", ["images", "one"], ["same"]),
        helper.make_node("RoiAlign", ["x", "regions", "images"], ["given"]),
        helper.make_node("RoiAlign", ["x", "regions", "same"], ["computed"]),
        helper.make_node("MaxRoiPool", ["x", "numbered"], ["largest"], pooled_shape=[1, 1]),
    ]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("given", "computed", "largest")]
    weights = [numpy_helper.from_array(np.int64(1), "one")]
    graph = helper.make_graph(nodes, "g", ports, outputs, weights)
    path = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    executable = build_untuned(parse_ref(str(path)))
    executable.run(feeds)
    for number in (2, -1, 10**6):
        with pytest.raises(InputError, match=str(number)):
            executable.run({**feeds, "images": np.full(7, number)})
        wrong = regions.copy()
        wrong[3, 0] = number
        with pytest.raises(InputError, match=str(number)):
            executable.run({**feeds, "numbered": wrong})
