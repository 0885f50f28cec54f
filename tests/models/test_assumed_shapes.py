"""Ranges for extents that nobody names, by what each dimension is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from kintune.core.capabilities import Capabilities
from kintune.core.config import Options
from kintune.core.model import spell_shapes
from kintune.models.assumed_shapes import assumed, assumes_ranges, narrower
from kintune.models.declared_inputs import declared_inputs
from kintune.models.open_shapes import ranged_inputs
from kintune.models.ref import parse_ref

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kintune.core.model import ModelRef


def model_of(folder: Path, inputs: Sequence[tuple[str, Sequence[object]]], kind: int = TensorProto.FLOAT) -> str:
    values = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name, _ in inputs]
    outputs = [helper.make_tensor_value_info(f"{name}_out", kind, shape) for name, shape in inputs]
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(nodes, "model", values, outputs)).SerializeToString())
    return str(path)


def spelled(ref: ModelRef) -> str:
    return spell_shapes(ref.any_shapes)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (["batch", 3, "height", "width"], "x=1x3x{32..640:32}x{32..640:32}"),
        ([-1, 3, None, None], "x=1x3x{32..640:32}x{32..640:32}"),
        (["n", None, None, 3], "x=1x{32..640:32}x{32..640:32}x3"),
        (["batch_size", "frames", 161], "x={1..4}x{1..512}x161"),
        (["sequence_length", 576], "x={1..512}x576"),
        ([2, "batch", 128], "x=2x{1..4}x128"),
        (["DynamicDimension.0", 3, 224, 224], "x={1..4}x3x224x224"),
        (["steps"], "x={1..512}"),
        ([None, "audio_samples"], "x={1..4}x{512..16384:512}"),
        (["b", 8, "h", "w"], "x=1x8x{32..640:32}x{32..640:32}"),
        ([1, 64], ""),
    ],
)  # fmt: skip
def test_a_dimension_is_told_by_its_name_and_place(tmp_path: Path, shape: Sequence[object], said: str) -> None:
    ref = assumed(parse_ref(model_of(tmp_path, [("x", shape)])))
    assert spelled(ref) == said
    assert ref.assumed == (("x",) if said else ())
    (only,) = ranged_inputs(ref)
    assert [len(each.shape) for each in only.inputs] == [len(shape)]


def test_axes_of_one_name_have_one_range_and_what_is_named_stays(tmp_path: Path) -> None:
    path = model_of(tmp_path, [("ids", ["b", "n"]), ("mask", ["b", "n"]), ("kinds", ["b", "m"])], TensorProto.INT64)
    ref = assumed(parse_ref(path, ["ids=2x{8..64:8}"]))
    assert spelled(ref) == "ids=2x{8..64:8}, kinds=2x{1..512}"
    assert ref.assumed == ("kinds",)
    (only,) = ranged_inputs(ref)
    assert [each.ranges for each in only.inputs] == [
        ((2, 2, 0), (8, 64, 8)),
        ((2, 2, 0), (8, 64, 0)),
        ((2, 2, 0), (1, 512, 1)),
    ]


@pytest.mark.parametrize(
    ("shape", "said"),
    [(["batch", 4096, "length"], "x=1x4096x{1..512}"), (["batch", 32768, "length"], "x=1x32768x64")],
)
def test_of_very_large_inputs_fewer_extents_are_open(tmp_path: Path, shape: Sequence[object], said: str) -> None:
    assert spelled(assumed(parse_ref(model_of(tmp_path, [("x", shape)])))) == said


@given(axes=st.lists(st.sampled_from(["batch", "n", "height", "time", "past_len", "", 3, 64]), min_size=1, max_size=4))
def test_what_is_assumed_is_narrowed_until_all_is_fixed(
    tmp_path_factory: pytest.TempPathFactory, axes: list[object]
) -> None:
    path = model_of(tmp_path_factory.mktemp("narrower"), [("x", [each or None for each in axes])])
    ref = assumed(parse_ref(path))
    before = ref
    for each in narrower(ref):
        assert each not in (ref, before)
        assert each.assumed == ref.assumed
        for now, then in zip(each.any_shapes["x"], ref.any_shapes["x"], strict=True):
            taken = set(now) if isinstance(now, range) else {now}
            assert now == then or (isinstance(then, range) and taken <= {*then, 48})
        before = each
    assert not before.ranges
    (fixed,) = declared_inputs(before)
    assert all(each > 0 for each in fixed.inputs[0].shape)


@pytest.mark.parametrize(
    ("options", "device", "calibrated"),
    [
        ({"weights": 4}, Capabilities(), False),
        ({"other_shapes": "onnxruntime"}, Capabilities(), False),
        ({}, Capabilities(), True),
        ({}, Capabilities(several_shapes=False), False),
    ],
)
def test_what_takes_fixed_shapes_asks_for_them(
    tmp_path: Path, options: dict[str, Any], device: Capabilities, calibrated: bool
) -> None:
    ref = parse_ref(model_of(tmp_path, [("x", ["n"])]))
    assert assumes_ranges(ref, Options(), Capabilities(), calibrated=False)
    assert not assumes_ranges(ref, Options(**options), device, calibrated=calibrated)
    assert not assumes_ranges(parse_ref(ref.source, ["x={8,16}"]), Options(), Capabilities(), calibrated=False)
    assert not assumes_ranges(parse_ref("zoo:resnet18"), Options(), Capabilities(), calibrated=False)


def test_images_of_lines_of_text_are_tried_where_no_other_serves(tmp_path: Path) -> None:
    ref = assumed(parse_ref(model_of(tmp_path, [("x", ["batch", 3, "height", "width"])])))
    said = [spelled(each) for each in narrower(ref)]
    assert said[1:] == [
        "x=1x3x48x{32..640:32}",
        "x=1x3x32x{32..640:32}",
        "x=1x3x224x224",
        "x=1x3x48x224",
        "x=1x3x32x224",
    ]
