from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from kintune.core.model import ModelRef, Tensor
from kintune.errors import ModelError
from kintune.models.constants import parse_constants
from kintune.testing.small_onnx import write_small_onnx
from kintune_lab.comparison.files import ModelFiles, content_of
from kintune_lab.comparison.inputs import declared_constants, declared_inputs


def ref(path: Path, shapes: dict[str, tuple[int, ...]] | None = None) -> ModelRef:
    return ModelRef("onnx", str(path), path.stem, shapes=shapes or {})


def test_a_file_says_what_its_inputs_are(tmp_path: Path) -> None:
    model = ref(write_small_onnx(tmp_path / "a.onnx", operator="Unheard"))
    assert declared_inputs(model, content_of(model)) == (Tensor("x", (1, 16, 16, 16), "float32"),)


def test_shapes_close_what_is_open(tmp_path: Path) -> None:
    path = write_small_onnx(tmp_path / "a.onnx", is_open=True)
    model = ref(path, {"x": (1, 16, 8, 8)})
    assert declared_inputs(model, content_of(model))[0].shape == (1, 16, 8, 8)
    with pytest.raises(ModelError, match=r'the shape of x is open; set shapes = "x=\.\.\.'):
        declared_inputs(ref(path), content_of(model))


def test_a_negative_size_is_an_open_one(tmp_path: Path) -> None:
    path = write_small_onnx(tmp_path / "a.onnx")
    content = onnx.load(path)
    content.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1  # as some exporters write
    onnx.save(content, path)
    model = ref(path)
    with pytest.raises(ModelError, match="the shape of x is open"):
        declared_inputs(model, content_of(model))


def test_constants_are_no_inputs(tmp_path: Path) -> None:
    path = write_small_onnx(tmp_path / "a.onnx")
    model = ModelRef("onnx", str(path), "a", constants=parse_constants(["x=1"]))
    assert declared_inputs(model, content_of(model)) == ()


def test_what_is_no_onnx_file_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"\x08\xff\xff")
    with pytest.raises(ModelError, match="is no ONNX file"):
        declared_inputs(ref(path), ModelFiles(onnx=str(path)))
    with pytest.raises(ModelError, match="only an ONNX file declares its inputs"):
        declared_inputs(ref(path), ModelFiles(exported=str(path)))


def test_constants_have_the_shape_that_the_file_declares(tmp_path: Path) -> None:
    """onnxruntime takes no scalar for a tensor of one element."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.INT64, ["batch"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, ["batch"])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "a.onnx")
    model = ModelRef("onnx", str(tmp_path / "a.onnx"), "a", constants=parse_constants(["x=64"]))
    (constant,) = declared_constants(model, content_of(model)).values()
    assert (constant.shape, constant.dtype) == ((1,), "int64")
    exported = ModelRef("exported", "a.pt2", "a", constants=model.constants)
    assert declared_constants(exported, ModelFiles(exported="a.pt2")) == model.constants
