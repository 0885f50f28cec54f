"""Which axes of a model's inputs are one open dimension, and the shapes for its extents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from kintune.core.model import ModelRef, Tensor
from kintune.errors import ShapeError
from kintune.models.combinations import combine_shapes, parse_shapes
from kintune.models.open_shapes import OpenShapes, open_shapes
from kintune.models.ref import parse_ref

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def model_with(folder: Path, **inputs: Sequence[object]) -> Path:
    """A file whose inputs have these shapes; None is an axis without a name."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    path = folder / "model.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(nodes, "model", values, outputs)).SerializeToString())
    return path


def opened(path: Path, *shapes: str) -> OpenShapes:
    ref = parse_ref(str(path), shapes)
    return open_shapes(ref, [Tensor(name, shape, "float32") for name, shape in ref.shapes.items()])


def test_axes_of_one_name_are_one_dimension(tmp_path: Path) -> None:
    path = model_with(tmp_path, ids=["batch", "length"], mask=["batch", "length"], scale=["batch", 3])
    found = opened(path, "ids={1..4}x{1..512}", "mask={1..4}x{1..512}")
    assert [(each.name, each.input, each.axis, each.least, each.greatest) for each in found.dimensions] == [
        ("batch", 0, 0, 1, 4),
        ("length", 0, 1, 1, 512),
    ]
    assert found.at({"batch": 3, "length": 77}).shapes == {"ids": (3, 77), "mask": (3, 77)}
    ranged = found.ranged([Tensor("ids", (4, 512), "float32"), Tensor("scale", (4, 3), "float32")])
    assert [each.ranges for each in ranged] == [((1, 4, 1), (1, 512, 1)), ((1, 4, 0), (3, 3, 0))]


def test_without_names_equal_ranges_of_several_inputs_go_together(tmp_path: Path) -> None:
    path = model_with(tmp_path, one=[None, None], other=[None, None])
    found = opened(path, "one={8..64:8}x{8..64:8}", "other={8..64:8}x{8..64:8}")
    assert [each.name for each in found.dimensions] == ["one[0]", "one[1]"]
    assert found.at({"one[0]": 2, "one[1]": 5}).shapes == {"one": (16, 40), "other": (16, 40)}


@given(least=st.integers(1, 40), count=st.integers(2, 30), step=st.integers(1, 9), at=st.integers(0, 1000))
def test_extents_are_counted_in_steps(
    tmp_path_factory: pytest.TempPathFactory, least: int, count: int, step: int, at: int
) -> None:
    extents = range(least, least + count * step, step)
    path = model_with(tmp_path_factory.mktemp("model"), x=["n"])
    found = opened(path, f"x={extents.start}..{extents[-1]}:{step}")
    (dimension,) = found.dimensions
    wanted = extents[at % count]
    assert dimension.extents == extents
    assert found.at({"n": dimension.steps(wanted)}).shapes == {"x": (wanted,)}


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        (["ids=1x{1..8}", "mask=1x{1..9}"], r"dimension length has the ranges \{1..8\} and \{1..9\}"),
        (["ids=1x{1..8}", "gone=1x{1..8}"], "gone is a constant"),
    ],
)
def test_what_cannot_be_open_is_refused(tmp_path: Path, shapes: list[str], said: str) -> None:
    path = model_with(tmp_path, ids=["batch", "length"], mask=["batch", "length"])
    ref = parse_ref(str(path), shapes)
    inputs = [Tensor(name, shape, "float32") for name, shape in ref.shapes.items() if name != "gone"]
    with pytest.raises(ShapeError, match=said):
        open_shapes(ref, inputs)


def test_networks_of_the_zoo_have_fixed_shapes() -> None:
    ref = ModelRef("zoo", "bert_base", "bert_base").with_combinations(combine_shapes(parse_shapes(["ids=1x{1..9}"])))
    with pytest.raises(ShapeError, match="zoo:bert_base"):
        open_shapes(ref, [])
